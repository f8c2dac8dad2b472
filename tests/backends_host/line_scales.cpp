// SPDX-License-Identifier: Apache-2.0
// The scales of an operand, laid out for the packed product; when they may be multiplied into codes; and codes
// decoded with and without them. What comes of it is tested in tests/backends.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "host/gemm/line_scales.hpp"
#include "host/gemm/panels.hpp"
#include "host/kernels/isa.hpp"
#include "numerics/codec.hpp"

namespace mp::test {
namespace {

using namespace backends::host;

GemmDesc product(int64_t m, int64_t n, int64_t k) {
    GemmDesc op{};
    op.m = m;
    op.n = n;
    op.k = k;
    op.dtype_a = op.dtype_b = DType::fp8_e4m3;
    return op;
}

constexpr ScaleGrid kGrids[] = {{},
                                kTensorScale,
                                kRowScales,
                                kColumnScales,
                                kRowBlockScales,
                                kColumnBlockScales,
                                kSquareBlockScales,
                                kMxRowScales,
                                kMxColumnScales,
                                {DType::fp32, 3, 64},
                                {DType::e8m0, 96, 5}};

TEST(LineScales, AreThoseOfTheirLinesAndBlocks) {
    constexpr int64_t kM = 150, kN = 21, kK = 300;
    std::vector<float> wide(static_cast<std::size_t>(kM * kK));
    std::vector<uint8_t> bytes(wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
        wide[i] = 0.5F + static_cast<float>(i);
        bytes[i] = static_cast<uint8_t>(1 + i % 250);
    }
    const auto data = [&](const ScaleGrid& grid) -> const void* {
        return grid.dtype == DType::e8m0 ? static_cast<const void*>(bytes.data()) : wide.data();
    };
    for (const ScaleGrid& grid_a : kGrids) {
        for (const ScaleGrid& grid_b : kGrids) {
            for (uint32_t bits = 0; bits < 4; ++bits) {
                GemmDesc op = product(kM, kN, kK);
                op.trans_a = (bits & 1U) != 0;
                op.trans_b = (bits & 2U) != 0;
                op.scale_a = grid_a;
                op.scale_b = grid_b;
                const int64_t a = block_k_of_a(op);
                const int64_t b = block_k_of_b(op);
                if (a != 0 && b != 0 && a % b != 0 && b % a != 0) {
                    continue; // core refuses it
                }
                const int64_t block_k = scale_block_k(op);
                const LineScales of_a = LineScales::of_a(op, block_k);
                const LineScales of_b = LineScales::of_b(op, block_k);
                ASSERT_EQ(of_a.blocks(), block_k == 0 ? 1 : (kK + block_k - 1) / block_k);
                ASSERT_EQ(of_b.blocks(), of_a.blocks());
                std::vector<float> row(static_cast<std::size_t>(of_a.stride() + of_b.stride()));
                LineScales::Range range;
                for (int64_t block = 0; block < of_a.blocks(); ++block) {
                    of_a.fill(data(grid_a), block, row.data(), range);
                    for (int64_t i = 0; i < kM; ++i) {
                        ASSERT_EQ(row[static_cast<std::size_t>(i)],
                                  scale_of_a(op, data(grid_a), i, block * block_k));
                    }
                    of_b.fill(data(grid_b), block, row.data(), range);
                    for (int64_t i = 0; i < kN; ++i) {
                        ASSERT_EQ(row[static_cast<std::size_t>(i)],
                                  scale_of_b(op, data(grid_b), block * block_k, i));
                    }
                }
            }
        }
    }
}

LineScales::Range range_of(const std::vector<float>& scales) {
    GemmDesc op = product(static_cast<int64_t>(scales.size()), 1, 64);
    op.scale_a = kRowScales;
    const LineScales lines = LineScales::of_a(op, 0);
    std::vector<float> row(static_cast<std::size_t>(lines.size()));
    LineScales::Range range;
    lines.fill(scales.data(), 0, row.data(), range);
    return range;
}

TEST(LineScales, FoldOnlyPowersOfTwoThatKeepEverythingNormal) {
    const GemmDesc op = product(1, 1, 64); // sums are below 2^(9 + 9 + 6), products at least 2^-18
    const auto fold = [&](const std::vector<float>& a, const std::vector<float>& b) {
        return may_fold(op, range_of(a), range_of(b));
    };
    const float nan = numerics::float_from_bits(numerics::kFloatQuietNan);
    EXPECT_TRUE(fold({1.0F, 0x1p-20F, 0x1p20F}, {0.5F}));
    EXPECT_TRUE(fold({1.0F, nan}, {nan}));
    EXPECT_FALSE(fold({1.0F, 1.5F}, {1.0F}));
    EXPECT_FALSE(fold({1.0F, -1.0F}, {1.0F}));
    EXPECT_FALSE(fold({1.0F, 0.0F}, {1.0F}));
    EXPECT_FALSE(fold({1.0F}, {0x1p-140F}));
    EXPECT_FALSE(fold({1.0F}, {numerics::float_from_bits(numerics::kFloatInfinity)}));
    EXPECT_TRUE(fold({0x1p-108F}, {1.0F}));
    EXPECT_FALSE(fold({0x1p-109F}, {1.0F}));
    EXPECT_TRUE(fold({0x1p-54F}, {0x1p-54F}));
    EXPECT_FALSE(fold({0x1p-54F}, {0x1p-55F}));
    EXPECT_TRUE(fold({0x1p103F}, {1.0F}));
    EXPECT_FALSE(fold({0x1p104F}, {1.0F}));
    EXPECT_FALSE(fold({0x1p104F}, {0x1p-50F}));
    GemmDesc wide = op;
    wide.dtype_a = wide.dtype_b = DType::fp16;
    EXPECT_FALSE(may_fold(wide, range_of({1.0F}), range_of({1.0F})));
}

// Every code, on every instruction set, at every place of a vector.
TEST(DecodeCodes, IsExact) {
    const IsaList list = runnable_isas();
    for (int32_t isa = 0; isa < list.count; ++isa) {
        setenv("MIXEDPREC_ISA", list.items[isa]->name, 1);
        ASSERT_TRUE(select_isa_from_environment().ok());
        for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2}) {
            for (const bool has_factors : {false, true}) {
                for (const int64_t count : {int64_t{1}, int64_t{15}, int64_t{256}, int64_t{255}}) {
                    std::vector<uint8_t> codes(static_cast<std::size_t>(count));
                    std::vector<float> factors(codes.size());
                    std::vector<uint16_t> out(codes.size());
                    for (std::size_t i = 0; i < codes.size(); ++i) {
                        codes[i] = static_cast<uint8_t>(255 - i);
                        factors[i] = numerics::exp2_int(static_cast<int32_t>(i % 90) - 45);
                    }
                    active_panel_table().decode({dtype, codes.data(), count,
                                                 has_factors ? factors.data() : nullptr,
                                                 out.data()});
                    for (std::size_t i = 0; i < codes.size(); ++i) {
                        const float value =
                            numerics::load_as_float(dtype, codes.data(), static_cast<int64_t>(i));
                        const float expected = has_factors ? value * factors[i] : value;
                        const float got = numerics::bf16_to_float(out[i]);
                        ASSERT_TRUE(numerics::is_nan(expected) ? numerics::is_nan(got)
                                                               : expected == got)
                            << list.items[isa]->name << ": " << value << ", " << got;
                    }
                }
            }
        }
    }
    unsetenv("MIXEDPREC_ISA");
    ASSERT_TRUE(select_isa_from_environment().ok());
}

} // namespace
} // namespace mp::test
