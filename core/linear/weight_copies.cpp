// SPDX-License-Identifier: Apache-2.0
// The weight as Linear's products read it: its own elements, codes of the caller's, or a copy that is kept.
#include <optional>
#include <utility>

#include "linear/linear.hpp"

namespace mp::linear {

bool Linear::keeps_weight(const Format& format) const noexcept {
    return options_.cache_weight || options_.frozen ||
           (format.is_quantized() && recipe_.fp8.weight_copy == recipe::WeightCopy::keep);
}

void Linear::forget_weight_copies() noexcept {
    for (WeightCopy& copy : weight_copies_) {
        copy.is_valid = false;
    }
}

// Those of a weight that was written since, or that has come back in other memory.
void Linear::forget_old_weight_copies() {
    if (weight_watches_.empty() || weight_watches_.front().data() != weight_->data()) {
        forget_weight_copies();
        std::vector<MemoryWatch> watches;
        watches.emplace_back(weight_->data(), weight_->bytes());
        if (const TensorScales* scales = weight_->scales(); scales != nullptr) {
            watches.emplace_back(scales->scale_inv->data(), scales->scale_inv->bytes());
            watches.emplace_back(scales->amax->data(), scales->amax->bytes());
        }
        weight_watches_ = std::move(watches);
        weight_writes_ = 0;
    }
    uint64_t writes = 0;
    bool may_change_unseen = false;
    for (const MemoryWatch& watch : weight_watches_) {
        writes += watch.writes();
        may_change_unseen = may_change_unseen || watch.is_written_by_graphs();
    }
    if (writes != weight_writes_ || may_change_unseen) {
        forget_weight_copies();
        weight_writes_ = writes;
    }
}

const Tensor* Linear::given_codes(recipe::GemmRole role) const noexcept {
    const Tensor* const own = weight_codes_[static_cast<std::size_t>(role)].get();
    const bool shares = formats(role).b == formats(recipe::GemmRole::fprop).b;
    return own == nullptr && shares ? weight_codes_[0].get() : own;
}

Tracking Linear::track_weight(Stream& stream, std::size_t product, bool with_stats) {
    Tracking tracking = scaling_.tracking(recipe::Operand::weight, with_stats);
    tracking.amax = amaxes_.of_weight(stream, scaling_, product);
    return tracking;
}

ArrayRef Linear::weight_view(Stream& stream, recipe::GemmRole role,
                             std::optional<ScratchOperand>& scratch, bool with_stats,
                             bool evaluates) {
    const auto product = static_cast<std::size_t>(role);
    if (const Tensor* const codes = given_codes(role); codes != nullptr) {
        count_codes(stream, track_weight(stream, product, false), *codes);
        return codes->array();
    }
    const Format& format = formats(role).b;
    if (has_format(*weight_, format) || !keeps_weight(format)) {
        return scratch.emplace(stream, *weight_, format, track_weight(stream, product, with_stats))
            .array();
    }
    forget_old_weight_copies();
    const bool shares = format == formats(recipe::GemmRole::fprop).b;
    const std::size_t place = shares ? 0 : 1;
    WeightCopy& copy = weight_copies_[place];
    // What a graph reads it must have made itself, unless the weight never changes; what a graph makes is not there yet.
    const uint64_t capture = stream.capture();
    const bool serves =
        copy.is_valid && (copy.capture == capture || (options_.frozen && copy.capture == 0));
    if (!serves || (copy.is_uncounted && with_stats)) {
        const std::size_t before = copy.memory.bytes();
        (void)copy.memory.fill(stream, *weight_, format, track_weight(stream, place, with_stats));
        copy.is_valid = true;
        copy.capture = capture;
        copy.is_uncounted = evaluates;
        if (copy.memory.bytes() != before) {
            context_->log(LogLevel::debug, [&] {
                return "linear: keeps its weight as " + format_text(format) + ", " +
                       std::to_string(copy.memory.bytes()) + " bytes";
            });
        }
    }
    return copy.memory.array(stream);
}

} // namespace mp::linear
