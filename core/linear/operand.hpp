// SPDX-License-Identifier: Apache-2.0
// The operands of a layer's products: matrices in the form that a product takes.
#pragma once

#include <optional>

#include "quant/quantize.hpp"

namespace mp::linear {

// Where a product finds an operand.
struct OperandView {
    const void* data = nullptr;
    const void* scale_inv = nullptr; // null unless quantized
};

// Whether the tensor can be handed to a product as it is.
bool is_in_form(const Tensor& tensor, const MatrixForm& form) noexcept;

// Memory for a matrix in some form that outlives the call; grows, never shrinks.
class OperandMemory {
  public:
    OperandView fill(Stream& stream, const Tensor& source, const MatrixForm& form,
                     const quant::Tracking& tracking);
    [[nodiscard]] OperandView view() const noexcept { return {codes_.data(), scales_.data()}; }
    [[nodiscard]] std::size_t bytes() const noexcept { return codes_.bytes() + scales_.bytes(); }
    void release() { *this = OperandMemory(); }

  private:
    Buffer codes_;
    Buffer scales_;
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
