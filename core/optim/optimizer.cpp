// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include "comm/capture.hpp"
#include "optim/definition.hpp"
#include "status/guarded.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

int32_t ranks_of(const OptimizerOptions& options) {
    return options.is_sharded() ? options.sharding.comm->size() : 0;
}

// Before anything is made.
OptimizerOptions checked(const recipe::Recipe& recipe, const OptimizerOptions& options) {
    recipe::check_recipe(recipe);
    check_options(options, ranks_of(options));
    return options;
}

} // namespace

LayoutOptions layout_options(const OptimizerOptions& options, bool is_shared) {
    return {is_shared ? options.sharding.stage : -1, options.sharding.wire, options.offload,
            options.offload_grads, options.grads_given};
}

void check_options(const OptimizerOptions& options, int32_t ranks) {
    if (!(options.max_grad_norm >= 0.0 && options.max_grad_norm < 1e30)) {
        fail(Code::invalid_argument,
             "optimizer: max_grad_norm is %g; it must be 0 (no clipping) or a positive number",
             options.max_grad_norm);
    }
    const char* const beside =
        !options.grads_given          ? nullptr
        : ranks > 0                   ? "ranks, which reduce the gradients they have"
        : options.offload             ? "MP_OPTIMIZER_OFFLOAD, which streams those it has"
        : options.check_finite        ? "MP_OPTIMIZER_CHECK_FINITE, which reads all before a step"
        : options.max_grad_norm > 0.0 ? "max_grad_norm, which reads all before a step"
                                      : nullptr;
    if (beside != nullptr) {
        fail(Code::invalid_argument,
             "optimizer: MP_OPTIMIZER_GRADS_GIVEN is not for %s; leave one of them out", beside);
    }
    if (options.offload_grads && !options.offload) {
        fail(Code::invalid_argument,
             "optimizer: MP_OPTIMIZER_OFFLOAD_GRADS is for a step on the host; set "
             "MP_OPTIMIZER_OFFLOAD with it");
    }
    if (ranks > 0) {
        shard::check_sharding(options.sharding, ranks);
        if (options.offload_grads && options.sharding.stage == 0) {
            fail(Code::invalid_argument,
                 "optimizer: MP_OPTIMIZER_OFFLOAD_GRADS is not for stage 0, where every rank's "
                 "device gathers all sums; take stage 1 to 3, or leave it out");
        }
    }
}

Optimizer::Optimizer(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
                     const OptimizerOptions& options)
    : context_(std::move(context)), recipe_(recipe), options_(checked(recipe, options)),
      groups_(recipe, context_->stream().device()),
      parameters_(context_, layout_options(options, options.is_sharded())),
      tables_(context_, groups_, parameters_, options.offload, options.seed),
      layer_passes_(parameters_), grad_scales_(parameters_), calls_(parameters_) {}

Optimizer::~Optimizer() {
    if (parameters_.sharding() != nullptr) {
        parameters_.sharding()->end();
    }
}

void Optimizer::add_to(Relayout& next, int32_t group, const NewParameter& parameter) const {
    groups_.check(group, false);
    const auto check_number = [&](const Tensor* number, const char* name) {
        for (const Tensor* array : {parameter.param.get(), parameter.grad.get()}) {
            if (number != nullptr && array != nullptr && number->overlaps(*array)) {
                fail(Code::invalid_argument,
                     "optimizer: '%s' overlaps the %s tensor in memory; each needs memory of its "
                     "own",
                     parameter.name.c_str(), name);
            }
        }
    };
    check_number(grad_scale_tensor_.get(), "grad_scale");
    for (const auto& lr : groups_.lr_tensors()) {
        check_number(lr.get(), "lr");
    }
    next.add(group, groups_.recipe_of(group, parameter.name), groups_.hyper(group).rule, parameter);
}

int32_t Optimizer::add_parameters(Stream& stream, int32_t group,
                                  const std::function<std::vector<NewParameter>()>& list) {
    const int32_t first = parameters_.count();
    relayout(stream, {"parameters are added", 0, {}}, [&](Relayout& next) {
        for (const NewParameter& parameter : list()) {
            add_to(next, group, parameter);
        }
        return shard::Common{"the number of parameters that are added",
                             static_cast<uint64_t>(parameters_.count() - first),
                             {}};
    });
    return first;
}

void Optimizer::set_frozen(Stream& stream, const std::function<std::span<const int32_t>()>& indices,
                           bool is_frozen) {
    const shard::Common call = {is_frozen ? "parameters are frozen"
                                          : "parameters are trained again",
                                is_frozen ? 1U : 2U,
                                {}};
    relayout(stream, call, [&](Relayout& next) {
        system::Fnv64 hash;
        std::string first = "none";
        for (const int32_t index : indices()) {
            const Parameter& p = parameters_[index];
            first = hash.value() == system::Fnv64().value() ? "the first '" + p.name + "'" : first;
            hash.add(index);
            next.set_frozen(index, groups_.recipe_of(p.group, p.name), is_frozen);
        }
        return shard::Common{"the parameters to freeze or to train", hash.value(), first};
    });
}

// A list that is changed counts from the next step on, whose tables are made again.
void Optimizer::relayout(Stream& stream, const shard::Common& call, const Change& change) {
    Relayout next(parameters_, stream);
    if (sharding() != nullptr) {
        relayout_with_ranks(stream, next, call, change);
    } else {
        tables_.refuse_open();
        (void)change(next);
        next.make_states();
        tables_.room_to_restart(next.switched().size());
    }
    next.keep();
    tables_.restart(next.switched());
    groups_.changes().plan = true;
}

// Three agreements: on what is to change, on what has been made for it, and that all of it is where it belongs.
void Optimizer::relayout_with_ranks(Stream& stream, Relayout& next, const shard::Common& call,
                                    const Change& change) {
    shard::Sharding& ranks = *sharding();
    check(ranks.groups().status());
    shard::Common what = {"what changes", 0, {}};
    Status own = guarded("a change of parameters", [&]() -> Status {
        comm::refuse_capture(stream);
        tables_.refuse_open();
        layer_passes_.refuse_begun();
        ranks.refuse_under_way(stream);
        what = change(next);
        stream.sync();
        return {};
    });
    comm::Agreement first;
    first.must_equal("the call that changes parameters", call.value, call.name.c_str());
    first.must_equal(what.name.c_str(), what.value, what.shown.c_str());
    first.decline(own);
    check(ranks.reach(first));
    const auto added = static_cast<std::size_t>(parameters_.count() - next.first_added());
    if (added == 0 && next.switched().empty()) {
        return; // all of them are so already
    }
    next.fetch();

    std::vector<shard::Common> rows(added);
    uint64_t plan = 0;
    uint64_t values = 0;
    own = guarded("another list of parameters", [&]() -> Status {
        for (std::size_t i = 0; i < added; ++i) {
            rows[i] = common_of(parameters_, next.first_added() + static_cast<int32_t>(i));
        }
        next.cut(sharded_tensors(recipe_, options_.sharding, parameters_));
        plan = ranks.plan().hash();
        values = shard::first_values_hash(stream, ranks.tensors().last(added));
        next.make_states();
        tables_.room_to_restart(next.switched().size());
        return {};
    });
    comm::Agreement second;
    for (const shard::Common& row : rows) {
        second.must_equal(row.name.c_str(), row.value, row.shown.c_str());
    }
    second.must_equal("the shard plan", plan);
    second.must_equal("the initial weights (mp_comm_broadcast makes them equal)", values);
    second.decline(own);
    check(ranks.reach(second));
    next.exchange();
    comm::Agreement third;
    check(ranks.reach(third));
}

void Optimizer::set_max_grad_norm(double max_grad_norm) {
    OptimizerOptions next = options_;
    next.max_grad_norm = max_grad_norm;
    check_options(next, ranks_of(options_));
    options_ = next;
}

void Optimizer::set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr) {
    parameters_.check_number(lr.get(), "lr");
    groups_.set_lr_tensor(group, lr);
}

void Optimizer::set_grad_scale_tensor(const std::shared_ptr<Tensor>& scale) {
    parameters_.check_number(scale.get(), "grad_scale");
    (void)scalar_address(scale.get(), context_->stream().device(), "grad_scale");
    grad_scale_tensor_ = scale;
}

// The agreement's length follows from the layers, so ranks agree on them in a message of fixed length first.
void Optimizer::set_layers(
    const std::function<std::vector<std::shared_ptr<linear::Linear>>()>& list) {
    StepLayers next;
    Status own = guarded("the layers", [&]() -> Status {
        next = StepLayers(context_->stream().device(), list());
        return {};
    });
    linear::Trainer trainer{tables_.seed()};
    if (options_.is_sharded()) {
        trainer.rank = options_.sharding.comm->rank();
        trainer.ranks = options_.sharding.comm->size();
        comm::Agreement agreement;
        agreement.must_equal("the number of layers", next.size());
        agreement.must_equal("the layers' sizes or recipes", next.definition());
        agreement.decline(own);
        own = sharding() != nullptr ? sharding()->reach(agreement)
                                    : agreement.reach(*options_.sharding.comm);
    }
    check(own);
    next.follow(layers_, trainer);
    layers_ = std::move(next);
}

void Optimizer::shard(Stream& stream) {
    if (sharding() != nullptr) {
        check(sharding()->groups().status()); // also where this has failed on a rank
        return;
    }
    if (!options_.is_sharded()) {
        return;
    }
    comm::refuse_capture(stream);
    parameters_.share(std::make_unique<shard::Sharding>(
        context_, stream, options_.sharding, options_.zero_grad, parameters_.lane(),
        sharded_tensors(recipe_, options_.sharding, parameters_),
        definition(recipe_, options_, parameters_)));
    comm::Agreement agreement;
    agreement.decline(guarded("the states", [&]() -> Status {
        parameters_.make_states(stream);
        make_step(nullptr).reserve(stream);
        return {};
    }));
    const Status agreed = sharding()->reach(agreement);
    if (!agreed.ok()) {
        sharding()->groups().abort(agreed);
        check(agreed);
    }
    sharding()->publish(stream);
    stream.sync(); // the caller's weights have been read
    groups_.changes().plan = true;
}

StepOptions Optimizer::step_options() const {
    StepOptions options;
    options.seed = tables_.seed();
    options.max_grad_norm = options_.max_grad_norm;
    options.device_grad_scale =
        scalar_address(grad_scale_tensor_.get(), context_->stream().device(), "grad_scale");
    options.check_finite = options_.check_finite || norm_group_.exists();
    options.zero_grad = options_.zero_grad;
    if (sharding() != nullptr) {
        options.zero_grad = false; // the sums are overwritten, gradients were zeroed when they left
        options.grad_scale = sharding()->divisor();
    }
    if (guard_.is_on()) {
        guard_.add_to(options);
    }
    options.stochastic_param = recipe_.weight_rounding == recipe::RoundingMode::stochastic;
    for (const numerics::GroupHyper& group : groups_.hyper()) {
        const numerics::RuleInfo rule = numerics::rule_info(group.rule);
        for (int k = 0; k < rule.state_count; ++k) {
            options.stochastic_states[k] =
                recipe_.state(rule.states[k]).rounding == recipe::RoundingMode::stochastic;
        }
    }
    return options;
}

namespace {

// A replay of a graph begins with the numbers that the host gave to the step that was captured, and reports none to it.
void check_capture(Stream& stream, const OptimizerOptions& options, const StepGuard& guard,
                   const StepHistory& history) {
    const char* const what =
        options.offload        ? "its states are on the host; make it without MP_OPTIMIZER_OFFLOAD"
        : guard.watches_loss() ? "its guard watches the loss, and would watch this step's again at "
                                 "each replay; watch the gradient norm alone (max_loss_z 0)"
        : history.is_on()      ? "its history waits for what became of the step; end it "
                                 "(mp_optimizer_set_history with 0 steps)"
                               : nullptr;
    if (what != nullptr && stream.is_captured()) {
        fail(Code::bad_state,
             "optimizer: the queue's stream is being captured into a graph, but %s, or take the "
             "step outside of the capture",
             what);
    }
}

} // namespace

OpenStep Optimizer::make_step(scaler::LossScaler* scaler) {
    const StepOf of = {*context_, options_, groups_, parameters_,   tables_,      norm_group_,
                       guard_,    history_, layers_, layer_passes_, grad_scales_, calls_};
    return OpenStep(of, scaler, step_options());
}

std::shared_ptr<OpenStep> Optimizer::begin_step(Stream& stream, scaler::LossScaler* scaler) {
    tables_.refuse_open();
    std::shared_ptr<OpenStep> step(new OpenStep(make_step(scaler)));
    step->begin(stream);
    tables_.set_open(step);
    return step;
}

void Optimizer::step(Stream& stream, scaler::LossScaler* scaler) {
    if (options_.is_sharded() || norm_group_.exists()) {
        comm::refuse_capture(stream);
    }
    check_capture(stream, options_, guard_, history_);
    shard(stream);
    make_step(scaler).run(stream);
}

} // namespace mp::optim
