// SPDX-License-Identifier: Apache-2.0
// What values look like between ranks: elements of a wire type, fp8 with its scales before the codes. The format
// says how values are rounded before they leave a rank; what they are added in is the receiver's (comm/sum.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "array/array_ref.hpp"
#include "device/ops.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

// How the codes of a message are scaled; the numbers of MP_COMM_SCALE_*.
enum class WireScale : int32_t {
    none = 0,   // fp32, fp16, bf16: elements as they are
    tensor = 1, // fp8: one fp32 scale for each message
    block = 2,  // fp8: an fp32 scale for each 128 elements
    mx = 3,     // fp8: an E8M0 scale for each 32 elements, as MXFP8
    shared = 4, // fp8: codes alone; all ranks know their scale (shard/shared_bucket.hpp)
};

// Block scales are as fine as they may be. fp32 scales put the largest element on the largest code; powers of two are rounded so
// that none saturates. Shared ones follow the rule msamp, and no others do.
[[nodiscard]] constexpr Format wire_format(DType dtype, WireScale scale = WireScale::none) {
    using numerics::scale_policy;
    using numerics::ScaleRule;
    switch (scale) {
    case WireScale::tensor:
        return {dtype, kTensorScale, scale_policy(ScaleRule::current, dtype)};
    case WireScale::block:
        return {dtype, kRowBlockScales, scale_policy(ScaleRule::current, dtype)};
    case WireScale::mx:
        return {dtype, kMxRowScales, scale_policy(ScaleRule::mx_rceil, dtype)};
    case WireScale::shared:
        return {dtype, kTensorScale, scale_policy(ScaleRule::msamp, dtype)};
    case WireScale::none:
        break;
    }
    return {dtype, {}, {}};
}
[[nodiscard]] constexpr WireScale wire_scale(const Format& format) {
    if (!format.is_quantized()) {
        return WireScale::none;
    }
    if (format.grid == kTensorScale) {
        return format.policy.rule == numerics::ScaleRule::msamp ? WireScale::shared
                                                                : WireScale::tensor;
    }
    return format.grid == kMxRowScales ? WireScale::mx : WireScale::block;
}
[[nodiscard]] constexpr bool is_shared(const Format& format) {
    return wire_scale(format) == WireScale::shared;
}

// "bf16", "fp8_e4m3 with a scale for 128".
std::string wire_text(const Format& format);

// Throws where type and scale do not belong together; `what` begins the message.
void check_wire(const Format& format, const char* what);
void check_rounding(const numerics::Rounding& rounding, const char* what);

// Whether the codes have scales before them.
[[nodiscard]] constexpr bool carries_scales(const Format& format) {
    return format.is_quantized() && !is_shared(format);
}

// Over one row. Exists where a message carries scales.
[[nodiscard]] constexpr ScaleGrid wire_grid(const Format& format) {
    return carries_scales(format) ? format.grid : ScaleGrid{};
}

// Elements that share a scale, and therefore must not be split between ranks where results must not depend on their
// number; 1 where nothing is shared, 0 where the whole message shares one.
[[nodiscard]] constexpr int64_t wire_block(const Format& format) {
    return carries_scales(format) ? wire_grid(format).block_columns : 1;
}

[[nodiscard]] constexpr int64_t wire_scale_bytes(int64_t count, const Format& format) {
    const ScaleGrid grid = wire_grid(format);
    return count == 0 || !carries_scales(format) ? 0
                                                 : grid.count(1, count) * dtype_size(grid.dtype);
}

// Exact: nothing else is sent for so many elements.
[[nodiscard]] constexpr int64_t wire_bytes(int64_t count, const Format& format) {
    return wire_scale_bytes(count, format) + bytes_of(format.dtype, count);
}

struct PackOptions {
    numerics::Rounding rounding; // of the source's first element
    numerics::DelayedState* agreed =
        nullptr; // a scale that all ranks have agreed on; WireScale::tensor
};

// Enqueues: count elements of the source, numbers or codes with one scale, from `first` on, into wire_bytes(count, format)
// bytes. What is not finite stays so: bf16 and fp16 keep it (and overflow to infinity), fp8 makes it a NaN or an infinity, or a
// NaN of its block's scale.
void pack(Stream& stream, const ArrayRef& source, int64_t first, int64_t count,
          const Format& format, void* wire, const PackOptions& options = {});

// Enqueues the way back; the destination is fp32, fp16 or bf16 and is rounded to once. Any bytes are taken.
void unpack(Stream& stream, const void* wire, int64_t count, const Format& format,
            const TensorRef& destination);

// Part of an array.
[[nodiscard]] inline TensorRef slice(const TensorRef& array, int64_t first, int64_t count) {
    return {static_cast<char*>(array.data) + bytes_of(array.dtype, first), count, array.dtype};
}

} // namespace mp::comm
