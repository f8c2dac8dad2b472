// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step on every backend: the reference's bits for every layout, rounding and content.
#include <cmath>
#include <utility>

#include "step_case.hpp"

namespace mp::test {
namespace {

std::vector<Layout> all_layouts() {
    constexpr std::array<std::pair<DType, DType>, 5> kExtras = {{{DType::none, DType::none},
                                                                 {DType::fp32, DType::none},
                                                                 {DType::fp16, DType::none},
                                                                 {DType::bf16, DType::none},
                                                                 {DType::none, DType::fp32}}};
    std::vector<Layout> layouts;
    for (const DType param : kWideTypes) {
        for (const DType grad : kWideTypes) {
            for (const DType exp_avg : kWideTypes) {
                for (const DType exp_avg_sq : kWideTypes) {
                    for (const auto& [compensation, master] : kExtras) {
                        layouts.push_back({param, grad, exp_avg, exp_avg_sq, compensation, master});
                    }
                }
            }
        }
    }
    return layouts;
}

// Layouts that recipes make, for the sizes that are too large for all of them.
std::vector<Layout> common_layouts() {
    const DType f = DType::fp32;
    const DType b = DType::bf16;
    const DType h = DType::fp16;
    const DType none = DType::none;
    return {{f, f, f, f, none, none}, {b, b, f, f, none, f},    {h, h, f, f, none, f},
            {b, b, b, b, b, none},    {b, b, b, b, none, none}, {b, f, f, b, b, none},
            {f, f, f, b, b, none},    {b, b, f, f, f, none}};
}

class Adamw : public AdamwComparison {};

// 405 layouts, each a segment of one launch, in each of the 16 settings of the flags.
TEST_P(Adamw, EqualsTheReferenceForEveryLayoutAndFlag) {
    for (uint32_t bits = 0; bits < 16; ++bits) {
        SCOPED_TRACE("flags " + std::to_string(bits));
        StepCase c = with_flags(bits);
        uint64_t seed = 1000;
        for (const Layout& layout : all_layouts()) {
            c.params.push_back(make_param(layout, 67, Content::normal, seed));
            c.params.back().group = static_cast<int32_t>(seed % 3);
            ++seed;
        }
        compare(c);
    }
}

TEST_P(Adamw, EqualsTheReferenceForEveryContent) {
    for (const Content content : kAllContents) {
        for (const uint32_t bits : {0U, 7U}) {
            SCOPED_TRACE(std::string(content_name(content)) + ", flags " + std::to_string(bits));
            StepCase c = with_flags(bits);
            uint64_t seed = 5000;
            for (const Layout& layout : all_layouts()) {
                c.params.push_back(make_param(layout, 129, content, seed++));
            }
            compare(c);
        }
    }
}

TEST_P(Adamw, EqualsTheReferenceForEverySize) {
    for (const int64_t count : kSizes) {
        for (const Layout& layout : common_layouts()) {
            for (const uint32_t bits : {0U, 7U}) {
                if (count > 65537 && bits != 0 && layout.compensation != DType::none) {
                    continue; // the oracle is slow
                }
                StepCase c = with_flags(bits);
                c.params.push_back(make_param(layout, count, Content::normal, 71));
                compare(c);
            }
        }
    }
}

// A launch as a model makes it: large and small arrays of all layouts, empty ones, several groups.
TEST_P(Adamw, EqualsTheReferenceForMixedSegmentsInOneLaunch) {
    constexpr std::array<int64_t, 10> kCounts = {16385, 0, 7, 4097, 1, 33000, 4095, 257, 0, 255};
    for (uint32_t bits = 0; bits < 16; ++bits) {
        SCOPED_TRACE("flags " + std::to_string(bits));
        StepCase c = with_flags(bits);
        c.step = int64_t{1} << 33;
        c.grad_mul = 1.0 / 3.0;
        const std::vector<Layout> layouts = common_layouts();
        for (std::size_t i = 0; i < 20; ++i) {
            c.params.push_back(make_param(layouts[(i * 3) % layouts.size()], kCounts[i % 10],
                                          Content::normal, 80 + i));
            c.params.back().group = static_cast<int32_t>(i % 3);
            c.params.back().offset = static_cast<int64_t>(i % 5);
        }
        compare(c);
    }
}

TEST_P(Adamw, DoesNothingForNoSegments) {
    StepCase c = with_flags(0);
    compare(c);
    c.params.push_back(make_param({}, 0, Content::normal, 1));
    compare(c);
}

MP_COMPARE_BACKENDS(Adamw);

// ---- what must hold, whoever computes it -------------------------------------------------------

class AdamwProperties : public AdamwStep {};

TEST_P(AdamwProperties, ASkippedStepChangesNothingButZeroesGradients) {
    for (uint32_t bits = 0; bits < 16; ++bits) {
        StepCase c = with_flags(bits);
        c.skip = 1;
        uint64_t seed = 300;
        for (const Layout& layout : common_layouts()) {
            c.params.push_back(make_param(layout, 20000, Content::specials, seed++));
        }
        expect_unchanged(c.params, step(c), c.zero_grad);
    }
}

TEST_P(AdamwProperties, ZeroesGradientsOnlyWhereAsked) {
    for (const Layout& layout : common_layouts()) {
        StepCase c = with_flags(0);
        c.params.push_back(make_param(layout, 20000, Content::normal, 310));
        EXPECT_EQ(step(c)[0].grad.bytes, c.params[0].grad.bytes);
        c.zero_grad = true;
        EXPECT_EQ(step(c)[0].grad.bytes, HostArray(layout.grad, 20000).bytes);
    }
}

// How a model is cut into arrays does not change the numbers of a step without random bits.
TEST_P(AdamwProperties, SegmentsDoNotMatter) {
    const Layout layout = common_layouts()[3];
    StepCase whole = with_flags(0);
    whole.params.push_back(make_param(layout, 40000, Content::normal, 320));
    StepCase parts = with_flags(0);
    const auto cut = [](const HostArray& array, int64_t from, int64_t to) {
        HostArray part(array.dtype, to - from);
        for (int64_t i = from; i < to; ++i) {
            part.set_code(i - from, array.code(i));
        }
        return part;
    };
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 16383}, {16383, 40000}}) {
        const ParamArrays& all = whole.params[0];
        ParamArrays part;
        part.param = cut(all.param, from, to);
        part.grad = cut(all.grad, from, to);
        part.exp_avg = cut(all.exp_avg, from, to);
        part.exp_avg_sq = cut(all.exp_avg_sq, from, to);
        part.compensation = cut(all.compensation, from, to);
        parts.params.push_back(part);
    }
    const ParamArrays expected = step(whole)[0];
    const std::vector<ParamArrays> result = step(parts);
    EXPECT_TRUE(same_bits(cut(expected.param, 0, 16383), result[0].param, NanRule::same_bits));
    EXPECT_TRUE(same_bits(cut(expected.param, 16383, 40000), result[1].param, NanRule::same_bits));
    EXPECT_TRUE(same_bits(cut(expected.compensation, 16383, 40000), result[1].compensation,
                          NanRule::same_bits));
}

// Two parameters, two steps, or p, m and v of one element never share random bits.
TEST_P(AdamwProperties, RandomBitsAreKeyedByParameterAndStep) {
    StepCase c = with_flags(1);
    ParamArrays arrays = make_param({DType::bf16, DType::fp32, DType::fp32, DType::fp32}, 4096,
                                    Content::normal, 330);
    arrays.group = 0;
    c.hyper = {{1e-5, 0.0, 0.0, 1e-8, 0.0}}; // the same update at every step
    c.params = {arrays, arrays};
    c.params[1].uid += 1;
    const std::vector<ParamArrays> first = step(c);
    EXPECT_NE(first[0].param.bytes, first[1].param.bytes);
    EXPECT_EQ(first[0].param.bytes, step(c)[0].param.bytes);
    c.step += 1;
    EXPECT_NE(first[0].param.bytes, step(c)[0].param.bytes);
}

TEST_P(AdamwProperties, FollowsTheWrittenFormula) {
    // fp32 throughout, one group, no decay: each element by the arithmetic of the public header.
    StepCase c = with_flags(0);
    c.grad_mul = 0.25;
    c.params.push_back(make_param({}, 300, Content::normal, 340));
    const ParamArrays& before = c.params[0];
    const ParamArrays after = step(c)[0];
    for (int64_t i = 0; i < before.count(); ++i) {
        const float g = before.grad.get(i) * 0.25F;
        const float m = 0.9F * before.exp_avg.get(i) + static_cast<float>(1.0 - 0.9) * g;
        const float v =
            0.999F * before.exp_avg_sq.get(i) + static_cast<float>(1.0 - 0.999) * (g * g);
        const double bias1 = 1.0 - 0.9 * 0.9 * 0.9;
        const double bias2 = 1.0 - 0.999 * 0.999 * 0.999;
        const double update = 1e-3 * 0.1 * static_cast<double>(before.param.get(i)) +
                              1e-3 / bias1 * static_cast<double>(m) /
                                  (std::sqrt(static_cast<double>(v) / bias2) + 1e-8);
        EXPECT_EQ(after.exp_avg.get(i), m);
        EXPECT_EQ(after.exp_avg_sq.get(i), v);
        EXPECT_FLOAT_EQ(after.param.get(i),
                        static_cast<float>(static_cast<double>(before.param.get(i)) - update));
    }
}

MP_ALL_BACKENDS(AdamwProperties);

} // namespace
} // namespace mp::test
