// SPDX-License-Identifier: Apache-2.0
// Products of codes with scales, on every backend: against the reference where every sum and scale is exact,
// otherwise against a sum in double within what fp32 in the promised order allows. With k products, and scales that
// change after every b of them, |error| <= (min(k, b) + 2 + ceil(k / b)) u sum |a b s_a s_b|: the sums of the
// blocks, two multiplications, the additions (Higham, "Accuracy and stability of numerical algorithms",
// sections 3.1 and 4.2); one chain over scaled codes errs by k u at most.
#include <cmath>
#include <memory>
#include <string_view>

#include "gemm_case.hpp"
#include "interface/gemm_scales.hpp"

namespace mp::test {
namespace {

constexpr DType kE4m3 = DType::fp8_e4m3;
constexpr DType kE5m2 = DType::fp8_e5m2;

enum class ScaleContent { powers, random, one };

struct ScaledOptions {
    Options base;
    DType b = kE4m3;
    ScaleGrid grid_a; // over op(A)
    ScaleGrid grid_b; // over op(B)
    ScaleContent scales = ScaleContent::powers;
    bool power_of_two = false;
    float multiply_d = 0.25F;
};

ScaleGrid turned(ScaleGrid grid, bool is_turned) {
    return is_turned ? ScaleGrid{grid.dtype, grid.block_columns, grid.block_rows} : grid;
}

std::string grid_text(const ScaleGrid& grid) {
    return !grid.exists()
               ? "no scales"
               : std::string(dtype_name(grid.dtype)) + " for " + std::to_string(grid.block_rows) +
                     " x " + std::to_string(grid.block_columns);
}

std::string describe(const ScaledOptions& o) {
    const Options& b = o.base;
    return std::string(dtype_name(b.in)) + " (" + grid_text(o.grid_a) + ") x " + dtype_name(o.b) +
           " (" + grid_text(o.grid_b) + ") to " + dtype_name(b.out) + ", " +
           std::to_string(b.shape.m) + " x " + std::to_string(b.shape.n) + " x " +
           std::to_string(b.shape.k) + (b.trans_a ? ", A^T" : "") + (b.trans_b ? ", B^T" : "") +
           (b.gelu ? ", gelu" : "") + ", bias " + dtype_name(b.bias) + ", beta " +
           std::to_string(b.beta) + (o.power_of_two ? ", powers of two" : "");
}

HostArray make_scales(const ScaleGrid& grid, int64_t rows, int64_t columns, ScaleContent content,
                      uint64_t seed) {
    HostArray array(grid.exists() ? grid.dtype : DType::fp32, grid.count(rows, columns));
    for (int64_t i = 0; i < array.count; ++i) {
        const uint64_t h = numerics::splitmix64((seed << 40) + static_cast<uint64_t>(i));
        const auto exponent = static_cast<int32_t>(h % 7U) - 3;
        float scale = content == ScaleContent::one ? 1.0F : numerics::exp2_int(exponent);
        if (content == ScaleContent::random && grid.dtype == DType::fp32) {
            scale *= 1.0F + static_cast<float>((h >> 20) & 0xffffU) * 0x1p-16F;
        }
        array.set(i, scale);
    }
    return array;
}

struct ScaledCase {
    GemmCase gemm;
    HostArray scale_a, scale_b;
    float multiply_d = 1.0F;
};

ScaledCase make_scaled(const ScaledOptions& o) {
    ScaledCase c;
    c.gemm = make_case(o.base);
    GemmDesc& d = c.gemm.desc;
    d.dtype_b = o.b;
    c.gemm.b = make_array(o.b, c.gemm.b.count, o.base.content, 42);
    d.scale_a = turned(o.grid_a, d.trans_a);
    d.scale_b = turned(o.grid_b, d.trans_b);
    d.power_of_two_scales = o.power_of_two;
    const auto [a_rows, a_columns] = stored(d.trans_a, d.m, d.k);
    const auto [b_rows, b_columns] = stored(d.trans_b, d.k, d.n);
    c.scale_a = make_scales(d.scale_a, a_rows, a_columns, o.scales, 51);
    c.scale_b = make_scales(d.scale_b, b_rows, b_columns, o.scales, 52);
    c.multiply_d = o.multiply_d;
    return c;
}

struct Result {
    HostArray d;
    float amax = 0.0F;
};

// Starts amax at `amax`. False where the candidate does not take the case.
bool run_scaled(TestDevice& on, const Candidate& candidate, const ScaledCase& c, Result& result,
                float amax = 0.0F) {
    const GemmDesc& desc = c.gemm.desc;
    if (!supports(on, candidate, desc)) {
        return false;
    }
    const DeviceArray a(on, c.gemm.a);
    const DeviceArray b(on, c.gemm.b);
    const DeviceArray other_c(on, c.gemm.c);
    const DeviceArray bias(on, c.gemm.bias);
    const DeviceArray scale_a(on, c.scale_a);
    const DeviceArray scale_b(on, c.scale_b);
    const DeviceValue<float> multiply(on, c.multiply_d);
    DeviceValue<float> amax_d(on, amax);
    DeviceArray d(on, c.gemm.c);
    GemmBuffers buffers;
    buffers.a = a.data();
    buffers.b = b.data();
    buffers.bias = desc.dtype_bias == DType::none ? nullptr : bias.data();
    buffers.c = desc.beta == 0.0F ? nullptr : other_c.data();
    buffers.d = d.data();
    buffers.scale_a = scale_a.data();
    buffers.scale_b = scale_b.data();
    if (is_fp8(desc.dtype_d)) {
        buffers.multiply_d = multiply.data();
        buffers.amax_d = amax_d.data();
    }
    Plan* plan = nullptr;
    check(candidate.prepare(on.device(), desc, &plan));
    const std::unique_ptr<Plan> owner(plan);
    check(candidate.run_plan(on.device(), on.queue(), *plan, buffers));
    result.d = d.download();
    result.amax = amax_d.download();
    return true;
}

// d before it is rounded to its type.
Expected expect_scaled(const ScaledCase& c, int64_t row, int64_t column) {
    const GemmDesc& d = c.gemm.desc;
    double sum = 0.0;
    double magnitude = 0.0;
    for (int64_t k = 0; k < d.k; ++k) {
        const int64_t in_a = d.trans_a ? k * d.lda + row : row * d.lda + k;
        const int64_t in_b = d.trans_b ? column * d.ldb + k : k * d.ldb + column;
        const double term = static_cast<double>(c.gemm.a.get(in_a)) *
                            static_cast<double>(c.gemm.b.get(in_b)) *
                            static_cast<double>(scale_of_a(d, c.scale_a.bytes.data(), row, k)) *
                            static_cast<double>(scale_of_b(d, c.scale_b.bytes.data(), k, column));
        sum += term;
        magnitude += std::abs(term);
    }
    constexpr double kU = 0x1p-24;
    const int64_t block = scale_block_k(d) == 0 ? std::max<int64_t>(d.k, 1) : scale_block_k(d);
    const int64_t steps = std::min(d.k, block) + 2 + (d.k + block - 1) / block;
    Expected e;
    double terms = std::abs(static_cast<double>(d.alpha)) * magnitude;
    e.value = static_cast<double>(d.alpha) * sum;
    e.bound = static_cast<double>(steps) * kU * terms;
    if (d.beta != 0.0F) {
        const double term =
            static_cast<double>(d.beta) * static_cast<double>(c.gemm.c.get(row * d.ldc + column));
        e.value += term;
        terms += std::abs(term);
    }
    if (d.dtype_bias != DType::none) {
        const auto term = static_cast<double>(c.gemm.bias.get(column));
        e.value += term;
        terms += std::abs(term);
    }
    e.bound += 4.0 * kU * terms;
    if (d.gelu) { // as in gemm_case.hpp
        const double z = e.value;
        e.value = gelu(z);
        e.bound = 1.13 * e.bound + 4.0 * kU * std::abs(z);
    }
    return e;
}

// The codes that values in [low, high] may round to are a range, as rounding is monotonic.
bool is_fp8_between(DType dtype, float got, double low, double high, float multiply) {
    const auto code = [&](double d) {
        HostArray one(dtype, 1);
        one.set(0, before_fp8(static_cast<float>(d), multiply, dtype));
        return one.get(0);
    };
    return got >= code(low) && got <= code(high);
}

::testing::AssertionResult within_scaled_bound(const ScaledCase& c, const Result& result) {
    const GemmDesc& d = c.gemm.desc;
    const auto [unit, smallest] = rounding(d.dtype_d);
    double largest = 0.0;
    double of_largest = 0.0;
    for (int64_t row = 0; row < d.m; ++row) {
        for (int64_t column = 0; column < d.n; ++column) {
            const Expected e = expect_scaled(c, row, column);
            const float got = result.d.get(row * d.ldd + column);
            bool is_right = false;
            if (is_fp8(d.dtype_d)) {
                // Half a last place of fp32 for the value that is compared, as a float, and the product.
                const double slack = e.bound + 0x1p-23 * std::abs(e.value);
                is_right =
                    is_fp8_between(d.dtype_d, got, e.value - slack, e.value + slack, c.multiply_d);
                largest = std::max(largest, std::abs(e.value));
                of_largest = std::max(of_largest, slack);
            } else {
                const double bound = e.bound + unit * (std::abs(e.value) + e.bound) + smallest;
                is_right = std::abs(static_cast<double>(got) - e.value) <= bound;
            }
            if (!is_right) {
                return ::testing::AssertionFailure()
                       << "[" << row << ", " << column << "]: " << got << " instead of " << e.value
                       << " +- " << e.bound;
            }
        }
    }
    if (is_fp8(d.dtype_d) &&
        !(std::abs(static_cast<double>(result.amax) - largest) <= of_largest)) {
        return ::testing::AssertionFailure() << "amax " << result.amax << " instead of " << largest;
    }
    return ::testing::AssertionSuccess();
}

class GemmScaled : public BackendTest {
  protected:
    // `exact`: the reference's bits.
    void check_case(const ScaledOptions& o, bool exact = false) {
        SCOPED_TRACE(describe(o));
        const ScaledCase c = make_scaled(o);
        Result expected;
        if (exact) {
            ASSERT_TRUE(
                run_scaled(reference_device(), reference_candidate(OpKind::gemm), c, expected));
        }
        const int32_t supporting =
            for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
                Result result;
                if (!run_scaled(device(), candidate, c, result)) {
                    return false;
                }
                if (exact) {
                    EXPECT_TRUE(same_bits(expected.d, result.d, NanRule::any_nan));
                    EXPECT_EQ(expected.amax, result.amax);
                } else {
                    EXPECT_TRUE(within_scaled_bound(c, result));
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
                o.base.shape = {21, 35, 160};
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
