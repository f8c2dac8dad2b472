// SPDX-License-Identifier: Apache-2.0
// dequantize on every backend: the reference's bits for every kind of block and pair of types, and what they must
// be.
#include <cmath>

#include "dequantize_case.hpp"

namespace mp::test {
namespace {

class Dequantize : public BackendTest {
  protected:
    void compare(const DequantizeCase& c) { compare_dequantize(device(), c); }
};

TEST_P(Dequantize, EqualsTheReference) {
    for (const ScaleGrid& grid : dequantize_grids()) {
        for (const DType from : kCodeTypes) {
            for (const DType to : kWideTypes) {
                for (const Extent& shape : {Extent{1, 1}, {3, 5}, {70, 257}, {130, 300}}) {
                    compare(make_case(from, to, grid, shape));
                }
            }
        }
    }
}

TEST_P(Dequantize, EqualsTheReferenceForLargeAndEmptyTensors) {
    for (const ScaleGrid& grid : dequantize_grids()) {
        for (const Extent& shape : {Extent{0, 0}, {0, 5}, {5, 0}, {1, 70000}, {20000, 7}}) {
            compare(make_case(DType::fp8_e4m3, DType::bf16, grid, shape));
            compare(make_case(DType::fp4_e2m1, DType::fp32, grid, shape));
        }
    }
    compare(make_case(DType::fp8_e5m2, DType::fp32, kRowScales, {1536, 2048})); // around the caches
}

// A window and what is not in it: rows and columns before, after and both.
TEST_P(Dequantize, EqualsTheReferenceForWindows) {
    for (const ScaleGrid& grid : dequantize_grids()) {
        for (const DType from : kCodeTypes) {
            DequantizeCase c = make_case(from, DType::bf16, grid, {70, 600});
            for (const Window& window :
                 {Window{3, 0, 50, 600}, {0, 34, 70, 400}, {69, 599, 1, 1}, {5, 257, 3, 300}}) {
                c.window = window;
                compare(c);
            }
        }
    }
}

TEST_P(Dequantize, EqualsTheReferenceForTypesOfBlocks) {
    for (const DType from : all_types()) {
        if (!is_in_blocks(from)) {
            continue;
        }
        for (const DType to : kWideTypes) {
            for (const Extent& shape : {Extent{1, 256}, {3, 512}, {67, 1280}, {0, 256}, {5, 0}}) {
                compare(make_case(from, to, {}, shape));
            }
            DequantizeCase c = make_case(from, to, {}, {40, 1536});
            for (const Window& window :
                 {Window{7, 0, 30, 1536}, {0, 256, 40, 512}, {39, 1280, 1, 256}}) {
                c.window = window;
                compare(c);
            }
        }
    }
    compare(make_case(DType::q4_k, DType::fp32, {}, {1536, 2048})); // around the caches
}

TEST_P(Dequantize, RefusesPartsOfBlocksAndWhatLiesOutside) {
    for_each_candidate(device(), OpKind::dequantize, [&](const Candidate& candidate) {
        for (const Window& window : {Window{0, 32, 1, 256},
                                     {0, 0, 1, 128},
                                     {0, 0, 3, 256},
                                     {2, 0, 1, 256},
                                     {0, 512, 1, 256},
                                     {-1, 0, 1, 256}}) {
            DequantizeCase c = make_case(DType::q6_k, DType::fp32, {}, {2, 512});
            c.window = window;
            HostArray result;
            EXPECT_FALSE(dequantize(device(), candidate, c, result));
        }
        return true;
    });
}

MP_COMPARE_BACKENDS(Dequantize);

class DequantizeValues : public BackendTest {};

TEST_P(DequantizeValues, MultipliesByTheBlocksScale) {
    for_each_candidate(device(), OpKind::dequantize, [&](const Candidate& candidate) {
        DequantizeCase c{DType::fp8_e4m3, DType::fp32, {DType::fp32, 1, 2}, 2, 3, {}, {}};
        c.codes = {0x38, 0xb8, 0x7e, 0x01, 0x7f, 0x40};
        c.scales = HostArray(DType::fp32, 4);
        for (int64_t i = 0; i < 4; ++i) {
            c.scales.set(i, numerics::exp2_int(static_cast<int32_t>(i)));
        }
        HostArray result;
        EXPECT_TRUE(dequantize(device(), candidate, c, result));
        const float expected[] = {1.0F, -1.0F, 896.0F, 0x1p-7F, 0.0F, 16.0F};
        for (int64_t i = 0; i < 6; ++i) {
            if (i != 4) {
                EXPECT_EQ(result.get(i), expected[i]) << i;
            }
        }
        EXPECT_EQ(result.code(4), numerics::kFloatQuietNan);
        return true;
    });
}

// Values of codes are exact, so quantizing them anew changes none. (Codes and scales it may: a block whose largest
// element was rounded down can get a smaller scale.)
TEST_P(DequantizeValues, AreKeptByQuantizingThem) {
    QuantizeCase q;
    q.rows = 96;
    q.columns = 160;
    q.source = make_array(DType::fp32, q.rows * q.columns, Content::normal, 31);
    q.to = DType::fp8_e4m3;
    q.grid = kMxRowScales;
    q.policy = numerics::scale_policy(numerics::ScaleRule::mx_rceil, q.to);
    const auto round = [&](const HostArray& source) {
        q.source = source;
        QuantizeResult codes;
        EXPECT_TRUE(
            quantize(device(), device().device().candidates(OpKind::quantize).items[0], q, codes));
        DequantizeCase d{q.to, DType::fp32, q.grid, q.rows, q.columns, codes.codes, {}};
        d.scales = HostArray(DType::e8m0, q.grid.count(q.rows, q.columns));
        d.scales.bytes = codes.scales;
        HostArray values;
        EXPECT_TRUE(dequantize(device(), device().device().candidates(OpKind::dequantize).items[0],
                               d, values));
        return values;
    };
    const HostArray once = round(q.source);
    EXPECT_EQ(once.bytes, round(once).bytes);
    // Each is within half a step of E4M3 of the original: 2^-4 of it, or of a subnormal code.
    const HostArray original = make_array(DType::fp32, q.rows * q.columns, Content::normal, 31);
    for (int64_t i = 0; i < once.count; ++i) {
        const float x = original.get(i);
        EXPECT_NEAR(once.get(i), x, 0x1p-4F * std::abs(x) + 0x1p-17F);
    }
}

MP_ALL_BACKENDS(DequantizeValues);

} // namespace
} // namespace mp::test
