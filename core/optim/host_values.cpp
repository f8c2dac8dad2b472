// SPDX-License-Identifier: Apache-2.0
#include "optim/host_values.hpp"

#include <algorithm>

#include "numerics/block_state.hpp"
#include "numerics/codec.hpp"
#include "quant/read_floats.hpp"

namespace mp::optim {
namespace {

// Codes are bytes, whatever their type is called.
TensorRef codes_of(const StoredState& state) {
    return {state.array.data, code_bytes(state.format, state.array.count()), DType::uint8};
}
TensorRef scales_of(const StoredState& state) {
    return {state.array.scale_inv, state.array.scale_count(), state.array.format.grid.dtype};
}

std::vector<float> read_blocks(Stream& stream, const StoredState& state) {
    const Bytes codes = download(stream, codes_of(state));
    const Bytes scales = download(stream, scales_of(state));
    std::vector<float> values(static_cast<std::size_t>(state.array.count()));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] =
            numerics::load_block_value(coding_of(state.format), state.is_signed, codes.data(),
                                       scales.data(), static_cast<int64_t>(i));
    }
    return values;
}

void write_blocks(Stream& stream, const StoredState& state, const std::vector<float>& values) {
    const Coding coding = coding_of(state.format);
    const auto size = static_cast<std::size_t>(block_size(coding));
    const TensorRef codes_at = codes_of(state);
    const TensorRef scales_at = scales_of(state);
    Bytes codes(static_cast<std::size_t>(codes_at.count));
    Bytes scales(static_cast<std::size_t>(bytes_of(scales_at.dtype, scales_at.count)));
    for (std::size_t first = 0; first < values.size(); first += size) {
        const std::size_t end = std::min(first + size, values.size());
        const uint32_t amax =
            numerics::amax_bits(values.data() + first, static_cast<int64_t>(end - first));
        numerics::with_block_codec(coding, [&](auto codec) {
            using Codec = decltype(codec);
            const numerics::MomentScale scale =
                Codec::scales(state.is_signed, numerics::float_from_bits(amax));
            numerics::store_block_scale(coding, scales.data(), static_cast<int64_t>(first / size),
                                        scale.stored);
            for (std::size_t i = first; i < end; ++i) {
                numerics::store_block_code(coding, codes.data(), static_cast<int64_t>(i),
                                           Codec::code(state.is_signed, values[i], scale.divisor));
            }
        });
    }
    upload(stream, codes_at.data, codes);
    upload(stream, scales_at.data, scales);
}

} // namespace

Bytes download(Stream& stream, const TensorRef& ref) {
    Bytes host(static_cast<std::size_t>(bytes_of(ref.dtype, ref.count)));
    if (!host.empty()) {
        stream.copy(host.data(), ref.data, host.size(), CopyKind::device_to_host);
        stream.sync();
    }
    return host;
}

void upload(Stream& stream, void* data, const Bytes& host) {
    if (!host.empty()) {
        stream.copy(data, host.data(), host.size(), CopyKind::host_to_device);
        stream.sync();
    }
}

std::vector<float> download_floats(Stream& stream, const TensorRef& ref) {
    std::vector<float> values(static_cast<std::size_t>(ref.count));
    quant::read_floats(stream, plain_array(ref), 0, values);
    return values;
}

void upload_floats(Stream& stream, const TensorRef& ref, const std::vector<float>& values) {
    Bytes bytes(static_cast<std::size_t>(bytes_of(ref.dtype, ref.count)));
    for (int64_t i = 0; i < ref.count; ++i) {
        numerics::store_from_float(ref.dtype, bytes.data(), i, values[static_cast<std::size_t>(i)],
                                   false);
    }
    upload(stream, ref.data, bytes);
}

std::vector<float> read_stored(Stream& stream, const StoredState& state) {
    return has_blocks(state.format) ? read_blocks(stream, state)
                                    : download_floats(stream, state.array.elements());
}

void write_stored(Stream& stream, const StoredState& state, const std::vector<float>& values) {
    if (has_blocks(state.format)) {
        write_blocks(stream, state, values);
    } else {
        upload_floats(stream, state.array.elements(), values);
    }
}

} // namespace mp::optim
