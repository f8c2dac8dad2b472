// SPDX-License-Identifier: Apache-2.0
// The part of Optimizer that knows of other ranks: the cut, and the step's phases.
//   reduce   gradients are summed by their owners; a failure leaves no trace
//   agreement     the only agreement: after it nothing can fail until all slices are written
//   apply    each rank updates its own slices, and its layers' scales
//   publish  every rank gets the new weights; repeatable from the owners' slices
#include <algorithm>
#include <cstring>

#include "numerics/bits.hpp"
#include "optim/optimizer.hpp"
#include "recipe/keys.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

void add_number(system::Fnv64& hash, double x) { hash.add(numerics::bits_from_double(x)); }

void add_hyper(system::Fnv64& hash, const numerics::GroupHyper& hyper) {
    for (const double x : {hyper.lr, hyper.beta1, hyper.beta2, hyper.eps, hyper.weight_decay}) {
        add_number(hash, x);
    }
    hash.add(static_cast<int64_t>(hyper.rule));
    for (const bool flag : {hyper.maximize, hyper.bias_correction, hyper.enabled}) {
        hash.add(flag ? 1 : 0);
    }
}

uint64_t hash_of(const OptimizerOptions& options) {
    system::Fnv64 hash;
    const shard::ShardingOptions& s = options.sharding;
    for (const int64_t number :
         {int64_t{s.stage}, static_cast<int64_t>(s.kind), s.bucket_elements,
          static_cast<int64_t>(s.wire.dtype), static_cast<int64_t>(s.wire.scale),
          static_cast<int64_t>(s.order), int64_t{s.slots}, int64_t{s.shard_ranks},
          int64_t{s.node_ranks}, int64_t{s.check_every}, int64_t{s.sum_gradients ? 1 : 0},
          int64_t{options.check_finite ? 1 : 0}, int64_t{options.zero_grad ? 1 : 0},
          static_cast<int64_t>(options.seed)}) {
        hash.add(number);
    }
    add_number(hash, options.max_grad_norm);
    return hash.value();
}

uint64_t hash_of(const Parameter& p) {
    system::Fnv64 hash;
    hash.add(p.name);
    hash.add(p.group);
    for (const StateFormat format : p.formats.states) {
        hash.add(static_cast<int64_t>(format_id(format)));
    }
    hash.add(p.param->dtype());
    hash.add(p.grad->dtype());
    hash.add(p.init_fp32 != nullptr ? 1 : 0);
    hash.add(p.counts_elsewhere ? 1 : 0);
    hash.add(p.param->shape().ndim);
    for (int32_t i = 0; i < p.param->shape().ndim; ++i) {
        hash.add(p.param->shape().sizes[static_cast<std::size_t>(i)]);
    }
    return hash.value();
}

shard::Definition definition(const recipe::Recipe& recipe, const OptimizerOptions& options,
                             const Parameters& parameters) {
    system::Fnv64 text;
    text.add(recipe::recipe_to_json(recipe, ""));
    shard::Definition definition{text.value(), hash_of(options), {}, {}};
    for (const Parameter& p : parameters) {
        definition.names.push_back("parameter " + std::to_string(definition.names.size()) + " ('" +
                                   p.name + "' here): its name, shape, types or group");
        definition.parameters.push_back(hash_of(p));
    }
    return definition;
}

std::vector<shard::ShardedTensor> sharded_tensors(const recipe::Recipe& recipe,
                                                  const shard::ShardingOptions& options,
                                                  const Parameters& parameters) {
    std::vector<shard::ShardedTensor> tensors;
    for (const Parameter& p : parameters) {
        const bool has_scales =
            (p.param->scales() != nullptr && !p.is_codes) || p.formats.master.is_scaled() ||
            std::any_of(std::begin(p.formats.states), std::end(p.formats.states),
                        [](StateFormat f) { return f.is_scaled(); });
        if (has_scales && options.stage > 0 && options.kind != shard::ShardKind::greedy) {
            fail(Code::unsupported,
                 "optimizer: '%s' has states with one scale for the tensor, which ranks cannot "
                 "share; use the greedy plan, or stage 0",
                 p.name.c_str());
        }
        tensors.push_back({p.param, p.grad, gather_dtype(recipe, p.weight),
                           reduce_wire(options.wire, recipe, p.formats),
                           p.is_codes ? recipe.weight.dtype : DType::none, p.init_fp32});
    }
    return tensors;
}

} // namespace

// Which parameters are weights of fp8 products cannot be seen from numbers.
void Optimizer::check_gather() const {
    const bool gathers = recipe_.fp8.gather && options_.sharding.stage > 0 &&
                         options_.sharding.comm->size() > 1 && parameters_.count() > 0;
    const bool has_codes = std::any_of(parameters_.begin(), parameters_.end(),
                                       [](const Parameter& p) { return p.is_codes; });
    if (gathers && !has_codes) {
        fail(Code::unsupported,
             "optimizer: the recipe's fp8.all_gather is on, but no parameter is a tensor of fp8 "
             "codes with one scale, so nothing would be gathered as fp8; make the weights of fp8 "
             "layers with mp_recipe_create_weight_codes, or set the key to off");
    }
}

void Optimizer::shard(Stream& stream) {
    if (!is_sharded() || sharding() != nullptr) {
        return;
    }
    check_gather();
    parameters_.share(
        std::make_unique<shard::Sharding>(context_, stream, options_.sharding, options_.zero_grad,
                                          sharded_tensors(recipe_, options_.sharding, parameters_),
                                          definition(recipe_, options_, parameters_)));
    Status own;
    try {
        parameters_.make_states(stream);
    } catch (const Error& error) {
        own = error.status();
    }
    comm::Agreement agreement;
    agreement.decline(own);
    const Status agreed = sharding()->reach(agreement);
    if (!agreed.ok()) {
        sharding()->groups().abandon(agreed);
        check(agreed);
    }
    sharding()->publish(stream);
    groups_.changes().plan = true;
}

// The agreement's length follows from the layers, so ranks agree on them in a message of fixed length first.
void Optimizer::set_layers(std::vector<std::shared_ptr<linear::Linear>> layers) {
    Status own;
    StepLayers next;
    try {
        next = StepLayers(context_->stream().device(), std::move(layers));
    } catch (const Error& error) {
        own = error.status();
    }
    if (is_sharded()) {
        comm::Agreement agreement;
        agreement.must_equal("the number of layers", next.size());
        agreement.must_equal("the layers' sizes or recipes", next.definition());
        agreement.decline(own);
        own = sharding() != nullptr ? sharding()->reach(agreement)
                                    : agreement.reach(*options_.sharding.comm);
    }
    check(own);
    layers_ = std::move(next);
}

void Optimizer::agree(Stream& stream, scaler::LossScaler* scaler, uint64_t weights,
                      const Status& own) {
    comm::Agreement agreement;
    system::Fnv64 hyper;
    for (const numerics::GroupHyper& group : groups_.hyper()) {
        add_hyper(hyper, group);
    }
    add_number(hyper, options_.max_grad_norm);
    agreement.must_equal("the number of steps", static_cast<uint64_t>(calls_));
    agreement.must_equal("the groups' hyperparameters or max_grad_norm", hyper.value());
    agreement.must_equal("the loss scale",
                         scaler == nullptr ? 0
                                           : numerics::bits_from_float(scaler->read(stream).scale));
    agreement.must_equal("the loss scaler's kind", scaler == nullptr  ? 0
                                                   : scaler->checks() ? 2
                                                                      : 1);
    agreement.must_equal("the weights' bits, which the last step made equal", weights);
    layers_.propose(agreement);
    sharding()->grad_scales().propose(agreement);
    agreement.decline(own);
    check(sharding()->reach(agreement));
    layers_.accept(agreement);
    sharding()->grad_scales().accept(agreement);
}

void Optimizer::step_on_ranks(Stream& stream, scaler::LossScaler* scaler) {
    shard(stream);
    sharding()->reduce(stream);
    const std::vector<int32_t> enabled = enabled_parameters();
    const std::vector<bool> elsewhere = chunks_counted_elsewhere(parameters_, enabled);
    bool is_measured = false; // the ranks with other parameters have this one's sum
    const ChunkSumExchange exchange = [&](const std::vector<double>& sums) {
        const std::vector<double> all = sharding()->all_sums(sums, enabled);
        if (!norm_group_.exists()) {
            return all;
        }
        is_measured = true;
        return norm_group_.sums(all, elsewhere);
    };
    StepOptions options = step_options();
    options.zero_grad = false; // the sums are overwritten, the gradients were zeroed when they left
    options.grad_scale = sharding()->divisor();
    options.exchange = &exchange;
    Status own;
    uint64_t weights = 0;
    const Candidate* chosen = nullptr; // null: `own` is an error, and all ranks stop at agree()
    try {
        check_norm_group();
        refresh(stream);
        weights = sharding()->weights_hash(stream, calls_);
        layers_.read_amaxes(stream);
        chosen = &memory_.choose(stream, plan_, options);
        memory_.measure(stream, plan_, scaler, options);
    } catch (const Error& error) {
        own = error.status();
        if (!sharding()->groups().status().ok()) {
            sharding()->groups().abandon(own); // other groups would wait for this rank's agreement
        } else if (needs_stats(options, scaler)) {
            // The others wait for these sums before the agreement, in which they learn the reason.
            (void)sharding()->all_sums(sharding()->no_sums(enabled), enabled);
            if (norm_group_.exists() && !is_measured) {
                (void)norm_group_.sums({}, elsewhere);
            }
        }
    }
    agree(stream, scaler, weights, own);
    ++calls_;
    memory_.prepare(stream, scaler, options);
    memory_.update(stream, plan_, options, *chosen);
    log_skip(stream);
    layers_.end_step_as_agreed(stream);
    sharding()->publish(stream);
    touch_weights();
}

} // namespace mp::optim
