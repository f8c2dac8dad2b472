// SPDX-License-Identifier: Apache-2.0
// One quantization of a test: its arrays on a device, what comes out, and lists of what to try.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::test {

struct QuantizeCase {
    HostArray source;
    int64_t rows = 0;
    int64_t columns = 0;
    DType to = DType::none;
    ScaleGrid grid;
    numerics::ScalePolicy policy;
    bool with_codes = true;
    bool with_transposed = false;
    bool with_stats = true;
    bool with_amax = true;
    bool with_delayed = false;
    numerics::DelayedState delayed = {};
    int32_t warm_up = 0;
    float previous_scale = 1.0F;
    bool with_given_amax = false;
    float given_amax = 0.0F;
    bool stochastic = false;
    int64_t first_element = 0;
    int64_t offset = 0; // elements of the source, bytes of the codes
    Format second;      // none: no second array

    [[nodiscard]] std::string text() const {
        return std::string(dtype_name(source.dtype)) + " to " + dtype_name(to) + ", " +
               std::to_string(rows) + " x " + std::to_string(columns) + ", scales of " +
               dtype_name(grid.dtype) + " for " + std::to_string(grid.block_rows) + " x " +
               std::to_string(grid.block_columns) + " by rule " +
               std::to_string(static_cast<int32_t>(policy.rule)) +
               (policy.power_of_two ? ", powers of two" : "") + (with_codes ? "" : ", no codes") +
               (with_transposed ? ", transposed" : "") + (stochastic ? ", stochastic" : "") +
               (with_given_amax ? ", given amax " + std::to_string(given_amax) : "") +
               (with_stats ? "" : ", no statistics") +
               (offset == 0 ? "" : ", " + std::to_string(offset) + " elements from the start") +
               (with_delayed ? ", delayed after " + std::to_string(delayed.updates) + " updates"
                             : "");
    }
};

struct QuantizeResult {
    std::vector<unsigned char> codes;
    std::vector<unsigned char> transposed;
    std::vector<unsigned char> scales;
    std::vector<unsigned char> second;
    std::vector<unsigned char> second_scales;
    float second_amax = -1.0F;
    numerics::QuantStats stats;
    float amax = -1.0F;
    numerics::DelayedState delayed;

    [[nodiscard]] float scale(DType dtype, int64_t i) const {
        return numerics::load_as_float(dtype, scales.data(), i);
    }
};

inline std::vector<unsigned char> download(DeviceBytes& bytes, std::size_t size) {
    std::vector<unsigned char> result(size);
    bytes.download(result.data());
    return result;
}

inline HostArray scales_before(const QuantizeCase& c, const ScaleGrid& grid) {
    HostArray scales(grid.dtype, grid.count(c.rows, c.columns));
    for (int64_t i = 0; i < scales.count; ++i) {
        scales.set(i, c.previous_scale);
    }
    return scales;
}

inline numerics::Rounding rounding_of(const QuantizeCase& c) {
    numerics::Rounding rounding;
    rounding.stochastic = c.stochastic;
    rounding.seed = 0x123456789abcdefU;
    rounding.uid = 77;
    rounding.step = 0x300000002U;
    rounding.first_element = c.first_element;
    return rounding;
}

inline numerics::QuantStats added_since(numerics::QuantStats stats,
                                        const numerics::QuantStats& before) {
    stats.elements -= before.elements;
    stats.saturated -= before.saturated;
    stats.underflowed -= before.underflowed;
    stats.non_finite -= before.non_finite;
    return stats;
}

// False where the candidate does not support the case. Statistics begin with some counts already there, and codes
// with a pattern, which a byte that is not written keeps.
inline bool quantize(TestDevice& on, const Candidate& candidate, const QuantizeCase& c,
                     QuantizeResult& result) {
    const numerics::QuantStats before = {1, 2, 3, 4, 5, 0};
    const auto code_bytes = static_cast<std::size_t>(bytes_of(c.to, c.source.count));
    const auto offset = static_cast<std::size_t>(c.offset * (c.to == DType::fp16 ? 2 : 1));
    const std::vector<unsigned char> pattern(code_bytes, 0x3c);
    const HostArray previous = scales_before(c, c.grid);
    const DeviceArray source(on, c.source, c.offset);
    DeviceBytes codes(on, pattern.data(), code_bytes, offset);
    DeviceBytes transposed(on, pattern.data(), code_bytes, offset);
    DeviceArray scales(on, previous);
    DeviceValue<numerics::QuantStats> stats(on, before);
    DeviceValue<float> amax(on, -1.0F);
    DeviceValue<numerics::DelayedState> delayed(on, c.delayed);
    DeviceValue<float> given(on, c.given_amax);
    QuantizeDesc op{};
    op.kind = OpKind::quantize;
    op.source = plain_array(source.ref(), c.rows, c.columns);
    op.sink.codes = {c.with_codes ? codes.data() : nullptr,
                     scales.data(),
                     c.with_amax ? amax.data() : nullptr,
                     {c.to, c.grid, c.policy},
                     c.rows,
                     c.columns};
    op.sink.transposed = c.with_transposed ? transposed.data() : nullptr;
    op.sink.tracking.delayed = c.with_delayed ? delayed.data() : nullptr;
    op.sink.tracking.amax = c.with_delayed ? &delayed.data()->amax : nullptr;
    op.sink.tracking.warm_up = c.warm_up;
    op.sink.tracking.stats = c.with_stats ? stats.data() : nullptr;
    op.sink.given_amax = c.with_given_amax ? given.data() : nullptr;
    op.sink.rounding = rounding_of(c);
    const auto second_bytes = static_cast<std::size_t>(bytes_of(c.second.dtype, c.source.count));
    const std::vector<unsigned char> other_pattern(second_bytes, 0x3c);
    const HostArray second_previous = scales_before(c, c.second.grid);
    DeviceBytes second(on, other_pattern.data(), second_bytes, offset);
    DeviceArray second_scales(on, second_previous);
    DeviceValue<float> second_amax(on, -1.0F);
    if (c.second.exists()) {
        op.sink.second = {second.data(), second_scales.data(), second_amax.data(), c.second, c.rows,
                          c.columns};
    }
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    result.second = download(second, second_bytes);
    result.second_scales = second_scales.download().bytes;
    result.second_amax = second_amax.download();
    result.codes = download(codes, code_bytes);
    result.transposed = download(transposed, code_bytes);
    result.scales = scales.download().bytes;
    result.stats = c.with_stats ? added_since(stats.download(), before) : stats.download();
    result.amax = amax.download();
    result.delayed = delayed.download();
    return true;
}

inline ::testing::AssertionResult same_bytes(const char* what,
                                             const std::vector<unsigned char>& expected,
                                             const std::vector<unsigned char>& result) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] != result[i]) {
            return ::testing::AssertionFailure()
                   << what << ": byte " << i << " is " << static_cast<int>(result[i]) << " and not "
                   << static_cast<int>(expected[i]);
        }
    }
    return ::testing::AssertionSuccess();
}

// Every candidate against the reference, bit for bit.
inline void compare_quantize(TestDevice& on, const QuantizeCase& c) {
    SCOPED_TRACE(c.text());
    QuantizeResult expected;
    ASSERT_TRUE(quantize(reference_device(), reference_candidate(OpKind::quantize), c, expected));
    const int32_t compared =
        for_each_candidate(on, OpKind::quantize, [&](const Candidate& candidate) {
            QuantizeResult result;
            if (!quantize(on, candidate, c, result)) {
                return false;
            }
            EXPECT_TRUE(same_bytes("codes", expected.codes, result.codes));
            EXPECT_TRUE(same_bytes("transposed", expected.transposed, result.transposed));
            EXPECT_TRUE(same_bytes("scale_inv", expected.scales, result.scales));
            EXPECT_TRUE(same_bytes("second", expected.second, result.second));
            EXPECT_TRUE(same_bytes("its scale_inv", expected.second_scales, result.second_scales));
            EXPECT_EQ(numerics::bits_from_float(expected.second_amax),
                      numerics::bits_from_float(result.second_amax));
            EXPECT_EQ(std::memcmp(&expected.stats, &result.stats, sizeof expected.stats), 0)
                << result.stats.elements << ' ' << result.stats.saturated << ' '
                << result.stats.underflowed << ' ' << result.stats.non_finite << " and not "
                << expected.stats.elements << ' ' << expected.stats.saturated << ' '
                << expected.stats.underflowed << ' ' << expected.stats.non_finite;
            EXPECT_EQ(numerics::bits_from_float(expected.amax),
                      numerics::bits_from_float(result.amax));
            EXPECT_EQ(std::memcmp(&expected.delayed, &result.delayed, sizeof expected.delayed), 0);
            return true;
        });
    // The host takes every case.
    const Candidate& first = on.device().candidates(OpKind::quantize).items[0];
    EXPECT_GT(compared, std::strcmp(first.name, "host") == 0 ? 0 : -1);
}

// Whether a small quantize in memory of its own has no meaning once it is changed, and a reason is given.
inline bool is_refused(const std::function<void(QuantizeDesc&)>& change) {
    unsigned char memory[256] = {};
    QuantizeDesc op{};
    op.kind = OpKind::quantize;
    op.source = plain_array({memory, 8, DType::fp32}, 2, 4);
    op.sink.codes = {memory + 64, memory + 128, nullptr, {DType::fp8_e4m3, kTensorScale, {}}, 2, 4};
    change(op);
    Reason reason;
    const bool is_taken =
        reference_candidate(OpKind::quantize).supports(reference_device().device(), op, reason);
    return !is_taken && !reason.empty();
}

// ---- what to try -------------------------------------------------------------------------------

struct GridRule {
    ScaleGrid grid;
    numerics::ScaleRule rule;
    bool power_of_two;
    std::vector<DType> codes;

    [[nodiscard]] numerics::ScalePolicy policy(DType to) const {
        numerics::ScalePolicy result = numerics::scale_policy(rule, to, power_of_two ? 1 : 0);
        result.power_of_two = power_of_two;
        return result;
    }
};

inline const std::vector<GridRule> kGridRules = [] {
    using numerics::ScaleRule;
    const std::vector<DType> fp8 = {DType::fp8_e4m3, DType::fp8_e5m2};
    const std::vector<DType> e4m3 = {DType::fp8_e4m3};
    const std::vector<DType> scaled = {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp16};
    const std::vector<DType> mx = {DType::fp8_e4m3, DType::fp8_e5m2, DType::fp4_e2m1};
    return std::vector<GridRule>{
        {kTensorScale, ScaleRule::current, false, scaled},
        {kTensorScale, ScaleRule::current, true, fp8},
        {kTensorScale, ScaleRule::float64, false, fp8},
        {kTensorScale, ScaleRule::msamp, false, scaled},
        {kRowScales, ScaleRule::float64, true, scaled},
        {kColumnScales, ScaleRule::float64, true, fp8},
        {{DType::fp8_e4m3, 0, 1}, ScaleRule::nvfp4, false, {DType::fp4_e2m1}},
        {kRowBlockScales, ScaleRule::deepseek, false, e4m3},
        {kRowBlockScales, ScaleRule::current, true, fp8},
        {kColumnBlockScales, ScaleRule::deepseek, true, e4m3},
        {kSquareBlockScales, ScaleRule::deepseek, false, e4m3},
        {kSquareBlockScales, ScaleRule::current, true, fp8},
        {kMxRowScales, ScaleRule::mx_rceil, false, mx},
        {kMxColumnScales, ScaleRule::mx_rceil, false, mx},
        {kMxRowScales, ScaleRule::mx_floor, false, mx},
        {kMxRowScales, ScaleRule::mx_ceil, false, e4m3},
        {kMxRowScales, ScaleRule::mx_even, false, mx},
        {{DType::e8m0, 32, 32}, ScaleRule::mx_rceil, false, fp8},
        {{DType::e8m0, 0, 0}, ScaleRule::mx_floor, false, e4m3},
        {{DType::e8m0, 1, 128}, ScaleRule::deepseek, true, e4m3},
        {kNvfp4Scales, ScaleRule::nvfp4, false, {DType::fp4_e2m1}},
        {{DType::fp32, 3, 5}, ScaleRule::current, false, mx},
        {{DType::fp32, 48, 1}, ScaleRule::current, false, e4m3},
        {{DType::fp32, 0, 7}, ScaleRule::current, false, {DType::fp8_e5m2, DType::fp4_e2m1}},
        {{DType::fp32, 5, 0}, ScaleRule::msamp, false, e4m3},
        {{DType::fp32, 100, 3000}, ScaleRule::current, false, e4m3},
    };
}();

using Extent = std::pair<int64_t, int64_t>;
inline const std::vector<Extent> kShapes = {{1, 1},    {1, 130},  {130, 1},  {3, 5},
                                            {7, 129},  {64, 64},  {65, 257}, {128, 128},
                                            {130, 48}, {33, 300}, {200, 520}};
// Enough for teams of threads, which could forget a barrier: their threads wait for each other in each block.
inline const std::vector<Extent> kShapesOfTeams = {{1, 130}, {65, 257}};

// Arrays that a scale goes wrong on.
inline std::vector<HostArray> adversarial_arrays(DType dtype, int64_t count) {
    std::vector<HostArray> arrays;
    for (const Content content : kAllContents) {
        arrays.push_back(make_array(dtype, count, content, 21));
    }
    HostArray outlier = make_array(dtype, count, Content::normal, 22);
    outlier.set(count / 3, dtype == DType::fp16 ? 65504.0F : -1e6F);
    arrays.push_back(outlier);
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    HostArray one_infinity = make_array(dtype, count, Content::normal, 23);
    one_infinity.set(count - 2, -infinity);
    arrays.push_back(one_infinity);
    HostArray one_nan = make_array(dtype, count, Content::normal, 24);
    one_nan.set(5, infinity - infinity);
    arrays.push_back(one_nan);
    return arrays;
}

} // namespace mp::test
