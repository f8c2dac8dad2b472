// SPDX-License-Identifier: Apache-2.0
// The forward half of Linear.
#include <optional>

#include "linear/checks.hpp"
#include "linear/linear.hpp"

namespace mp::linear {

using recipe::GemmRole;
using recipe::Operand;

namespace {

// What no product of a forward rounds.
void count_unrounded_operands(Stream& stream, const Tensor& x, const WeightOperand& weight,
                              const recipe::LayerPolicy& policy, const ScalingState& scaling,
                              bool keeps_input) {
    const bool is_kept_rounded = keeps_input && is_rounded_to(x, policy.b(GemmRole::wgrad));
    if (!is_rounded_to(x, policy.a(GemmRole::fprop)) && !is_kept_rounded) {
        count_unrounded(stream, scaling, Operand::input, x);
    }
    const Tensor* const codes = weight.given_codes(GemmRole::fprop);
    if (codes != nullptr || !is_rounded_to(weight.tensor(), policy.b(GemmRole::fprop))) {
        count_unrounded(stream, scaling, Operand::weight,
                        codes != nullptr ? *codes : weight.tensor());
    }
}

// Both may be deferred, or sharded and not gathered.
void require_memory(const WeightOperand& weight, const Tensor* bias) {
    weight.require_memory(GemmRole::fprop);
    if (bias != nullptr) {
        bias->require_memory("linear: bias");
    }
}

} // namespace

// Where this forward finds the scale of x, and where what is learned about x goes.
Tracking Linear::track_input(Stream& stream, const Tensor& x, Saved* saved, Keep keep) {
    if (keep == Keep::again) {
        return saved->remembered(scaling_.tracking(Operand::input, options_.with_stats));
    }
    Tracking tracking =
        scaling_.tracking(Operand::input, options_.with_stats && keep != Keep::nothing);
    tracking.amax = amaxes_.of_input(stream, scaling_, saved);
    count_codes(stream, tracking, x);
    if (saved != nullptr) {
        saved->remember_scale(stream, tracking);
    }
    return tracking;
}

Pass Linear::begin_pass(Saved* saved, Keep keep) {
    Passes& passes = scaling_.passes();
    if (keep == Keep::again) {
        return saved->pass();
    }
    if (keep == Keep::nothing || saved == nullptr) { // of a frozen layer that of its next backward
        return {passes.of_forward()};
    }
    return saved->pass() = passes.begin(saved->pass(), saved != &last_);
}

void Linear::add_forward(MemoryRanges& ranges, const Tensor& x, const Saved* saved,
                         Keep keep) const {
    add_own(ranges);
    if (keeps_input(saved, keep)) {
        saved->memory().add_to(ranges, MemoryRanges::Use::written, policy_->b(GemmRole::wgrad),
                               x.rows(), x.columns());
    }
}

void Linear::prepare_forward(Stream& stream, const Tensor& x, const Result& y, Saved* saved,
                             Keep keep) {
    products_.forget_old();
    const Device& device = weight_.tensor().device();
    const int64_t rows = rows_of(x, options_.in_features, device, "x", true);
    const bool drops = dropout_.is_used() && keep != Keep::nothing;
    if (drops || policy_->rounds_stochastically()) {
        refuse_frozen_bits(stream);
    }
    if (drops) {
        check_dtype(x, "x, which dropout is for,");
    }
    if (keep == Keep::again) {
        check_again(saved, x, rows);
    }
    if (y.tensor != nullptr) {
        require_memory(weight_, bias_.get());
        check_rows(x, "x", rows, *y.tensor, "y",
                   rows_of(*y.tensor, options_.out_features, device, "y"));
        (void)products_.plan(GemmRole::fprop, rows, y.tensor->dtype(), y.accumulate, !y.is_bare);
    }
    if (keeps_input(saved, keep)) {
        saved->make_room(stream, x, policy_->b(GemmRole::wgrad), !options_.copy_input);
    }
}

void Linear::forward(Stream& stream, const std::shared_ptr<Tensor>& whole, const Result& y,
                     Saved* saved, Keep keep) {
    const int64_t rows = whole->count() / options_.in_features;
    const uint64_t time = begin_pass(saved, keep).time;
    std::optional<DroppedMatrix> dropped;
    if (dropout_.is_used() && keep != Keep::nothing) {
        dropped.emplace(stream, dropout_, whole->array(), context_, scaling_.passes().seed(), time);
    }
    const std::shared_ptr<Tensor>& x = dropped ? dropped->tensor() : whole;
    const bool keeps = keeps_input(saved, keep);
    const Format& format = policy_->a(GemmRole::fprop);
    const Format& kept = policy_->b(GemmRole::wgrad);
    const Tracking tracking = track_input(stream, *x, saved, keep);
    const auto how_for = [&](GemmRole role) {
        return making(role, Operand::input, tracking, time);
    };
    std::optional<ScratchOperand> x_scratch;
    if (keeps) {
        Sink how = how_for(GemmRole::wgrad);
        if (y.tensor != nullptr && is_read_once(*x, kept, format)) {
            how.second = x_scratch.emplace(stream, format, rows, options_.in_features).array();
        }
        // Numbers in the type that is kept need no copy of what is left of them.
        const bool is_whole = dropped.has_value() && has_format(*whole, kept);
        saved->keep(stream, is_whole ? whole : x, kept, how,
                    !options_.copy_input && (is_whole || !dropped.has_value()));
        saved->set_whole(is_whole);
    } else if (saved != nullptr) {
        saved->drop(rows);
    }
    if (y.tensor == nullptr) {
        return;
    }
    weight_.forget_uncached();
    std::optional<ScratchOperand> w_scratch;
    const bool evaluates = keep == Keep::nothing;
    const bool counts = options_.with_stats && !evaluates && keep != Keep::again;
    if (counts) {
        count_unrounded_operands(stream, *x, weight_, *policy_, scaling_, keeps);
    }
    const ArrayRef w =
        weight_.view(stream, GemmRole::fprop, w_scratch, {scaling_, amaxes_, counts}, evaluates);
    // The copy kept for backward serves as the operand too where both products want the same format.
    const bool shares = keeps && saved->has_input() && kept == format && !saved->is_whole();
    if (!shares && !x_scratch) {
        x_scratch.emplace(stream, *x, format, how_for(GemmRole::fprop));
    }
    const ArrayRef input = shares ? saved->input(stream) : x_scratch->array();
    if (!evaluates && !options_.inference) {
        amaxes_.forward_done(stream, keep == Keep::again ? nullptr : tracking.amax);
    }
    void* const target = y.tensor->data();
    const bool has_bias = bias_ != nullptr && !y.is_bare;
    products_.plan(GemmRole::fprop, rows, y.tensor->dtype(), y.accumulate, !y.is_bare)
        .run(stream, {input.data, w.data, has_bias ? bias_->data() : nullptr,
                      y.accumulate ? target : nullptr, target, input.scale_inv, w.scale_inv});
}

} // namespace mp::linear
