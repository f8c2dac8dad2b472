// SPDX-License-Identifier: Apache-2.0
#include "linear/weight_operand.hpp"

#include <utility>

#include "linear/checks.hpp"

namespace mp::linear {
namespace {

using recipe::GemmRole;

Tracking track(Stream& stream, const Counting& counting, std::size_t product, bool with_stats) {
    Tracking tracking = counting.scaling.tracking(recipe::Operand::weight, with_stats);
    tracking.amax = counting.amaxes.of_weight(stream, counting.scaling, product);
    return tracking;
}

} // namespace

void WeightOperand::set_codes(std::array<std::shared_ptr<Tensor>, 2> codes) {
    for (const GemmRole role : {GemmRole::fprop, GemmRole::dgrad}) {
        const Tensor* const tensor = codes[static_cast<std::size_t>(role)].get();
        if (tensor != nullptr) {
            check_codes(*tensor, policy_->b(role), weight_->device(), recipe::role_name(role));
            check_shape_is(*tensor, weight_->shape(), recipe::role_name(role));
        }
    }
    codes_ = std::move(codes);
}

const Tensor* WeightOperand::given_codes(GemmRole role) const noexcept {
    const Tensor* const own = codes_[static_cast<std::size_t>(role)].get();
    const bool shares = policy_->b(role) == policy_->b(GemmRole::fprop);
    return own == nullptr && shares ? codes_[0].get() : own;
}

void WeightOperand::require_memory(GemmRole role) const {
    weight_->require_memory("linear: weight");
    if (const Tensor* const codes = given_codes(role); codes != nullptr) {
        codes->require_memory("linear: the codes of its weight");
    }
}

void WeightOperand::add_to(MemoryRanges& ranges) const {
    ranges.add("the weight", MemoryRanges::Use::read, weight_.get());
    for (const auto& codes : codes_) {
        ranges.add("the weight's codes", MemoryRanges::Use::read, codes.get());
    }
}

bool WeightOperand::keeps(const Format& format) const noexcept {
    return options_.is_cached || options_.is_frozen ||
           (format.is_quantized() && policy_->recipe().fp8.weight_copy == recipe::WeightCopy::keep);
}

void WeightOperand::forget() noexcept {
    for (Copy& copy : copies_) {
        copy.is_valid = false;
    }
}

// Those of a weight that was written since, or that has come back in other memory.
void WeightOperand::forget_old() {
    const TensorScales* const scales = weight_->scales();
    const bool has_moved = watches_.empty() || watches_.front().data() != weight_->data() ||
                           (scales != nullptr && watches_[1].data() != scales->scale_inv->data());
    if (has_moved) {
        forget();
        std::vector<MemoryWatch> watches;
        watches.emplace_back(weight_->data(), weight_->bytes());
        if (scales != nullptr) {
            watches.emplace_back(scales->scale_inv->data(), scales->scale_inv->bytes());
            watches.emplace_back(scales->amax->data(), scales->amax->bytes());
        }
        watches_ = std::move(watches);
        writes_ = 0;
    }
    uint64_t writes = 0;
    bool may_change_unseen = false;
    for (const MemoryWatch& watch : watches_) {
        writes += watch.writes();
        may_change_unseen = may_change_unseen || watch.is_written_by_graphs();
    }
    if (writes != writes_ || may_change_unseen) {
        forget();
        writes_ = writes;
    }
}

ArrayRef WeightOperand::view(Stream& stream, GemmRole role, std::optional<ScratchOperand>& scratch,
                             const Counting& counting, bool evaluates) {
    const auto product = static_cast<std::size_t>(role);
    if (const Tensor* const codes = given_codes(role); codes != nullptr) {
        count_codes(stream, track(stream, counting, product, false), *codes);
        return codes->array();
    }
    const Format& format = policy_->b(role);
    const Passes& passes = counting.scaling.passes();
    // One that is rounded once is rounded as at the begin, also after a checkpoint.
    const numerics::Rounding rounding =
        passes.at(policy_->resolve(role, recipe::Operand::weight).rounding,
                  options_.is_frozen ? 0 : passes.of_weight());
    const auto how = [&](std::size_t place) {
        return sink_by(track(stream, counting, place, counting.with_stats), rounding);
    };
    if (has_format(*weight_, format) || !keeps(format)) {
        return scratch.emplace(stream, *weight_, format, how(product)).array();
    }
    forget_old();
    const bool shares = format == policy_->b(GemmRole::fprop);
    const std::size_t place = shares ? 0 : 1;
    Copy& copy = copies_[place];
    // What a graph reads it must have made itself, unless the weight never changes; what a graph makes is not there yet.
    const uint64_t capture = stream.capture();
    const bool serves =
        copy.is_valid && (copy.capture == capture || (options_.is_frozen && copy.capture == 0));
    if (!serves || (copy.is_uncounted && counting.with_stats)) {
        const std::size_t before = copy.memory.bytes();
        (void)copy.memory.fill(stream, *weight_, format, how(place));
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

std::string WeightOperand::describe() const {
    std::string text;
    for (const GemmRole role : {GemmRole::fprop, GemmRole::dgrad}) {
        const Format& format = policy_->b(role);
        if (has_format(*weight_, format) ||
            (role == GemmRole::dgrad && format == policy_->b(GemmRole::fprop))) {
            continue;
        }
        const std::size_t bytes = copies_[static_cast<std::size_t>(role)].memory.bytes();
        text += ", rounded to " + format_text(format) + " for " + recipe::role_name(role);
        text += keeps(format) ? ", kept (" + std::to_string(bytes) + " bytes)"
                              : std::string(" at each use, nothing kept");
    }
    return text;
}

} // namespace mp::linear
