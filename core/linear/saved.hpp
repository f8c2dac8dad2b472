// SPDX-License-Identifier: Apache-2.0
// Saved: what one forward of a layer keeps for its backward: the input in the format of the weight gradient, and under
// delayed scaling the scale that it was quantized by.
#pragma once

#include <memory>
#include <utility>

#include "linear/operand.hpp"
#include "linear/passes.hpp"
#include "tensor/tensor.hpp"

namespace mp::linear {

class Saved {
  public:
    Saved() = default;
    // One whose input can be rebuilt: it remembers the scale too.
    explicit Saved(Stream& stream) : scale_(stream.allocate(sizeof(numerics::DelayedState))) {}

    // Keeps x: the caller's own tensor where it has the format already and may be referred to, else a copy. Memory that was
    // lent always gets one. `how` says all but the array.
    void keep(Stream& stream, const std::shared_ptr<Tensor>& x, const Format& format,
              const Sink& how, bool may_refer);
    // x goes, or is not kept at all; its rows stay known.
    void drop(int64_t rows) noexcept;

    // Remembers how x is about to be scaled. Nothing without delayed scaling, where x alone decides.
    void remember_scale(Stream& stream, const Tracking& tracking) const;
    // The same scale once more; counts nothing in the layer.
    [[nodiscard]] Tracking remembered(const Tracking& tracking) const noexcept;

    // Of the forward; -1 before one.
    [[nodiscard]] int64_t rows() const noexcept { return rows_; }
    [[nodiscard]] bool has_input() const noexcept { return has_input_; }
    [[nodiscard]] bool borrows() const noexcept { return borrowed_ != nullptr; }
    // The caller's memory in which x, [rows, columns] in this format, is kept.
    void add_to(MemoryRanges& ranges, const Format& format, int64_t columns) const;
    // This is about to be written: x goes where it is kept in the same memory.
    void drop_under(const Tensor& written, const Format& format, int64_t columns) noexcept;
    // For work that is enqueued now.
    [[nodiscard]] ArrayRef input(const Stream& stream);
    // Before a forward that keeps x changes anything.
    void make_room(Stream& stream, const Tensor& x, const Format& format, bool may_refer);
    // Where the amax of x gathers from this forward on, in the layer's so many-th step.
    [[nodiscard]] float* gather(Stream& stream, int64_t step);
    // For its backward, once. Null: it has counted already, as all forwards of steps up to this one have.
    [[nodiscard]] const float* take_amax(int64_t counted_to) noexcept {
        return std::exchange(waits_, false) && step_ > counted_to ? amax_.as<float>() : nullptr;
    }

    // x is kept as it was, and what the forward dropped of it goes again in backward.
    [[nodiscard]] bool is_whole() const noexcept { return is_whole_; }
    void set_whole(bool is_whole) noexcept { is_whole_ = is_whole; }

    // Of the newest forward.
    [[nodiscard]] Pass& pass() noexcept { return pass_; }

    // Changes with what is kept.
    [[nodiscard]] uint64_t generation() const noexcept { return generation_; }

    // From now on x lies there, where it is kept already and in memory that is lent: null, and it is dropped.
    void lend(void* memory, std::size_t bytes) noexcept;
    [[nodiscard]] const OperandMemory& memory() const noexcept { return kept_; }

  private:
    [[nodiscard]] bool refers_to(const Tensor& x, const Format& format) const noexcept {
        return has_format(x, format) && !kept_.is_lent();
    }

    std::shared_ptr<Tensor> borrowed_;
    OperandMemory kept_;
    Buffer scale_; // a DelayedState, as the layer's was
    Buffer amax_;  // of x, one fp32 number; from the first forward under delayed scaling on
    Pass pass_;
    int64_t step_ = 0;
    bool waits_ = false;
    int64_t rows_ = -1;
    bool has_input_ = false;
    bool is_whole_ = false;
    uint64_t generation_ = 0;
};

} // namespace mp::linear
