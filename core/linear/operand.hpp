// SPDX-License-Identifier: Apache-2.0
// The operands of a layer's products: matrices in the form that a product takes.
#pragma once

#include <optional>

#include "quant/quantize.hpp"
#include "tensor/memory_ranges.hpp"

namespace mp::linear {

// Where a product finds an operand.
struct OperandView {
    const void* data = nullptr;
    const void* scale_inv = nullptr; // null unless quantized
};

// Whether the tensor can be handed to a product as it is.
bool is_in_form(const Tensor& tensor, const MatrixForm& form) noexcept;
// Whether a product rounds it to codes of this form first.
bool is_rounded_to(const Tensor& tensor, const MatrixForm& form) noexcept;
OperandView view_of(const Tensor& tensor) noexcept;

// Memory for a matrix in some form that outlives the call. Grows, never shrinks; or is lent by the caller.
class OperandMemory {
  public:
    // Of lent memory: elements, then scales.
    static std::size_t bytes_of(const MatrixForm& form, int64_t rows, int64_t columns);

    // What a matrix takes of lent memory; nothing where the memory is the library's.
    void add_to(MemoryRanges& ranges, MemoryRanges::Use use, const MatrixForm& form, int64_t rows,
                int64_t columns) const;
    // Throws where lent memory is too small for the matrix.
    void check_room(const Tensor& source, const MatrixForm& form) const;
    OperandView fill(Stream& stream, const Tensor& source, const MatrixForm& form,
                     const quant::Tracking& tracking);
    [[nodiscard]] OperandView view() const noexcept;
    // Of the library's memory.
    [[nodiscard]] std::size_t bytes() const noexcept { return codes_.bytes() + scales_.bytes(); }
    void release() noexcept {
        codes_ = Buffer();
        scales_ = Buffer();
    }

    // From now on it lies there; what was in it the caller has put there. Null: the library's again.
    void lend(void* memory, std::size_t bytes) noexcept;
    [[nodiscard]] bool is_lent() const noexcept { return lent_ != nullptr; }
    [[nodiscard]] void* lent() const noexcept { return lent_; }
    [[nodiscard]] std::size_t lent_bytes() const noexcept { return lent_bytes_; }

  private:
    Buffer codes_;
    Buffer scales_;
    void* lent_ = nullptr;
    std::size_t lent_bytes_ = 0;
    std::size_t lent_scales_at_ = 0; // 0: there are none
};

// The same in scratch memory, for one product; nothing is copied where the tensor is in the form already.
class ScratchOperand {
  public:
    ScratchOperand(Stream& stream, const Tensor& source, const MatrixForm& form,
                   const quant::Tracking& tracking);
    [[nodiscard]] const OperandView& view() const noexcept { return view_; }

  private:
    std::optional<Scratch> codes_;
    std::optional<Scratch> scales_;
    OperandView view_;
};

} // namespace mp::linear
