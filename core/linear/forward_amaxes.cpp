// SPDX-License-Identifier: Apache-2.0
#include "linear/forward_amaxes.hpp"

#include <algorithm>
#include <cstddef>

#include "quant/quantize.hpp"

namespace mp::linear {
namespace {

float* cleared(Stream& stream, float* cell) {
    stream.zero(cell, sizeof *cell);
    return cell;
}

// Of all forwards and backwards since the last step, as delayed scaling sees it; null where it does not.
float* counted(const ScalingState& state, recipe::Operand operand) {
    return state.tracking(operand, false).amax;
}

} // namespace

void count_codes(Stream& stream, const Tracking& tracking, const Tensor& codes) {
    if (codes.scales() != nullptr && tracking.amax != nullptr) {
        quant::raise_amax(stream, static_cast<const float*>(codes.scales()->amax->data()),
                          tracking.amax);
    }
}

ForwardAmaxes::ForwardAmaxes(Stream& stream, const ScalingState& state) {
    if (state.delayed() != nullptr) {
        cells_ = stream.allocate(sizeof(Cells));
        stream.zero(cells_.data(), cells_.bytes());
    }
}

float* ForwardAmaxes::of_input(Stream& stream, const ScalingState& state, Saved* saved) {
    if (counted(state, recipe::Operand::input) == nullptr) {
        return nullptr;
    }
    note_capture(stream);
    if (saved != nullptr) {
        return cleared(stream, saved->gather(stream, step_));
    }
    float* const cell = &cells()->waiting[next_];
    next_ = (next_ + 1) % kMostWaiting;
    waiting_ = std::min(waiting_ + 1, kMostWaiting);
    return cleared(stream, cell);
}

float* ForwardAmaxes::of_weight(Stream& stream, const ScalingState& state, std::size_t product) {
    if (counted(state, recipe::Operand::weight) == nullptr) {
        return nullptr;
    }
    note_capture(stream);
    weights_[product] = {true, false};
    has_weights_ = true;
    return cleared(stream, &cells()->weights[product]);
}

void ForwardAmaxes::forward_done(Stream& stream, const float* input) {
    weights_[static_cast<std::size_t>(recipe::GemmRole::fprop)].trains = true;
    if (input != nullptr && !has_backward_) {
        quant::raise_amax(stream, input, &cells()->forwards);
        has_forwards_ = true;
    }
}

void ForwardAmaxes::count_weight(Stream& stream, const ScalingState& state, std::size_t product) {
    if (weights_[product].waits) {
        quant::raise_amax(stream, &cells()->weights[product],
                          counted(state, recipe::Operand::weight));
        weights_[product].waits = false;
    }
}

// Without anything kept the newest forward is the one: backwards of a pipeline come in another order, but as many.
void ForwardAmaxes::count(Stream& stream, const ScalingState& state, Saved* saved) {
    has_backward_ = true;
    if (cells_.data() == nullptr) {
        return;
    }
    const float* input = nullptr;
    if (saved != nullptr) {
        input = saved->take_amax(counted_to_);
    } else if (waiting_ > 0) {
        --waiting_;
        next_ = (next_ + kMostWaiting - 1) % kMostWaiting;
        input = &cells()->waiting[next_];
    }
    if (input != nullptr) {
        quant::raise_amax(stream, input, counted(state, recipe::Operand::input));
    }
    for (std::size_t product = 0; product < weights_.size(); ++product) {
        count_weight(stream, state, product);
    }
}

void ForwardAmaxes::settle(Stream& stream, const ScalingState& state, bool counts_forwards) {
    counts_forwards_ = counts_forwards;
    if (!counts_forwards) {
        return;
    }
    note_capture(stream);
    add_forwards(stream, counted(state, recipe::Operand::input),
                 counted(state, recipe::Operand::weight));
    for (Weight& weight : weights_) {
        weight.waits = weight.waits && !weight.trains && !is_in_graphs_;
    }
}

void ForwardAmaxes::add_forwards(Stream& stream, float* input, float* weight) const {
    if (cells_.data() == nullptr) {
        return;
    }
    if (input != nullptr && (has_forwards_ || is_in_graphs_)) {
        quant::raise_amax(stream, &cells()->forwards, input);
    }
    for (std::size_t product = 0; weight != nullptr && product < weights_.size(); ++product) {
        if ((weights_[product].trains && weights_[product].waits) || is_in_graphs_) {
            quant::raise_amax(stream, &cells()->weights[product], weight);
        }
    }
}

void ForwardAmaxes::start_over(Stream& stream, bool forgets_weights) {
    note_capture(stream);
    const bool by_cells = cells_.data() != nullptr && is_in_graphs_;
    if (by_cells || (has_weights_ && forgets_weights)) {
        stream.zero(cells_.data(), offsetof(Cells, waiting));
        weights_ = {};
        has_weights_ = false;
    } else if (has_forwards_) {
        cleared(stream, &cells()->forwards);
    }
    if (counts_forwards_) {
        counted_to_ = step_;
    }
    ++step_;
    for (Weight& weight : weights_) {
        weight.trains = false;
    }
    counts_forwards_ = false;
    has_forwards_ = false;
    has_backward_ = false;
    waiting_ = 0;
}

void ForwardAmaxes::load(Stream& stream, bool has_backward) {
    if (cells_.data() == nullptr) {
        return;
    }
    counts_forwards_ = true; // also for what forwards before have kept
    start_over(stream, true);
    weights_ = {};
    has_backward_ = has_backward;
}

// Rounds to codes that nobody uses, with one scale for all.
void count_unrounded(Stream& stream, const ScalingState& state, recipe::Operand operand,
                     const Tensor& tensor) {
    const DType type = // another than its own: equal codes are taken as they are, uncounted
        tensor.dtype() == DType::fp8_e5m2 ? DType::fp8_e4m3 : DType::fp8_e5m2;
    constexpr auto kRule = numerics::ScaleRule::current;
    const Format format{type, kTensorScale, numerics::scale_policy(kRule, type)};
    if (tensor.count() > 0) {
        const ScratchOperand codes(stream, tensor, format,
                                   sink_by(state.tracking_apart(operand), {}));
    }
}

} // namespace mp::linear
