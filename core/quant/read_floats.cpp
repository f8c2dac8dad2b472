// SPDX-License-Identifier: Apache-2.0
#include "quant/read_floats.hpp"

#include <algorithm>
#include <vector>

#include "numerics/block_quantize.hpp"
#include "numerics/codec.hpp"
#include "quant/quantize.hpp"

namespace mp::quant {
namespace {

void read_plain(Stream& stream, const ArrayRef& array, int64_t first, std::span<float> values) {
    const DType dtype = array.dtype();
    const auto count = static_cast<int64_t>(values.size());
    std::vector<unsigned char> codes(static_cast<std::size_t>(bytes_of(dtype, count)));
    stream.copy(codes.data(),
                static_cast<const unsigned char*>(array.data) + bytes_of(dtype, first),
                codes.size(), CopyKind::device_to_host);
    stream.sync();
    visit_dtype(dtype, [&](auto type) {
        for (int64_t i = 0; i < count; ++i) {
            values[static_cast<std::size_t>(i)] = numerics::Codec<type.value>::load(
                numerics::detail::load_code<type.value>(codes.data(), i));
        }
    });
}

// The largest window that begins at an element and has no others than the next `count`: whole rows, or a part of one.
Window window_at(const ArrayRef& array, int64_t first, int64_t count) {
    const int64_t column = first % array.columns;
    if (column == 0 && count >= array.columns) {
        return {first / array.columns, 0, count / array.columns, array.columns};
    }
    return {first / array.columns, column, 1, std::min(count, array.columns - column)};
}

} // namespace

void read_floats(Stream& stream, const ArrayRef& array, int64_t first, std::span<float> values) {
    if (values.empty()) {
        return;
    }
    if (!array.format.is_quantized() && !is_in_blocks(array.dtype())) {
        read_plain(stream, array, first, values);
        return;
    }
    const Buffer numbers = stream.allocate(values.size_bytes());
    auto* const begin = static_cast<float*>(numbers.data());
    const auto count = static_cast<int64_t>(values.size());
    for (int64_t done = 0; done < count;) {
        const Window window = window_at(array, first + done, count - done);
        dequantize_window(stream, array, window, {begin + done, window.count(), DType::fp32});
        done += window.count();
    }
    stream.copy(values.data(), begin, values.size_bytes(), CopyKind::device_to_host);
    stream.sync();
}

void write_floats(Stream& stream, const ArrayRef& array, int64_t first,
                  std::span<const float> values) {
    const DType dtype = array.dtype();
    const auto count = static_cast<int64_t>(values.size());
    std::vector<unsigned char> codes(static_cast<std::size_t>(bytes_of(dtype, count)));
    numerics::store_floats(dtype, values.data(), count, codes.data());
    stream.copy(static_cast<unsigned char*>(array.data) + bytes_of(dtype, first), codes.data(),
                codes.size(), CopyKind::host_to_device);
    stream.sync();
}

} // namespace mp::quant
