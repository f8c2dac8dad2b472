// SPDX-License-Identifier: Apache-2.0
// Products of codes with scales, on every backend: against the reference where every sum and scale is exact,
// otherwise against a sum in double within what fp32 in the promised order allows (gemm_scaled_case.hpp).
#include <map>
#include <sstream>
#include <string_view>

#include "gemm_scaled_case.hpp"

namespace mp::test {
namespace {

// What a case must give is the same on every device, so it is computed once.
struct Known {
    Result exact;
    std::vector<Expected> bounds;
};

const Known& known(const ScaledOptions& o, const ScaledCase& c, bool exact) {
    static std::map<std::string, Known> all;
    std::ostringstream key;
    key << exact << describe(o) << ' ' << static_cast<int>(o.base.content) << ' '
        << static_cast<int>(o.scales) << ' ' << o.base.alpha << ' ' << o.base.pad << ' '
        << o.base.batch << ' ' << o.multiply_d;
    const auto [place, is_new] = all.try_emplace(key.str());
    if (is_new && exact) {
        EXPECT_TRUE(run_scaled(reference_device(), reference_candidate(OpKind::gemm), c,
                               place->second.exact));
    } else if (is_new) {
        place->second.bounds = expect_all(c);
    }
    return place->second;
}

class GemmScaled : public BackendTest {
  protected:
    // `exact`: the reference's bits.
    void check_case(const ScaledOptions& o, bool exact = false) {
        SCOPED_TRACE(describe(o));
        const ScaledCase c = make_scaled(o);
        const Known& expected = known(o, c, exact);
        const int32_t supporting =
            for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
                Result result;
                if (!run_scaled(device(), candidate, c, result)) {
                    return false;
                }
                if (exact) {
                    EXPECT_TRUE(same_bits(expected.exact.d, result.d, NanRule::any_nan));
                    EXPECT_EQ(expected.exact.amax, result.amax);
                } else {
                    EXPECT_TRUE(
                        within_scaled_bound(c, expected.bounds, result,
                                            allowance_of(device(), candidate, c.gemm.desc)));
                }
                EXPECT_TRUE(padding_untouched(c.gemm, result.d));
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
};

struct Grids {
    ScaleGrid a, b; // over op(A), op(B)
};

// Every pair that a recipe has, by name of the recipe that has it.
constexpr ScaleGrid kNone = {};
constexpr ScaleGrid kMxAlongRows = {DType::e8m0, 1, 32};
constexpr ScaleGrid kMxAlongColumns = {DType::e8m0, 32, 1};
constexpr Grids kGrids[] = {
    {kNone, kNone},                               // bare codes
    {kTensorScale, kTensorScale},                 // delayed, current
    {kTensorScale, kNone},                        // one of them
    {kRowScales, kColumnScales},                  // row-wise
    {kRowScales, kTensorScale},                   // row-wise, gradient of the input
    {kRowBlockScales, kSquareBlockScales},        // DeepSeek: output and gradient of the input
    {kRowBlockScales, kColumnBlockScales},        // DeepSeek: gradient of the weight
    {kMxAlongRows, kMxAlongColumns},              // MX
    {kMxAlongRows, kSquareBlockScales},           // 32 inside 128
    {kRowBlockScales, kTensorScale},              // one that changes along k, one that does not
    {{DType::fp32, 3, 48}, {DType::fp32, 16, 5}}, // of no recipe
    {{DType::e8m0, 0, 0}, {DType::e8m0, 0, 1}},
};

constexpr Shape kScaledShapes[] = {{1, 1, 1},     {16, 16, 16},   {17, 33, 31},  {5, 7, 127},
                                   {13, 40, 128}, {129, 12, 129}, {33, 130, 64}, {2, 3, 300},
                                   {64, 48, 520}, {3, 5, 0},      {0, 4, 7},     {25, 1, 257}};

constexpr std::pair<DType, DType> kCodeTypes[] = {
    {kE4m3, kE4m3}, {kE4m3, kE5m2}, {kE5m2, kE4m3}, {kE5m2, kE5m2}};

TEST_P(GemmScaled, IsExactWhereSumsAndScalesAre) {
    for (const Grids& grids : kGrids) {
        for (const Shape& shape : kScaledShapes) {
            for (uint32_t bits = 0; bits < 4; ++bits) {
                ScaledOptions o;
                o.base.shape = shape;
                const auto& types = kCodeTypes[(bits + static_cast<uint32_t>(shape.m)) % 4];
                o.base.in = types.first;
                o.b = types.second;
                o.grid_a = grids.a;
                o.grid_b = grids.b;
                o.power_of_two = (bits & 1U) == 0;
                o.base.trans_a = (bits & 1U) != 0;
                o.base.trans_b = (bits & 2U) != 0;
                o.base.content = Content::small_integers;
                check_case(o, true);
            }
        }
    }
}

TEST_P(GemmScaled, IsWithinTheBoundOfThePromisedOrder) {
    for (const Grids& grids : kGrids) {
        for (const Shape& shape : kScaledShapes) {
            ScaledOptions o;
            o.base.shape = shape;
            o.grid_a = grids.a;
            o.grid_b = grids.b;
            o.scales = ScaleContent::random;
            for (const auto& [a, b] : kCodeTypes) {
                o.base.in = a;
                o.b = b;
                check_case(o);
                o.base.trans_b = !o.base.trans_b;
                o.base.out = o.base.out == DType::fp32 ? DType::bf16 : DType::fp32;
            }
            o.base.trans_a = true;
            o.base.alpha = -1.5F;
            o.base.beta = 0.5F;
            o.base.bias = DType::bf16;
            o.base.gelu = true;
            check_case(o);
            o.power_of_two = true; // which they are not: then it is not counted on
            check_case(o);
        }
    }
}

TEST_P(GemmScaled, TakesEveryEpilogue) {
    for (const Grids& grids : kGrids) {
        for (const DType out : kFloatTypes) {
            for (uint32_t bits = 0; bits < 8; ++bits) {
                ScaledOptions o;
                o.base.shape = {13, 19, 160};
                o.base.in = kE4m3;
                o.base.out = out;
                o.grid_a = grids.a;
                o.grid_b = grids.b;
                o.scales = ScaleContent::random;
                o.base.bias = (bits & 1U) != 0 ? DType::fp32 : DType::none;
                o.base.gelu = (bits & 2U) != 0;
                o.base.alpha = (bits & 4U) != 0 ? 0.3F : 1.0F;
                o.base.beta = (bits & 4U) != 0 && !is_fp8(out) ? 1.0F : 0.0F;
                check_case(o);
            }
        }
    }
}

TEST_P(GemmScaled, TakesFp16CodesWithATensorScale) {
    ScaledOptions o;
    o.base.shape = {19, 23, 70};
    o.base.in = o.b = DType::fp16;
    o.grid_a = o.grid_b = kTensorScale;
    o.scales = ScaleContent::random;
    check_case(o);
    o.base.out = kE5m2;
    o.base.bias = DType::fp32;
    check_case(o);
}

// Also of operands that are no codes.
TEST_P(GemmScaled, WritesFp8OfWideOperands) {
    for (const DType in : kWideTypes) {
        for (const DType out : {kE4m3, kE5m2}) {
            ScaledOptions o;
            o.base.shape = {19, 33, 65};
            o.base.in = o.b = in;
            o.base.out = out;
            o.multiply_d = 300.0F; // some saturate
            check_case(o);
        }
    }
}

TEST_P(GemmScaled, TakesATensorScaleInABatchWithPaddedRows) {
    ScaledOptions o;
    o.base.shape = {9, 14, 35};
    o.base.in = kE5m2;
    o.base.batch = 3;
    o.base.pad = 3;
    o.base.content = Content::small_integers;
    o.grid_a = o.grid_b = kTensorScale;
    check_case(o, true);
}

// Scales far from 1, each way of applying them within reach of its own limits.
TEST_P(GemmScaled, TakesScalesAtTheEndsOfTheirRange) {
    for (const Grids& grids :
         {Grids{kMxAlongRows, kMxAlongColumns}, Grids{kRowBlockScales, kSquareBlockScales}}) {
        for (const auto& [a, b] : {std::pair{-60, 60}, std::pair{100, -120}, std::pair{-118, 118},
                                   std::pair{-40, -40}, std::pair{40, 40}, std::pair{-100, 20}}) {
            for (const auto& [type_a, type_b] : kCodeTypes) {
                ScaledOptions o;
                o.base.shape = {14, 36, 200};
                o.base.in = type_a;
                o.b = type_b;
                o.base.content = Content::small_integers;
                o.grid_a = grids.a;
                o.grid_b = grids.b;
                o.power_of_two = true;
                o.scales = ScaleContent::one;
                SCOPED_TRACE(describe(o) + ", 2^" + std::to_string(a) + ", 2^" + std::to_string(b));
                ScaledCase c = make_scaled(o);
                for (int64_t i = 0; i < c.scale_a.count; ++i) {
                    c.scale_a.set(i, numerics::exp2_int(a));
                }
                for (int64_t i = 0; i < c.scale_b.count; ++i) {
                    c.scale_b.set(i, numerics::exp2_int(b));
                }
                Result expected;
                ASSERT_TRUE(
                    run_scaled(reference_device(), reference_candidate(OpKind::gemm), c, expected));
                for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
                    Result result;
                    if (!run_scaled(device(), candidate, c, result)) {
                        return false;
                    }
                    EXPECT_TRUE(same_bits(expected.d, result.d, NanRule::any_nan));
                    return true;
                });
            }
        }
    }
}

// A sum over blocks keeps what a plain fp32 sum of the scaled numbers loses: 2^24 and 1 in blocks of their own
// cannot both stay, but 2^24 times a scale of 1 and 128 ones in one block can.
TEST_P(GemmScaled, AddsBlockAfterBlockInFp32) {
    ScaledOptions o;
    o.base.shape = {1, 1, 256};
    o.base.in = kE4m3;
    o.grid_a = kRowBlockScales;
    o.grid_b = kSquareBlockScales;
    o.scales = ScaleContent::one;
    o.base.content = Content::zeros;
    ScaledCase c = make_scaled(o);
    c.gemm.a.set(0, 256.0F);
    c.gemm.b.set(0, 256.0F);
    c.scale_a.set(0, 256.0F); // 2^24 in all
    for (int64_t k = 128; k < 256; ++k) {
        c.gemm.a.set(k, 1.0F);
        c.gemm.b.set(k, 1.0F);
    }
    for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
        Result result;
        if (!run_scaled(device(), candidate, c, result)) {
            return false;
        }
        EXPECT_EQ(result.d.get(0), 0x1p24F + 128.0F);
        return true;
    });
}

TEST_P(GemmScaled, ShowsNanAndInfinity) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    constexpr int64_t kN = 40;
    constexpr int64_t kK = 200;
    for (const Grids& grids : kGrids) {
        for (const DType out : kFloatTypes) {
            ScaledOptions o;
            o.base.shape = {4, kN, kK};
            o.base.in = o.b = kE5m2;
            o.base.out = out;
            o.base.content = Content::zeros;
            o.grid_a = grids.a;
            o.grid_b = grids.b;
            o.scales = ScaleContent::one;
            SCOPED_TRACE(describe(o));
            ScaledCase c = make_scaled(o);
            for (int64_t n = 0; n < kN; ++n) {
                c.gemm.b.set(3 * kN + n, 1.0F);
            }
            c.gemm.a.set(3, 0x1p-16F); // the smallest number
            c.gemm.a.set(kK + 3, infinity);
            c.gemm.a.set(2 * kK + 3, numerics::float_from_bits(numerics::kFloatQuietNan));
            c.multiply_d = 256.0F;
            for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
                Result result;
                if (!run_scaled(device(), candidate, c, result)) {
                    return false;
                }
                for (int64_t n = 0; n < kN; ++n) {
                    EXPECT_EQ(result.d.get(n), out == kE4m3   ? 0x1p-8F
                                               : out == kE5m2 ? 0x1p-8F
                                                              : 0x1p-16F);
                    if (out == kE4m3) {
                        EXPECT_TRUE(numerics::is_nan(result.d.get(kN + n)));
                    } else {
                        EXPECT_EQ(result.d.get(kN + n), infinity);
                    }
                    EXPECT_TRUE(numerics::is_nan(result.d.get(2 * kN + n)));
                    EXPECT_EQ(result.d.get(3 * kN + n), 0.0F);
                }
                if (is_fp8(out)) {
                    EXPECT_TRUE(numerics::is_nan(result.amax));
                }
                return true;
            });
        }
    }
}

// A NaN among the scales of its own makes its rows NaN and no others.
TEST_P(GemmScaled, ShowsANanScale) {
    ScaledOptions o;
    o.base.shape = {4, 5, 64};
    o.base.in = kE4m3;
    o.base.content = Content::small_integers;
    o.grid_a = kMxAlongRows;
    o.grid_b = kMxAlongColumns;
    ScaledCase c = make_scaled(o);
    c.scale_a.set_code(2 * 2 + 1, 0xff);
    for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
        Result result;
        if (!run_scaled(device(), candidate, c, result)) {
            return false;
        }
        for (int64_t i = 0; i < result.d.count; ++i) {
            EXPECT_EQ(numerics::is_nan(result.d.get(i)), i / 5 == 2) << i;
        }
        return true;
    });
}

// As a maximum of what was there and what is new.
TEST_P(GemmScaled, RaisesAmax) {
    ScaledOptions o;
    o.base.shape = {33, 70, 40};
    o.base.in = kE4m3;
    o.base.out = kE4m3;
    o.grid_a = o.grid_b = kTensorScale;
    o.base.content = Content::small_integers;
    const ScaledCase c = make_scaled(o);
    Result expected;
    ASSERT_TRUE(run_scaled(reference_device(), reference_candidate(OpKind::gemm), c, expected));
    for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
        Result result;
        if (!run_scaled(device(), candidate, c, result, 0.5F)) {
            return false;
        }
        EXPECT_EQ(result.amax, expected.amax);
        EXPECT_TRUE(run_scaled(device(), candidate, c, result, 1e6F));
        EXPECT_EQ(result.amax, 1e6F);
        return true;
    });
}

// Each candidate by itself; where the library cuts the sums among threads (onednn_*), only within a count.
TEST_P(GemmScaled, HasTheSameBitsForEveryNumberOfThreads) {
    for (const Grids& grids : kGrids) {
        ScaledOptions o;
        o.base.shape = {130, 150, 384};
        o.base.in = kE4m3;
        o.b = kE5m2;
        o.base.out = DType::bf16;
        o.grid_a = grids.a;
        o.grid_b = grids.b;
        o.scales = ScaleContent::random;
        SCOPED_TRACE(describe(o));
        const ScaledCase c = make_scaled(o);
        TestDevice alone(*GetParam().backend, 1);
        for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
            Result here;
            Result there;
            if (!run_scaled(device(), candidate, c, here)) {
                return false;
            }
            EXPECT_TRUE(run_scaled(alone, candidate, c, there));
            if (std::string_view(candidate.name).substr(0, 6) != "onednn") {
                EXPECT_TRUE(same_bits(there.d, here.d, NanRule::same_bits));
            }
            return true;
        });
    }
}

MP_ALL_BACKENDS(GemmScaled);

} // namespace
} // namespace mp::test
