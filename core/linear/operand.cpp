// SPDX-License-Identifier: Apache-2.0
#include "linear/operand.hpp"

#include <algorithm>

#include "dtype/divide.hpp"

namespace mp::linear {
namespace {

// Of scales in lent memory: what any device wants.
constexpr std::size_t kAlignment = 256;

std::size_t place_of_scales(const Format& format, int64_t rows, int64_t columns) {
    const std::size_t codes =
        std::max<std::size_t>(1, quant::bytes_of_codes(format, rows, columns));
    return round_up(codes, kAlignment);
}

// Writes `source` in the format of `to`. Codes of another format go through fp32: one rounding from their values.
void convert(Stream& stream, const Tensor& source, const ArrayRef& to, const Sink& how) {
    const bool is_quantized = to.format.is_quantized();
    if (is_quantized && has_format(source, to.format)) {
        stream.copy(to.data, source.data(), source.bytes(), CopyKind::device_to_device);
        const Tensor& scales = *source.scales()->scale_inv;
        stream.copy(to.scale_inv, scales.data(), scales.bytes(), CopyKind::device_to_device);
        return;
    }
    const bool is_numbers = source.scales() == nullptr && !is_in_blocks(source.dtype());
    if (is_numbers && !is_quantized) {
        cast_tensor(stream, source.ref(), to.elements());
        return;
    }
    if (!is_quantized) {
        quant::dequantize_matrix(stream, source.array(), to.elements());
        return;
    }
    Sink sink = how;
    sink.codes = to;
    std::optional<Scratch>
        amax; // for devices that find it by a kernel of its own: the scale's place has the old one
    if (to.format.policy.rule == numerics::ScaleRule::msamp) {
        sink.codes.amax = static_cast<float*>(amax.emplace(stream, sizeof(float)).data());
    }
    if (is_numbers) {
        quant::quantize_matrix(stream, source.array(), sink);
        return;
    }
    const Scratch values(stream, static_cast<std::size_t>(source.count()) * sizeof(float));
    const TensorRef wide{values.data(), source.count(), DType::fp32};
    quant::dequantize_matrix(stream, source.array(), wide);
    quant::quantize_matrix(stream, plain_array(wide, source.rows(), source.columns()), sink);
}

} // namespace

bool has_format(const Tensor& tensor, const Format& format) noexcept {
    return tensor.dtype() == format.dtype && tensor.format().grid == format.grid;
}

bool is_rounded_to(const Tensor& tensor, const Format& format) noexcept {
    return format.is_quantized() && !has_format(tensor, format);
}

Sink sink_by(const Tracking& tracking, const numerics::Rounding& rounding) noexcept {
    Sink how;
    how.tracking = tracking;
    how.rounding = rounding;
    return how;
}

// A scale for the whole matrix is found by a reading of its own.
bool is_read_once(const Tensor& tensor, const Format& one, const Format& other) noexcept {
    const auto has_blocks = [](const Format& format) {
        return format.is_quantized() && !format.grid.is_one();
    };
    return tensor.scales() == nullptr && has_blocks(one) && has_blocks(other) && one != other;
}

std::size_t OperandMemory::bytes_of(const Format& format, int64_t rows, int64_t columns) {
    return format.is_quantized() ? place_of_scales(format, rows, columns) +
                                       quant::bytes_of_scales(format, rows, columns)
                                 : quant::bytes_of_codes(format, rows, columns);
}

void OperandMemory::drop(KeptBuffer& part) noexcept {
    if (part.is_captured) {
        outgrown_.push_back(std::move(part.buffer)); // array() made room
    }
    part = KeptBuffer();
}

void OperandMemory::release() noexcept {
    drop(codes_);
    drop(scales_);
}

void OperandMemory::grow(KeptBuffer& part, Stream& stream, std::size_t bytes) {
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

ArrayRef OperandMemory::array(const Stream& stream) {
    if (stream.is_captured()) {
        outgrown_.reserve(outgrown_.size() + 2);
        codes_.is_captured = true;
        scales_.is_captured = true;
    }
    return placed();
}

ArrayRef OperandMemory::placed() const noexcept {
    ArrayRef array = {
        codes_.buffer.data(), scales_.buffer.data(), nullptr, format_, rows_, columns_};
    if (is_lent()) {
        array.data = lent_;
        array.scale_inv =
            static_cast<unsigned char*>(lent_) + place_of_scales(format_, rows_, columns_);
    }
    if (!format_.is_quantized()) {
        array.scale_inv = nullptr;
    }
    return array;
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

ArrayRef OperandMemory::place(Stream& stream, const Format& format, int64_t rows, int64_t columns) {
    make_room(stream, format, rows, columns);
    format_ = format;
    rows_ = rows;
    columns_ = columns;
    return array(stream);
}

ArrayRef OperandMemory::fill(Stream& stream, const Tensor& source, const Format& format,
                             const Sink& how) {
    check_room(source, format);
    const ArrayRef target = place(stream, format, source.rows(), source.columns());
    convert(stream, source, target, how);
    return target;
}

ScratchOperand::ScratchOperand(Stream& stream, const Tensor& source, const Format& format,
                               const Sink& how) {
    if (has_format(source, format)) {
        array_ = source.array();
        return;
    }
    take(stream, format, source.rows(), source.columns());
    convert(stream, source, array_, how);
}

ScratchOperand::ScratchOperand(Stream& stream, const Format& format, int64_t rows,
                               int64_t columns) {
    take(stream, format, rows, columns);
}

void ScratchOperand::take(Stream& stream, const Format& format, int64_t rows, int64_t columns) {
    codes_.emplace(stream, quant::bytes_of_codes(format, rows, columns));
    if (format.is_quantized()) {
        scales_.emplace(stream, quant::bytes_of_scales(format, rows, columns));
    }
    array_ = {codes_->data(), scales_ ? scales_->data() : nullptr, nullptr, format, rows, columns};
}

} // namespace mp::linear
