// SPDX-License-Identifier: Apache-2.0
#include "linear/saved.hpp"

namespace mp::linear {

void Saved::keep(Stream& stream, const std::shared_ptr<Tensor>& x, const Format& format,
                 const Sink& how, bool may_refer) {
    has_input_ = false; // until the new one is complete
    ++generation_;
    if (may_refer && refers_to(*x, format)) {
        borrowed_ = x;
        kept_.release();
    } else {
        borrowed_ = nullptr;
        (void)kept_.fill(stream, *x, format, how);
    }
    rows_ = x->rows();
    has_input_ = true;
}

void Saved::make_room(Stream& stream, const Tensor& x, const Format& format, bool may_refer) {
    kept_.check_room(x, format);
    if (!(may_refer && refers_to(x, format)) && stream.is_captured()) {
        kept_.make_room(stream, format, x.rows(), x.columns());
    }
}

void Saved::drop(int64_t rows) noexcept {
    borrowed_ = nullptr;
    kept_.release();
    rows_ = rows;
    has_input_ = false;
    ++generation_;
}

void Saved::add_to(MemoryRanges& ranges, const Format& format, int64_t columns) const {
    ranges.add("the x of forward", MemoryRanges::Use::read, borrowed_.get());
    if (has_input_ && borrowed_ == nullptr) {
        kept_.add_to(ranges, MemoryRanges::Use::read, format, rows_, columns);
    }
}

void Saved::drop_under(const Tensor& written, const Format& format, int64_t columns) noexcept {
    if (!has_input_ || (borrowed_ == nullptr && !kept_.is_lent())) {
        return; // of the library's own
    }
    const auto at = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
    const uintptr_t lent = at(kept_.lent());
    const bool meets =
        borrowed_ != nullptr
            ? written.overlaps(*borrowed_)
            : at(written.data()) < lent + OperandMemory::bytes_of(format, rows_, columns) &&
                  lent < at(written.data()) + written.bytes();
    if (meets) {
        borrowed_ = nullptr;
        has_input_ = false;
    }
}

void Saved::remember_scale(Stream& stream, const Tracking& tracking) const {
    if (scale_.data() != nullptr && tracking.delayed != nullptr) {
        stream.copy(scale_.data(), tracking.delayed, sizeof *tracking.delayed,
                    CopyKind::device_to_device);
    }
}

Tracking Saved::remembered(const Tracking& tracking) const noexcept {
    const bool is_delayed = tracking.delayed != nullptr;
    return {is_delayed ? scale_.as<numerics::DelayedState>() : nullptr, tracking.warm_up};
}

float* Saved::gather(Stream& stream, int64_t step) {
    if (amax_.data() == nullptr) {
        amax_ = stream.allocate(sizeof(float));
    }
    step_ = step;
    waits_ = true;
    return amax_.as<float>();
}

void Saved::lend(void* memory, std::size_t bytes) noexcept {
    has_input_ = has_input_ && memory != nullptr;
    kept_.lend(memory, bytes);
}

ArrayRef Saved::input(const Stream& stream) {
    return borrowed_ != nullptr ? borrowed_->array() : kept_.array(stream);
}

} // namespace mp::linear
