// SPDX-License-Identifier: Apache-2.0
// The operands of a layer's products: matrices in the format that a product takes.
#pragma once

#include <optional>
#include <vector>

#include "quant/quantize.hpp"
#include "tensor/memory_ranges.hpp"

namespace mp::linear {

// Whether the tensor can be handed to a product as it is.
bool has_format(const Tensor& tensor, const Format& format) noexcept;
// Whether a product rounds it to codes of this format first.
bool is_rounded_to(const Tensor& tensor, const Format& format) noexcept;
// How codes are made that are learned about so, and rounded so.
Sink sink_by(const Tracking& tracking, const numerics::Rounding& rounding) noexcept;
// Whether one operation makes both formats of the tensor.
bool is_read_once(const Tensor& tensor, const Format& one, const Format& other) noexcept;

// Memory for a matrix in some format that outlives the call. Grows, never shrinks; or is lent by the caller. What a captured
// graph has used stays as long as this: a replay uses it again.
class OperandMemory {
  public:
    // Of lent memory: elements, then scales.
    static std::size_t bytes_of(const Format& format, int64_t rows, int64_t columns);

    // What a matrix takes of lent memory; nothing where the memory is the library's.
    void add_to(MemoryRanges& ranges, MemoryRanges::Use use, const Format& format, int64_t rows,
                int64_t columns) const;
    // Throws where lent memory is too small for the matrix.
    void check_room(const Tensor& source, const Format& format) const;
    // So that fill() allocates nothing. Throws in a capture, unless there is room; what is in it is lost where there is not.
    void make_room(Stream& stream, const Format& format, int64_t rows, int64_t columns);
    // `how` says all but the array.
    ArrayRef fill(Stream& stream, const Tensor& source, const Format& format, const Sink& how);
    // Memory alone, for somebody else to write.
    ArrayRef place(Stream& stream, const Format& format, int64_t rows, int64_t columns);
    // For work that is enqueued now.
    [[nodiscard]] ArrayRef array(const Stream& stream);
    // Of the library's memory, but what only graphs still use.
    [[nodiscard]] std::size_t bytes() const noexcept {
        return codes_.buffer.bytes() + scales_.buffer.bytes();
    }
    void release() noexcept;

    // From now on it lies there; what was in it the caller has put there. Null: the library's again.
    void lend(void* memory, std::size_t bytes) noexcept;
    [[nodiscard]] bool is_lent() const noexcept { return lent_ != nullptr; }
    [[nodiscard]] void* lent() const noexcept { return lent_; }
    [[nodiscard]] std::size_t lent_bytes() const noexcept { return lent_bytes_; }

  private:
    struct KeptBuffer {
        Buffer buffer;
        bool is_captured = false;
    };
    void drop(KeptBuffer& part) noexcept;
    void grow(KeptBuffer& part, Stream& stream, std::size_t bytes);
    [[nodiscard]] ArrayRef placed() const noexcept;

    Format format_; // of what was filled last
    int64_t rows_ = 0;
    int64_t columns_ = 0;
    KeptBuffer codes_;
    KeptBuffer scales_;
    std::vector<Buffer> outgrown_; // in use by graphs
    void* lent_ = nullptr;
    std::size_t lent_bytes_ = 0;
};

// The same in scratch memory, for one product; nothing is copied where the tensor is in the format already.
class ScratchOperand {
  public:
    ScratchOperand(Stream& stream, const Tensor& source, const Format& format, const Sink& how);
    // Memory alone, for somebody else to write.
    ScratchOperand(Stream& stream, const Format& format, int64_t rows, int64_t columns);
    [[nodiscard]] const ArrayRef& array() const noexcept { return array_; }

  private:
    void take(Stream& stream, const Format& format, int64_t rows, int64_t columns);

    std::optional<Scratch> codes_;
    std::optional<Scratch> scales_;
    ArrayRef array_;
};

} // namespace mp::linear
