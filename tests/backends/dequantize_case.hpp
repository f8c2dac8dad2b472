// SPDX-License-Identifier: Apache-2.0
// One dequantization of a test: its arrays on a device, and what to try.
#pragma once

#include "quantize_case.hpp"

namespace mp::test {

struct DequantizeCase {
    DType from = DType::none;
    DType to = DType::none;
    ScaleGrid grid;
    int64_t rows = 0;
    int64_t columns = 0;
    std::vector<unsigned char> codes;
    HostArray scales;
    float amax = 3.5F; // of the tensor, for NVFP4
    Window window{};   // all zero: the whole
};

inline bool dequantize(TestDevice& on, const Candidate& candidate, const DequantizeCase& c,
                       HostArray& result) {
    DeviceBytes codes(on, c.codes.data(), c.codes.size());
    DeviceArray scales(on, c.scales);
    DeviceValue<float> amax(on, c.amax);
    const Window window = c.window == Window{} ? Window{0, 0, c.rows, c.columns} : c.window;
    DeviceArray values(on, HostArray(c.to, window.count()));
    DequantizeDesc op{};
    op.kind = OpKind::dequantize;
    op.source = {codes.data(), scales.data(), amax.data(), {c.from, c.grid, {}}, c.rows, c.columns};
    op.window = window;
    op.destination = values.ref();
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    result = values.download();
    return true;
}

inline constexpr std::array<DType, kDTypeCount> all_types() {
    std::array<DType, kDTypeCount> types{};
    for (int32_t i = 0; i < kDTypeCount; ++i) {
        types[static_cast<std::size_t>(i)] = static_cast<DType>(i + 1);
    }
    return types;
}
inline constexpr std::array<DType, 4> kCodeTypes = {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp16,
                                                    DType::fp4_e2m1};

// Scales of 64 blocks in a row are of one kind: what a vector holds decides which way it takes.
inline float scale_of_kind(uint64_t kind) {
    constexpr std::array<float, 6> kScales = {
        0x1.8p-140F, 0x1.9p+120F, __builtin_huge_valf(), __builtin_nanf(""), -0x1.3p-2F, 0.0F};
    return kind < 6 ? kScales[kind] : 0x1p-5F * 1.37F;
}

// Every code, and scales of every kind: NaN, subnormal and large ones among them.
inline DequantizeCase make_case(DType from, DType to, const ScaleGrid& grid, const Extent& shape) {
    DequantizeCase c{from, to, grid, shape.first, shape.second, {}, {}};
    c.codes.resize(static_cast<std::size_t>(bytes_of(from, shape.first * shape.second)));
    for (std::size_t i = 0; i < c.codes.size(); ++i) {
        c.codes[i] = static_cast<unsigned char>(numerics::splitmix64(i) >> 17);
    }
    c.scales = HostArray(grid.dtype, grid.count(shape.first, shape.second));
    for (int64_t i = 0; i < c.scales.count; ++i) {
        const uint64_t h = numerics::splitmix64(static_cast<uint64_t>(i) + 99);
        if (grid.dtype == DType::fp32) {
            c.scales.set(i,
                         scale_of_kind(numerics::splitmix64(static_cast<uint64_t>(i) / 64) % 16));
        } else {
            c.scales.set_code(i, static_cast<uint32_t>(h >> 24) & 0x7fU);
        }
    }
    return c;
}

inline const std::vector<ScaleGrid>& dequantize_grids() {
    static const std::vector<ScaleGrid> list = {
        ScaleGrid{},     kTensorScale,       kRowScales,         kColumnScales,
        kRowBlockScales, kColumnBlockScales, kSquareBlockScales, kMxRowScales,
        kMxColumnScales, kNvfp4Scales,       {DType::fp32, 3, 5}};
    return list;
}

inline void compare_dequantize(TestDevice& on, const DequantizeCase& c) {
    SCOPED_TRACE(std::string(dtype_name(c.from)) + " to " + dtype_name(c.to) + ", " +
                 std::to_string(c.rows) + " x " + std::to_string(c.columns) + ", scales of " +
                 dtype_name(c.grid.dtype) + " for " + std::to_string(c.grid.block_rows) + " x " +
                 std::to_string(c.grid.block_columns) + ", window from " +
                 std::to_string(c.window.first_row) + ", " + std::to_string(c.window.first_column));
    HostArray expected;
    ASSERT_TRUE(
        dequantize(reference_device(), reference_candidate(OpKind::dequantize), c, expected));
    const int32_t supporting =
        for_each_candidate(on, OpKind::dequantize, [&](const Candidate& candidate) {
            HostArray result;
            if (!dequantize(on, candidate, c, result)) {
                return false;
            }
            EXPECT_TRUE(same_bits(expected, result, NanRule::same_bits));
            return true;
        });
    EXPECT_GT(supporting, 0);
}

} // namespace mp::test
