// SPDX-License-Identifier: Apache-2.0
#include "linear/operand.hpp"

#include <algorithm>

namespace mp::linear {
namespace {

// Of scales in lent memory: what any device wants.
constexpr std::size_t kAlignment = 256;

std::size_t place_of_scales(const Format& format, int64_t rows, int64_t columns) {
    const std::size_t codes =
        std::max<std::size_t>(1, quant::bytes_of_codes(format, rows, columns));
    return (codes + kAlignment - 1) / kAlignment * kAlignment;
}

// Writes `source` in `format`. Codes of another format go through fp32: one rounding from their values.
void convert(Stream& stream, const Tensor& source, const Format& format, void* codes,
             void* scale_inv, const quant::Tracking& tracking) {
    const TensorRef target{codes, source.count(), format.dtype};
    if (format.is_quantized() && has_format(source, format)) {
        stream.copy(codes, source.data(), source.bytes(), CopyKind::device_to_device);
        const Tensor& scales = *source.scales()->scale_inv;
        stream.copy(scale_inv, scales.data(), scales.bytes(), CopyKind::device_to_device);
        return;
    }
    if (source.scales() == nullptr && !format.is_quantized()) {
        cast_tensor(stream, source.ref(), target);
        return;
    }
    if (!format.is_quantized()) {
        quant::dequantize_matrix(stream, source.scaled_ref(), target);
        return;
    }
    quant::QuantOutput output{codes, nullptr, scale_inv, nullptr};
    std::optional<Scratch>
        amax; // for devices that find it by a kernel of its own: the scale's place has the old one
    if (format.policy.rule == numerics::ScaleRule::msamp) {
        output.amax = static_cast<float*>(amax.emplace(stream, sizeof(float)).data());
    }
    if (source.scales() == nullptr) {
        quant::quantize_matrix(stream, source.ref(), source.rows(), source.columns(), format,
                               output, tracking);
        return;
    }
    const auto bytes = static_cast<std::size_t>(source.count()) * sizeof(float);
    const Scratch values(stream, bytes);
    const TensorRef wide{values.data(), source.count(), DType::fp32};
    quant::dequantize_matrix(stream, source.scaled_ref(), wide);
    quant::quantize_matrix(stream, wide, source.rows(), source.columns(), format, output, tracking);
}

} // namespace

bool has_format(const Tensor& tensor, const Format& format) noexcept {
    return tensor.dtype() == format.dtype && tensor.format().grid == format.grid;
}

bool is_rounded_to(const Tensor& tensor, const Format& format) noexcept {
    return format.is_quantized() && !has_format(tensor, format);
}

OperandView view_of(const Tensor& tensor) noexcept {
    return {tensor.data(), tensor.scaled_ref().scale_inv};
}

std::size_t OperandMemory::bytes_of(const Format& format, int64_t rows, int64_t columns) {
    return format.is_quantized() ? place_of_scales(format, rows, columns) +
                                       quant::bytes_of_scales(format, rows, columns)
                                 : quant::bytes_of_codes(format, rows, columns);
}

void OperandMemory::drop(Part& part) noexcept {
    if (part.is_captured) {
        outgrown_.push_back(std::move(part.buffer)); // view() made room
    }
    part = Part();
}

void OperandMemory::release() noexcept {
    drop(codes_);
    drop(scales_);
}

void OperandMemory::grow(Part& part, Stream& stream, std::size_t bytes) {
    if (part.buffer.bytes() < bytes) {
        stream.refuse_capture("linear: an operand needs more memory than any before took");
        drop(part); // first, so that both are never held at once
        part.buffer = stream.allocate(bytes);
    }
}

void OperandMemory::make_room(Stream& stream, const Format& format, int64_t rows, int64_t columns) {
    if (!is_lent()) {
        grow(codes_, stream, quant::bytes_of_codes(format, rows, columns));
        grow(scales_, stream, quant::bytes_of_scales(format, rows, columns));
    }
}

void OperandMemory::lend(void* memory, std::size_t bytes) noexcept {
    if (memory != nullptr) {
        release();
    }
    lent_ = memory;
    lent_bytes_ = bytes;
}

OperandView OperandMemory::view(const Stream& stream) {
    if (stream.is_captured()) {
        outgrown_.reserve(outgrown_.size() + 2);
        codes_.is_captured = true;
        scales_.is_captured = true;
    }
    return place();
}

OperandView OperandMemory::place() const noexcept {
    if (!is_lent()) {
        return {codes_.buffer.data(), scales_.buffer.data()};
    }
    auto* const bytes = static_cast<unsigned char*>(lent_);
    return {bytes, lent_scales_at_ == 0 ? nullptr : bytes + lent_scales_at_};
}

void OperandMemory::add_to(MemoryRanges& ranges, MemoryRanges::Use use, const Format& format,
                           int64_t rows, int64_t columns) const {
    ranges.add("the memory of mp_saved_set_memory, which keeps the x of forward,", use, lent_,
               static_cast<int64_t>(bytes_of(format, rows, columns)));
}

void OperandMemory::check_room(const Tensor& source, const Format& format) const {
    const std::size_t bytes = bytes_of(format, source.rows(), source.columns());
    if (is_lent() && lent_bytes_ < bytes) {
        fail(Code::invalid_argument,
             "linear: x %s in %s takes %zu bytes, but the memory lent for it has %zu; see "
             "mp_linear_get_saved_bytes",
             source.shape().text().c_str(), format_text(format).c_str(), bytes, lent_bytes_);
    }
}

OperandView OperandMemory::fill(Stream& stream, const Tensor& source, const Format& format,
                                const quant::Tracking& tracking) {
    const int64_t rows = source.rows();
    const int64_t columns = source.columns();
    check_room(source, format);
    make_room(stream, format, rows, columns);
    lent_scales_at_ =
        is_lent() && format.is_quantized() ? place_of_scales(format, rows, columns) : 0;
    const OperandView target = view(stream);
    convert(stream, source, format, const_cast<void*>(target.data),
            const_cast<void*>(target.scale_inv), tracking);
    return target;
}

ScratchOperand::ScratchOperand(Stream& stream, const Tensor& source, const Format& format,
                               const quant::Tracking& tracking) {
    if (has_format(source, format)) {
        view_ = view_of(source);
        return;
    }
    codes_.emplace(stream, quant::bytes_of_codes(format, source.rows(), source.columns()));
    if (format.is_quantized()) {
        scales_.emplace(stream, quant::bytes_of_scales(format, source.rows(), source.columns()));
        view_.scale_inv = scales_->data();
    }
    view_.data = codes_->data();
    convert(stream, source, format, codes_->data(), scales_ ? scales_->data() : nullptr, tracking);
}

} // namespace mp::linear
