// SPDX-License-Identifier: Apache-2.0
// The part of Optimizer that knows of other ranks: the cut, and the step's phases.
//   reduce   gradients are summed by their owners; a failure leaves no trace
//   agreement     the only agreement: after it nothing can fail until all slices are written
//   apply    each rank updates its own slices, and its layers' scales
//   publish  every rank gets the new weights; repeatable from the owners' slices
#include <algorithm>
#include <cstring>
#include <limits>

#include "comm/capture.hpp"
#include "numerics/bits.hpp"
#include "optim/optimizer.hpp"
#include "recipe/keys.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

void add_number(system::Fnv64& hash, double x) { hash.add(numerics::bits_from_double(x)); }

uint64_t hash_of(const numerics::GroupHyper& hyper) {
    system::Fnv64 hash;
    for (const numerics::HyperName& known : numerics::kHyperNames) {
        add_number(hash, hyper.*known.value);
    }
    hash.add(static_cast<int64_t>(hyper.rule));
    for (const bool flag : {hyper.maximize, hyper.bias_correction, hyper.enabled}) {
        hash.add(flag ? 1 : 0);
    }
    return hash.value();
}

// Every key of the recipe and every option, by the names that a caller knows.
std::vector<shard::Common> settings_of(const recipe::Recipe& recipe,
                                       const OptimizerOptions& options) {
    std::vector<shard::Common> settings;
    for (const recipe::Key& key : recipe::recipe_keys()) {
        system::Fnv64 hash;
        std::string text = recipe::key_text(recipe, key);
        hash.add(text);
        settings.push_back({"the recipe's " + std::string(key.name), hash.value(), text});
    }
    const shard::ShardingOptions& s = options.sharding;
    const auto add = [&](const char* name, auto value) {
        settings.push_back({name, static_cast<uint64_t>(static_cast<int64_t>(value)), {}});
    };
    add("sharding.stage", s.stage);
    add("sharding.kind", s.kind);
    add("sharding.bucket_elements", s.bucket_elements);
    settings.push_back({"sharding.wire_dtype or its scale",
                        static_cast<uint64_t>(shard::bucket_kind(s.wire)),
                        comm::wire_text(s.wire)});
    add("sharding.order", s.order);
    add("sharding.slots", s.slots);
    add("sharding.shard_ranks", s.shard_ranks);
    add("sharding.node_ranks", s.node_ranks);
    add("sharding.check_every", s.check_every);
    add("MP_SHARDING_SUM_GRADIENTS", s.sum_gradients);
    add("MP_OPTIMIZER_CHECK_FINITE", options.check_finite);
    add("MP_OPTIMIZER_ZERO_GRAD", options.zero_grad);
    add("the optimizer's seed", options.seed);
    settings.push_back({"the optimizer's max_grad_norm",
                        numerics::bits_from_double(options.max_grad_norm),
                        std::to_string(options.max_grad_norm)});
    return settings;
}

uint64_t hash_of(const Parameter& p) {
    system::Fnv64 hash;
    hash.add(p.name);
    hash.add(p.group);
    for (const FormatId format : p.formats.states) {
        hash.add(static_cast<int64_t>(format));
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
    shard::Definition definition{settings_of(recipe, options), {}};
    for (const Parameter& p : parameters) {
        definition.parameters.push_back(
            {"parameter " + std::to_string(definition.parameters.size()) +
                 "'s name, shape, types or group",
             hash_of(p),
             p.name + ": " + p.param->shape().text() + " " + dtype_name(p.param->dtype()) +
                 ", gradient " + dtype_name(p.grad->dtype()) + ", group " +
                 std::to_string(p.group)});
    }
    return definition;
}

std::vector<shard::ShardedTensor> sharded_tensors(const recipe::Recipe& recipe,
                                                  const shard::ShardingOptions& options,
                                                  const Parameters& parameters) {
    std::vector<shard::ShardedTensor> tensors;
    for (const Parameter& p : parameters) {
        const bool has_scales =
            (p.param->scales() != nullptr && !p.is_codes) || is_scaled(p.formats.master) ||
            std::any_of(std::begin(p.formats.states), std::end(p.formats.states),
                        [](FormatId f) { return is_scaled(f); });
        if (has_scales && options.stage > 0 && options.kind != shard::ShardKind::greedy) {
            fail(Code::unsupported,
                 "optimizer: '%s' has states with one scale for the tensor, which ranks cannot "
                 "share; use the greedy plan, or stage 0",
                 p.name.c_str());
        }
        tensors.push_back({p.param, p.grad,
                           gather_dtype(recipe, p.weight, p.param->shape().ndim < 2),
                           reduce_wire(options.wire, recipe, p.formats),
                           p.is_codes ? dtype_of(recipe.weight) : DType::none, p.init_fp32});
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
             "optimizer: the recipe's weight.gather.codes is on, but no parameter is a tensor of "
             "fp8 "
             "codes with one scale, so nothing would be gathered as fp8; make the weights of fp8 "
             "layers with mp_recipe_create_weight_codes, or set the key to off");
    }
}

void Optimizer::shard(Stream& stream) {
    if (!is_sharded() || sharding() != nullptr) {
        return;
    }
    comm::refuse_capture(stream);
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
        sharding()->groups().abort(agreed);
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
    agreement.must_equal("the number of steps", static_cast<uint64_t>(calls_));
    agreement.must_equal("the number of groups", groups_.hyper().size());
    std::vector<TextLine<120>> shown(groups_.hyper().size());
    for (std::size_t g = 0; g < shown.size(); ++g) {
        const numerics::GroupHyper& group = groups_.hyper()[g];
        shown[g].set("group %zu: lr %g, betas %g %g, eps %g, weight_decay %g%s", g, group.lr,
                     group.beta1, group.beta2, group.eps, group.weight_decay,
                     group.enabled ? "" : ", off");
        agreement.must_equal("a group's lr, betas, eps, weight_decay, rule or switches",
                             hash_of(group), shown[g].c_str());
    }
    TextLine<32> norm;
    norm.set("%g", options_.max_grad_norm);
    agreement.must_equal("max_grad_norm", numerics::bits_from_double(options_.max_grad_norm),
                         norm.c_str());
    TextLine<120> guard;
    guard.set("window %d, max_grad_norm_z %g, max_loss_z %g, loss %.17g", guard_.options().window,
              guard_.options().max_grad_norm_z, guard_.options().max_loss_z,
              guard_.loss().value_or(std::numeric_limits<double>::quiet_NaN()));
    agreement.must_equal("the guard, or the loss that it watches", guard_.hash(), guard.c_str());
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
    bool is_summed = false;   // the ranks that share the parameters have this one's sums,
    bool is_measured = false; // those with other parameters its sum
    const ChunkSumExchange exchange = [&](const std::vector<double>& sums) {
        is_summed = true;
        const std::vector<double> all = sharding()->all_sums(sums, enabled);
        if (!norm_group_.exists()) {
            return all;
        }
        is_measured = true;
        return norm_group_.sums(all, elsewhere, guard_.hash());
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
        guard_.check_loss();
        refresh(stream);
        weights = sharding()->weights_hash(stream, calls_);
        layers_.read_amaxes(stream);
        chosen = &memory_.choose(stream, plan_, options);
        memory_.measure(stream, plan_, scaler, options);
    } catch (const Error& error) {
        own = error.status();
        if (!sharding()->groups().status().ok()) {
            sharding()->groups().abort(own); // other groups would wait for this rank's agreement
        } else if (needs_stats(options, scaler)) {
            // The others wait for these sums before the agreement, in which they learn the reason.
            if (!is_summed) {
                (void)sharding()->all_sums(sharding()->no_sums(enabled), enabled);
            }
            if (norm_group_.exists() && !is_measured) {
                try {
                    (void)norm_group_.sums({}, elsewhere, guard_.hash());
                } catch (const Error&) { // the agreement below is still waited for
                }
            }
        }
    }
    agree(stream, scaler, weights, own);
    ++calls_;
    memory_.prepare(stream, scaler, options);
    memory_.update(stream, plan_, options, *chosen);
    remember_step(stream, scaler);
    layers_.end_step_as_agreed(stream);
    sharding()->publish(stream);
}

} // namespace mp::optim
