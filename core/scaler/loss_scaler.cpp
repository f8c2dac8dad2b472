// SPDX-License-Identifier: Apache-2.0
#include "scaler/loss_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "comm/agreement.hpp"
#include "comm/capture.hpp"
#include "recipe/nearest.hpp"
#include "runtime/segments.hpp"
#include "runtime/select.hpp"

namespace mp::scaler {
namespace {

// In each: initial scale, interval, hysteresis; the rest where it differs.
recipe::ScalerPolicy policy(double init_scale, int32_t interval, int32_t hysteresis) {
    recipe::ScalerPolicy policy;
    policy.kind = recipe::ScalerKind::dynamic;
    policy.init_scale = init_scale;
    policy.rule.growth_interval = interval;
    policy.rule.hysteresis = hysteresis;
    return policy;
}

recipe::ScalerPolicy megatron() {
    recipe::ScalerPolicy p = policy(4294967296.0, 1000, 2);
    p.rule.min_scale = 1.0;
    return p;
}

recipe::ScalerPolicy deepspeed() {
    recipe::ScalerPolicy p = policy(65536.0, 1000, 2);
    p.rule.min_scale = 1.0;
    p.rule.error_at_min = 1;
    p.rule.count_offset = 1;
    return p;
}

recipe::ScalerPolicy apex() {
    recipe::ScalerPolicy p = policy(65536.0, 2000, 1);
    p.rule.max_scale = 16777216.0;
    return p;
}

// Normal fp32 numbers whose reciprocals are normal too.
bool is_scale(double x) { return std::isfinite(x) && x >= 1e-30 && x <= 1e30; }

void check_policy(const recipe::ScalerPolicy& p) {
    const numerics::LossScaleRule& r = p.rule;
    const auto need = [](bool holds, const char* what, double value, const char* wanted) {
        if (!holds) {
            fail(Code::invalid_argument, "scaler: %s is %g; it must be %s", what, value, wanted);
        }
    };
    need(is_scale(p.init_scale), "init_scale", p.init_scale, "in 1e-30..1e30");
    need(r.growth_factor > 1.0 && r.growth_factor <= 1e6, "growth_factor", r.growth_factor,
         "in (1, 1e6]");
    need(r.backoff_factor > 0.0 && r.backoff_factor < 1.0, "backoff_factor", r.backoff_factor,
         "in (0, 1)");
    need(r.growth_interval >= 1, "growth_interval", r.growth_interval, "at least 1");
    need(r.hysteresis >= 1, "hysteresis", r.hysteresis, "at least 1");
    need(r.count_offset == 0 || r.count_offset == 1, "count_offset", r.count_offset, "0 or 1");
    need(r.min_scale >= 0.0 && r.min_scale <= p.init_scale, "min_scale", r.min_scale,
         "in 0..init_scale");
    need(r.max_scale == 0.0 || (std::isfinite(r.max_scale) && r.max_scale >= p.init_scale),
         "max_scale", r.max_scale, "0 or at least init_scale");
}

bool is_power_of_two(double value) {
    int exponent = 0;
    return std::frexp(value, &exponent) == 0.5;
}

// Doubled and halved, a power of two stays one.
bool moves_by_powers(const recipe::ScalerPolicy& p) {
    const auto is_bound = [](double bound) { return bound == 0.0 || is_power_of_two(bound); };
    return is_power_of_two(p.init_scale) && is_power_of_two(p.rule.growth_factor) &&
           is_power_of_two(p.rule.backoff_factor) && is_bound(p.rule.min_scale) &&
           is_bound(p.rule.max_scale);
}

} // namespace

recipe::ScalerPolicy scaler_preset(const std::string& name) {
    if (name == "torch") {
        return policy(65536.0, 2000, 1);
    }
    if (name == "megatron") {
        return megatron();
    }
    if (name == "deepspeed") {
        return deepspeed();
    }
    if (name == "apex") {
        return apex();
    }
    fail(Code::unknown_name,
         "there is no scaler preset '%.64s'; there is: torch, megatron, deepspeed, apex",
         name.c_str());
}

LossScaler::LossScaler(std::shared_ptr<Context> context, const recipe::ScalerPolicy& policy)
    : context_(std::move(context)), policy_(policy) {
    check_policy(policy_);
    policy_.rule.is_dynamic = policy_.kind == recipe::ScalerKind::dynamic ? 1 : 0;
    Stream& stream = context_->stream();
    state_ = stream.allocate(sizeof(numerics::LossScaleState));
    numerics::LossScaleState state;
    state.scale = first_scale();
    state.hysteresis_tracker = policy_.rule.hysteresis;
    write(stream, state);
}

numerics::LossScaleState* LossScaler::device_state() const noexcept {
    return checks() ? state_.as<numerics::LossScaleState>() : nullptr;
}

std::string LossScaler::refusal(const numerics::LossScaleState& state) const {
    const numerics::LossScaleRule& rule = policy_.rule;
    const auto largest = static_cast<float>(rule.max_scale);
    const bool is_between = state.scale >= static_cast<float>(rule.min_scale) &&
                            (largest == 0.0F || state.scale <= largest);
    const bool is_dynamic = rule.is_dynamic != 0;
    if (!(state.scale > 0.0F && std::isfinite(state.scale)) || (is_dynamic && !is_between) ||
        (is_dynamic && moves_by_powers(policy_) && !is_power_of_two(state.scale)) ||
        (!is_dynamic && state.scale != first_scale())) {
        char text[96];
        (void)std::snprintf(text, sizeof text,
                            "the loss scale is %g; this scaler cannot come to it",
                            static_cast<double>(state.scale));
        return text;
    }
    if (state.growth_tracker < 0 ||
        state.growth_tracker > rule.growth_interval + rule.count_offset ||
        state.hysteresis_tracker > rule.hysteresis || state.failed_at_min > 1 ||
        state.by_steps > 1 || state.good_steps < 0 || state.overflow_steps < 0) {
        return "the loss scaler's counts are out of the bounds of this scaler";
    }
    return {};
}

numerics::LossScaleState LossScaler::converted(numerics::LossScaleState state) const noexcept {
    if (policy_.rule.is_dynamic == 0) {
        state.scale = first_scale();
        state.growth_tracker = 0;
        state.hysteresis_tracker = policy_.rule.hysteresis;
        state.failed_at_min = 0;
    }
    return state;
}

numerics::LossScaleState LossScaler::read(Stream& stream) const {
    numerics::LossScaleState state;
    stream.copy(&state, state_.data(), sizeof state, CopyKind::device_to_host);
    stream.sync();
    return state;
}

void LossScaler::write(Stream& stream, const numerics::LossScaleState& state) {
    stream.copy(state_.data(), &state, sizeof state, CopyKind::host_to_device);
    stream.sync();
}

void LossScaler::check_finite(Stream& stream, std::span<const TensorRef> grads) {
    if (!checks()) {
        return;
    }
    std::vector<UpdateSegment> segments;
    for (const TensorRef& grad : grads) {
        UpdateSegment segment;
        segment.count = grad.count;
        segment.grad.data = grad.data;
        segment.grad.dtype = grad.dtype;
        segments.push_back(segment);
    }
    const SegmentPlan plan(stream, std::move(segments));
    const Buffer state = stream.allocate(sizeof(numerics::OptimizerState));
    stream.zero(state.data(), state.bytes());
    plan.grad_stats(stream, state.as<numerics::OptimizerState>());
    OptimizerPrepareDesc op{};
    op.kind = OpKind::optimizer_prepare;
    op.state = state.as<numerics::OptimizerState>();
    op.scaler = device_state();
    op.rule.has_stats = 1;
    op.rule.is_check = 1;
    run_op(stream, op); // sets found_inf in the scaler; the rest of the step's decision is dropped
    stream.sync();      // before the plan's memory goes
}

void LossScaler::combine(Stream& stream, comm::Communicator& comm) {
    comm::refuse_capture(stream);
    numerics::LossScaleState mine = read(stream);
    comm::Agreement agreement;
    // By anybody, and by others than steps.
    const uint32_t found[] = {mine.found_inf != 0.0F ? 1U : 0U,
                              numerics::is_found_by_caller(mine) ? 1U : 0U};
    const std::size_t place = agreement.add_maxima(found);
    comm::CallOptions options;
    options.site = "found_inf of a loss scaler";
    check(agreement.reach(comm, options));
    mine.found_inf = agreement.maximum(place) != 0 && checks() ? 1.0F : 0.0F;
    mine.by_steps = mine.found_inf != 0.0F && agreement.maximum(place + 1) == 0 ? 1 : 0;
    stream.copy(&state()->found_inf, &mine.found_inf, sizeof mine.found_inf,
                CopyKind::host_to_device);
    stream.copy(&state()->by_steps, &mine.by_steps, sizeof mine.by_steps, CopyKind::host_to_device);
    stream.sync();
}

bool LossScaler::forgets_update(const void* optimizer) noexcept {
    if (std::find(used_by_.begin(), used_by_.end(), optimizer) == used_by_.end()) {
        const auto place = std::find(used_by_.begin(), used_by_.end(), nullptr);
        if (place != used_by_.end()) {
            *place = optimizer;
        }
        return false;
    }
    return !std::exchange(has_warned_, true);
}

void LossScaler::update(Stream& stream) {
    used_by_.fill(nullptr);
    const bool is_here = stream.device().is_host(); // elsewhere it would have to be waited for
    const float before = is_here ? state()->scale : 0.0F;
    const bool overflow = is_here && state()->found_inf != 0.0F;
    ScalerUpdateDesc op{};
    op.kind = OpKind::scaler_update;
    op.state = state_.as<numerics::LossScaleState>();
    op.rule = policy_.rule;
    run_op(stream, op);
    if (is_here && state()->scale != before) {
        context_->log(LogLevel::info, [&] {
            return "scaler: loss scale " + std::to_string(before) + " -> " +
                   std::to_string(state()->scale) + (overflow ? ": a gradient was not finite" : "");
        });
    }
}

} // namespace mp::scaler
