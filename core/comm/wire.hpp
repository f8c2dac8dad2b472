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

enum class WireScale : int32_t {
    none = 0,   // fp32, fp16, bf16: elements as they are
    tensor = 1, // fp8: one fp32 scale for each message
    block = 2,  // fp8: an fp32 scale for each 128 elements
    mx = 3,     // fp8: an E8M0 scale for each 32 elements, as MXFP8
    shared = 4, // fp8: codes alone; all ranks know their scale (shard/shared_bucket.hpp)
};

struct WireFormat {
    DType dtype = DType::bf16;
    WireScale scale = WireScale::none;

    constexpr bool operator==(const WireFormat&) const = default;
};

// "bf16", "fp8_e4m3 with a scale for 128".
std::string wire_text(const WireFormat& format);

// Throws where type and scale do not belong together; `what` begins the message.
void check_wire(const WireFormat& format, const char* what);
void check_rounding(const numerics::Rounding& rounding, const char* what);

// Whether the codes have scales before them.
[[nodiscard]] constexpr bool carries_scales(const WireFormat& format) {
    return format.scale != WireScale::none && format.scale != WireScale::shared;
}

// Over one row. Exists where a message carries scales.
[[nodiscard]] constexpr ScaleGrid wire_grid(const WireFormat& format) {
    switch (format.scale) {
    case WireScale::tensor:
        return kTensorScale;
    case WireScale::block:
        return kRowBlockScales;
    case WireScale::mx:
        return kMxRowScales;
    case WireScale::none:
    case WireScale::shared:
        break;
    }
    return {};
}

// Elements that share a scale, and therefore must not be split between ranks where results must not depend on their
// number; 1 where nothing is shared, 0 where the whole message shares one.
[[nodiscard]] constexpr int64_t wire_block(const WireFormat& format) {
    return carries_scales(format) ? wire_grid(format).block_columns : 1;
}

[[nodiscard]] constexpr int64_t wire_scale_bytes(int64_t count, const WireFormat& format) {
    const ScaleGrid grid = wire_grid(format);
    return count == 0 || !carries_scales(format) ? 0
                                                 : grid.count(1, count) * dtype_size(grid.dtype);
}

// Exact: nothing else is sent for so many elements.
[[nodiscard]] constexpr int64_t wire_bytes(int64_t count, const WireFormat& format) {
    return wire_scale_bytes(count, format) + bytes_of(format.dtype, count);
}

struct PackOptions {
    numerics::Rounding rounding; // of the source's first element
    numerics::DelayedSlot* slot =
        nullptr; // a scale that all ranks have agreed on; WireScale::tensor
};

// Enqueues: count elements of the source, numbers or codes with one scale, from `first` on, into wire_bytes(count, format) bytes. What is not finite stays
// so: bf16 and fp16 keep it (and overflow to infinity), fp8 makes it a NaN or an infinity, or a NaN of its
// block's scale.
void pack(Stream& stream, const ArrayRef& source, int64_t first, int64_t count,
          const WireFormat& format, void* wire, const PackOptions& options = {});

// Enqueues the way back; the destination is fp32, fp16 or bf16 and is rounded to once. Any bytes are taken.
void unpack(Stream& stream, const void* wire, int64_t count, const WireFormat& format,
            const TensorRef& destination);

// Part of an array.
[[nodiscard]] inline TensorRef slice(const TensorRef& array, int64_t first, int64_t count) {
    return {static_cast<char*>(array.data) + bytes_of(array.dtype, first), count, array.dtype};
}

} // namespace mp::comm
