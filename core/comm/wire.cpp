// SPDX-License-Identifier: Apache-2.0
#include "comm/wire.hpp"

#include "numerics/scale_rules.hpp"
#include "quant/quantize.hpp"
#include "runtime/select.hpp"
#include "status/status.hpp"

namespace mp::comm {
namespace {

void pack_cast(Stream& stream, const TensorRef& source, DType to, void* wire,
               const PackOptions& options) {
    const auto bytes = static_cast<std::size_t>(bytes_of(to, source.count));
    if (source.dtype == to) {
        stream.copy(wire, source.data, bytes, CopyKind::device_to_device);
        return;
    }
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = source;
    op.destination = {wire, source.count, to};
    op.rounding = options.rounding;
    run_op(stream, op);
}

void pack_codes(Stream& stream, const TensorRef& source, const Format& format, void* wire,
                const PackOptions& options) {
    Sink sink;
    sink.codes = {static_cast<char*>(wire) + wire_scale_bytes(source.count, format),
                  wire,
                  nullptr,
                  format,
                  1,
                  source.count};
    sink.rounding = options.rounding;
    sink.tracking.delayed = options.agreed;
    quant::quantize_matrix(stream, plain_array(source), sink);
}

} // namespace

std::string wire_text(const Format& format) {
    std::string name = dtype_name(format.dtype);
    switch (wire_scale(format)) {
    case WireScale::tensor:
        return name + " with one scale";
    case WireScale::block:
        return name + " with a scale for 128";
    case WireScale::mx:
        return name + " with an e8m0 scale for 32";
    case WireScale::shared:
        return name + " with a scale that ranks share";
    case WireScale::none:
        break;
    }
    return name;
}

void check_rounding(const numerics::Rounding& rounding, const char* what) {
    if (rounding.first_element < 0) {
        fail(Code::invalid_argument, "%s: first_element is %lld; it must be >= 0", what,
             static_cast<long long>(rounding.first_element));
    }
}

void check_wire(const Format& format, const char* what) {
    const bool is_fp8 = mp::is_fp8(format.dtype);
    if (!is_fp8 && !is_high_precision(format.dtype)) {
        fail(Code::invalid_dtype, "%s: the wire carries fp32, fp16, bf16 or fp8, not %s", what,
             dtype_name(format.dtype));
    }
    if (is_fp8 && !format.is_quantized()) {
        fail(Code::invalid_argument,
             "%s: %s on the wire needs a scale: of the tensor, of blocks of 128, or of 32 (e8m0)",
             what, dtype_name(format.dtype));
    }
    if (is_fp8 && format != wire_format(format.dtype, wire_scale(format))) {
        fail(Code::invalid_argument, "%s: the wire carries no such scales of %s", what,
             dtype_name(format.dtype));
    }
    if (is_shared(format) && format.dtype != DType::fp8_e4m3) {
        fail(Code::invalid_argument, "%s: a scale that ranks share belongs to fp8_e4m3, not to %s",
             what, dtype_name(format.dtype));
    }
    if (!is_fp8 && format.is_quantized()) {
        fail(Code::invalid_argument, "%s: %s on the wire has the range it needs and no scale", what,
             dtype_name(format.dtype));
    }
}

void pack(Stream& stream, const ArrayRef& source, int64_t first, int64_t count,
          const Format& format, void* wire, const PackOptions& options) {
    if (count == 0) {
        return;
    }
    const TensorRef part = slice(source.elements(), first, count);
    if (source.format.is_quantized()) {
        const Scratch values(stream, 4 * static_cast<std::size_t>(count));
        const TensorRef wide = {values.data(), count, DType::fp32};
        quant::dequantize_matrix(stream, scaled_array(part, static_cast<float*>(source.scale_inv)),
                                 wide);
        pack(stream, plain_array(wide), 0, count, format, wire, options);
        return;
    }
    if (!carries_scales(format)) {
        pack_cast(stream, part, format.dtype, wire, options);
    } else {
        pack_codes(stream, part, format, wire, options);
    }
}

void unpack(Stream& stream, const void* wire, int64_t count, const Format& format,
            const TensorRef& destination) {
    if (count == 0) {
        return;
    }
    auto* bytes = static_cast<char*>(const_cast<void*>(wire));
    const TensorRef codes = {bytes + wire_scale_bytes(count, format), count, format.dtype};
    if (!carries_scales(format)) {
        pack_cast(stream, codes, destination.dtype, destination.data, {});
    } else {
        quant::dequantize_matrix(stream, {codes.data, bytes, nullptr, format, 1, count},
                                 destination);
    }
}

} // namespace mp::comm
