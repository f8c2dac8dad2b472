// SPDX-License-Identifier: Apache-2.0
#include "linear/operand.hpp"

namespace mp::linear {
namespace {

void grow(Buffer& buffer, Stream& stream, std::size_t bytes) {
    if (buffer.bytes() < bytes) {
        buffer = Buffer(); // first, so that both are never held at once
        buffer = Buffer(stream.shared_device(), bytes);
    }
}

// Writes `source` in `form`. Codes of another form go through fp32: one rounding from their values.
void convert(Stream& stream, const Tensor& source, const MatrixForm& form, void* codes,
             void* scale_inv, const quant::Tracking& tracking) {
    const TensorRef target{codes, source.count(), form.dtype};
    if (source.scales() == nullptr && !form.is_quantized()) {
        cast_tensor(stream, source.ref(), target);
        return;
    }
    if (!form.is_quantized()) {
        quant::dequantize_matrix(stream, source.scaled_ref(), target);
        return;
    }
    quant::QuantOutput output{codes, nullptr, scale_inv, nullptr};
    std::optional<Scratch>
        amax; // for devices that find it by a kernel of its own: the scale's place has the old one
    if (form.policy.rule == numerics::ScaleRule::msamp) {
        output.amax = static_cast<float*>(amax.emplace(stream, sizeof(float)).data());
    }
    if (source.scales() == nullptr) {
        quant::quantize_matrix(stream, source.ref(), source.rows(), source.columns(), form, output,
                               tracking);
        return;
    }
    const auto bytes = static_cast<std::size_t>(source.count()) * sizeof(float);
    const Scratch values(stream, bytes);
    const TensorRef wide{values.data(), source.count(), DType::fp32};
    quant::dequantize_matrix(stream, source.scaled_ref(), wide);
    quant::quantize_matrix(stream, wide, source.rows(), source.columns(), form, output, tracking);
}

} // namespace

bool is_in_form(const Tensor& tensor, const MatrixForm& form) noexcept {
    return tensor.dtype() == form.dtype && tensor.form().grid == form.grid;
}

OperandView OperandMemory::fill(Stream& stream, const Tensor& source, const MatrixForm& form,
                                const quant::Tracking& tracking) {
    grow(codes_, stream, quant::bytes_of_codes(form, source.rows(), source.columns()));
    grow(scales_, stream, quant::bytes_of_scales(form, source.rows(), source.columns()));
    convert(stream, source, form, codes_.data(), scales_.data(), tracking);
    return view();
}

ScratchOperand::ScratchOperand(Stream& stream, const Tensor& source, const MatrixForm& form,
                               const quant::Tracking& tracking) {
    if (is_in_form(source, form)) {
        view_ = {source.data(), source.scaled_ref().scale_inv};
        return;
    }
    codes_.emplace(stream, quant::bytes_of_codes(form, source.rows(), source.columns()));
    if (form.is_quantized()) {
        scales_.emplace(stream, quant::bytes_of_scales(form, source.rows(), source.columns()));
        view_.scale_inv = scales_->data();
    }
    view_.data = codes_->data();
    convert(stream, source, form, codes_->data(), scales_ ? scales_->data() : nullptr, tracking);
}

} // namespace mp::linear
