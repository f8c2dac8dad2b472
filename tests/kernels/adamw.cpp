// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step of one chunk: every instruction set, its rows and what has none,
// against one element at a time by core/base/numerics.
#include <cstring>
#include <vector>

#include "device/update_scaling.hpp"
#include "numerics/rules.hpp"
#include "tables.hpp"

namespace mp::test {
namespace {

using numerics::Purpose;

constexpr uint64_t kSeed = 0x0123456789abcdefU;
constexpr uint64_t kStep = 5;

struct Layout {
    const char* name;
    DType param;
    DType grad;
    DType exp_avg;
    DType exp_avg_sq;
    DType compensation;
    DType master;
};

constexpr DType kF = DType::fp32;
constexpr DType kH = DType::fp16;
constexpr DType kB = DType::bf16;
constexpr DType kNone = DType::none;

// Those with rows (all bf16), those of recipes, and some that nobody uses.
constexpr std::array<Layout, 16> kLayouts = {{
    {"bf16", kB, kB, kB, kB, kNone, kNone},
    {"bf16 kahan", kB, kB, kB, kB, kB, kNone},
    {"fp32", kF, kF, kF, kF, kNone, kNone},
    {"fp32, bf16 v", kF, kF, kF, kB, kNone, kNone},
    {"fp32, bf16 g", kF, kB, kF, kF, kNone, kNone},
    {"fp32 kahan", kF, kF, kF, kF, kF, kNone},
    {"bf16, fp32 m v", kB, kB, kF, kF, kNone, kNone},
    {"bf16, fp32 g, master", kB, kF, kF, kF, kNone, kF},
    {"bf16, bf16 g, master", kB, kB, kF, kF, kNone, kF},
    {"bf16 all, master", kB, kB, kB, kB, kNone, kF},
    {"fp16, fp32 g, master", kH, kF, kF, kF, kNone, kF},
    {"fp16, fp16 g, master", kH, kH, kF, kF, kNone, kF},
    {"fp16 all", kH, kH, kH, kH, kNone, kNone},
    {"fp16 kahan", kH, kH, kF, kB, kH, kNone},
    {"bf16, fp32 c", kB, kF, kB, kH, kF, kNone},
    {"bf16, fp16 c", kB, kH, kF, kB, kH, kNone},
}};

struct Arrays {
    HostArray param, grad, exp_avg, exp_avg_sq, compensation, master;
};

Arrays make_arrays(const Layout& layout, int64_t count, Content content, uint64_t seed) {
    Arrays a;
    a.param = make_array(layout.param, count, content, seed);
    a.grad = make_array(layout.grad, count, content, seed + 1);
    a.exp_avg = make_array(layout.exp_avg, count, content, seed + 2);
    a.exp_avg_sq = make_array(layout.exp_avg_sq, count, content, seed + 3);
    const int64_t bits = 8 * dtype_size(layout.exp_avg_sq);
    const uint32_t magnitude = (uint32_t{1} << (bits - 1)) - 1U;
    for (int64_t i = 0; layout.exp_avg_sq != DType::uint8 && i < count; ++i) {
        a.exp_avg_sq.set_code(i, a.exp_avg_sq.code(i) & magnitude);
    }
    if (layout.compensation != kNone) {
        a.compensation = make_array(layout.compensation, count, content, seed + 4);
        for (int64_t i = 0; i < count; ++i) {
            a.compensation.set(i, a.compensation.get(i) * 0x1p-8F);
        }
    }
    if (layout.master != kNone) {
        a.master = make_array(layout.master, count, content, seed + 5);
    }
    return a;
}

UpdateSegment describe(const Layout& layout, int64_t count) {
    UpdateSegment s;
    s.count = count;
    s.uid = 77;
    s.param.dtype = layout.param;
    s.grad.dtype = layout.grad;
    s.states[0].dtype = layout.exp_avg;
    s.states[1].dtype = layout.exp_avg_sq;
    s.compensation.dtype = layout.compensation;
    s.master.dtype = layout.master;
    return s;
}

// Each array `offset` bytes past a line.
struct PlacedArrays {
    Placed param, grad, exp_avg, exp_avg_sq, compensation, master;

    PlacedArrays(const Arrays& a, std::size_t offset)
        : param(a.param, offset), grad(a.grad, offset), exp_avg(a.exp_avg, offset),
          exp_avg_sq(a.exp_avg_sq, offset), compensation(a.compensation, offset),
          master(a.master, offset) {}

    UpdateSegment segment(const Layout& layout, int64_t count) {
        UpdateSegment s = describe(layout, count);
        s.param.data = param.data();
        s.grad.data = grad.data();
        s.states[0].data = exp_avg.data();
        s.states[1].data = exp_avg_sq.data();
        s.compensation.data = compensation.data();
        s.master.data = master.data();
        return s;
    }
    [[nodiscard]] Arrays arrays() const {
        return {param.array(),      grad.array(),         exp_avg.array(),
                exp_avg_sq.array(), compensation.array(), master.array()};
    }
};

OptimizerUpdateDesc make_op(uint32_t flags) {
    OptimizerUpdateDesc op{};
    op.kind = OpKind::optimizer_update;
    op.seed = kSeed;
    op.stochastic_param = (flags & 1U) != 0;
    op.stochastic_states[0] = (flags & 2U) != 0;
    op.stochastic_states[1] = (flags & 4U) != 0;
    op.zero_grad = (flags & 8U) != 0;
    return op;
}

void store(HostArray& array, int64_t i, float x, bool stochastic, Purpose purpose) {
    if (stochastic) {
        const numerics::SrKey key = numerics::make_sr_key(kSeed, 77, kStep);
        const uint32_t bits = numerics::sr_bits32_at(key, purpose, static_cast<uint64_t>(i));
        (void)numerics::store_from_float_sr(array.dtype, array.bytes.data(), i, x, bits);
    } else {
        array.set(i, x);
    }
}

void update_scalar(const OptimizerUpdateDesc& op, const numerics::GroupScalars& k, Arrays& a,
                   int64_t i) {
    const bool has_master = a.master.dtype != kNone;
    const float weight = has_master ? a.master.get(i) : a.param.get(i);
    float states[numerics::kMaxStates] = {a.exp_avg.get(i), a.exp_avg_sq.get(i)};
    const float delta = numerics::rule_delta(k, weight, a.grad.get(i), states);
    const auto store_param = [&](float x) {
        store(a.param, i, x, op.stochastic_param, Purpose::param);
        return a.param.get(i);
    };
    if (a.compensation.dtype != kNone) {
        float carry = a.compensation.get(i);
        numerics::compensated_add(weight, delta, carry, store_param);
        a.compensation.set(i, carry);
    } else {
        const float updated = weight + delta;
        if (has_master) {
            a.master.set(i, updated);
        }
        store_param(updated);
    }
    store(a.exp_avg, i, states[0], op.stochastic_states[0], Purpose::state0);
    store(a.exp_avg_sq, i, states[1], op.stochastic_states[1], Purpose::state1);
    if (op.zero_grad) {
        a.grad.set(i, 0.0F);
    }
}

numerics::GroupScalars scalars() {
    return numerics::group_scalars({1e-2, 0.9, 0.99, 1e-8, 0.1}, 3, 0.5);
}

numerics::GroupScalars l2_scalars() {
    numerics::GroupHyper hyper = {1e-2, 0.9, 0.99, 1e-8, 0.1};
    hyper.rule = numerics::RuleId::adam;
    return numerics::group_scalars(hyper, 3, 0.5);
}

using Body = void (*)(const UpdateJob& job) noexcept;

// All chunks of one segment.
Arrays run_body(Body body, const Layout& layout, OptimizerUpdateDesc op, const Arrays& before,
                std::size_t offset, bool stream) {
    PlacedArrays placed(before, offset);
    UpdateSegment s = placed.segment(layout, before.param.count);
    const numerics::GroupScalars k = scalars();
    op.scalars = &k;
    for (int64_t start = 0; start < s.count; start += kChunkElements) {
        const int64_t left = s.count - start;
        body({&op, &s, start, left < kChunkElements ? left : kChunkElements, kStep, stream,
              nullptr});
    }
    return placed.arrays();
}

void expect_same(const Arrays& expected, const Arrays& actual) {
    EXPECT_TRUE(same_bits(expected.param, actual.param, NanRule::any_nan)) << "param";
    EXPECT_TRUE(same_bits(expected.grad, actual.grad, NanRule::same_bits)) << "grad";
    EXPECT_TRUE(same_bits(expected.exp_avg, actual.exp_avg, NanRule::any_nan)) << "exp_avg";
    EXPECT_TRUE(same_bits(expected.exp_avg_sq, actual.exp_avg_sq, NanRule::any_nan))
        << "exp_avg_sq";
    EXPECT_TRUE(same_bits(expected.compensation, actual.compensation, NanRule::any_nan)) << "carry";
    EXPECT_TRUE(same_bits(expected.master, actual.master, NanRule::any_nan)) << "master";
}

class AdamwChunk : public TableTest {
  protected:
    void compare(const Layout& layout, uint32_t flags, const Arrays& before, std::size_t offset) {
        SCOPED_TRACE(std::string(layout.name) + ", flags " + std::to_string(flags) + ", " +
                     std::to_string(before.param.count) + " elements, offset " +
                     std::to_string(offset));
        const OptimizerUpdateDesc op = make_op(flags);
        Arrays expected = before;
        for (int64_t i = 0; i < before.param.count; ++i) {
            update_scalar(op, scalars(), expected, i);
        }
        for (const bool stream : {false, true}) {
            expect_same(expected, run_body(GetParam()->update, layout, op, before, offset, stream));
        }
    }
};

TEST_P(AdamwChunk, EqualsScalarCodeForEveryFlag) {
    for (const Layout& layout : kLayouts) {
        for (uint32_t flags = 0; flags < 16; ++flags) {
            compare(layout, flags, make_arrays(layout, 1000, Content::normal, flags), 0);
        }
    }
}

TEST_P(AdamwChunk, EqualsScalarCodeForEveryContent) {
    for (const Layout& layout : kLayouts) {
        for (const Content content : kAllContents) {
            SCOPED_TRACE(content_name(content));
            for (const uint32_t flags : {0U, 5U, 7U}) {
                compare(layout, flags, make_arrays(layout, 777, content, 50 + flags), 0);
            }
        }
    }
}

TEST_P(AdamwChunk, EqualsScalarCodeForEverySizeAndAlignment) {
    for (const Layout& layout : kLayouts) {
        for (const int64_t count : kOddSizes) {
            for (const std::size_t offset : kOffsets) {
                compare(layout, count % 2 == 0 ? 5U : 0U,
                        make_arrays(layout, count, Content::normal, 90), offset);
            }
        }
    }
}

// The rows are chosen by the flags too: the three of update_rows.def and what is next to them.
TEST_P(AdamwChunk, RowsEqualScalarCodeOnManyChunks) {
    constexpr int64_t kCount = 100003;
    for (const Layout& layout : {kLayouts[0], kLayouts[1]}) {
        const Arrays before = make_arrays(layout, kCount, Content::patterns, 7);
        for (const uint32_t flags : {0U, 5U, 1U}) {
            SCOPED_TRACE(std::string(layout.name) + ", flags " + std::to_string(flags));
            const OptimizerUpdateDesc op = make_op(flags);
            Arrays expected = before;
            for (int64_t i = 0; i < kCount; ++i) {
                update_scalar(op, scalars(), expected, i);
            }
            expect_same(expected, run_body(GetParam()->update, layout, op, before, 0, false));
        }
    }
}

// ---- scaled and coded states, and L2: all passes have the bits of the baseline ------------------

struct ScaledLayout {
    const char* name;
    Layout types;
    const char* scaled; // which of p, g, m, v, w (the master weight) have a scale
    Coding moments = Coding::plain;
    bool l2 = false;
};

constexpr DType k43 = DType::fp8_e4m3;
constexpr DType k52 = DType::fp8_e5m2;

constexpr DType kU = DType::uint8;
constexpr DType kI = DType::int16;

constexpr std::array<ScaledLayout, 13> kScaledLayouts = {{
    {"O1", {"", kH, k43, kF, kF, kNone, kNone}, "pg"},
    {"O2", {"", kH, k43, k43, kH, kNone, kNone}, "pgmv"},
    {"O3", {"", k43, k43, k43, kH, kNone, kH}, "pgmvw"},
    {"e5m2 gradient", {"", kB, k52, kF, kB, kB, kNone}, "g"},
    {"fp16 moments", {"", kF, kF, kH, kH, kNone, kNone}, "mv"},
    {"bf16 of an fp16 master", {"", kB, kB, k43, k43, kNone, kH}, "gmvw"},
    {"fp8 blocks", {"", kB, kB, k43, k43, kB, kNone}, "", Coding::block},
    {"int8 blocks", {"", kF, kF, kU, kU, kNone, kNone}, "", Coding::dynamic8},
    {"int4 blocks", {"", kB, kF, kU, kU, kNone, kF}, "", Coding::dynamic4},
    {"remainder", {"", kB, kB, kF, kF, kNone, kI}, ""},
    {"L2", {"", kF, kB, kF, kB, kNone, kNone}, "", Coding::plain, true},
    {"L2 kahan", {"", kB, kB, kB, kB, kB, kNone}, "", Coding::plain, true},
    {"L2 of O2", {"", kH, k43, k43, kH, kNone, kNone}, "pgmv", Coding::plain, true},
}};

struct ScaledResult {
    Arrays arrays;
    std::vector<float> block_scales; // of both moments
    std::array<uint32_t, 3> maxima;
};

ScaledResult run_scaled(const IsaTable& table, const ScaledLayout& layout, const Arrays& before,
                        uint32_t flags, std::size_t offset) {
    PlacedArrays placed(before, offset);
    UpdateSegment s = placed.segment(layout.types, before.param.count);
    std::array<float, 5> scales = {0x1p-3F, 0x1p-5F, 0x1p-7F, 0x1p-9F, 0x1p-2F};
    const auto scale_if = [&](char role, std::size_t i) {
        return std::strchr(layout.scaled, role) != nullptr ? &scales[i] : nullptr;
    };
    s.param.scale_inv = scale_if('p', 0);
    s.grad.scale_inv = scale_if('g', 1);
    s.states[0].scale_inv = scale_if('m', 2);
    s.states[1].scale_inv = scale_if('v', 3);
    s.master.scale_inv = scale_if('w', 4);

    const bool in_blocks = has_blocks(layout.moments);
    const auto blocks = static_cast<std::size_t>((s.count + block_size(layout.moments) - 1) /
                                                 block_size(layout.moments));
    std::vector<float> block_scales(2 * blocks);
    for (std::size_t i = 0; i < 2 * blocks; ++i) {
        block_scales[i] = 0x1p-6F * static_cast<float>(i % 5);
    }
    if (in_blocks) {
        s.states[0].coding = s.states[1].coding = layout.moments;
        s.states[0].scale_inv = block_scales.data();
        s.states[1].scale_inv = block_scales.data() + blocks;
    }
    s.master.coding = layout.types.master == kI ? Coding::remainder : Coding::plain;

    OptimizerUpdateDesc op = make_op(flags);
    const numerics::GroupScalars k = layout.l2 ? l2_scalars() : scalars();
    op.scalars = &k;
    UpdateScaling scaling;
    const auto job = [&](int64_t start) {
        const int64_t left = s.count - start;
        return UpdateJob{&op,   &s,    start,   left < kChunkElements ? left : kChunkElements,
                         kStep, false, &scaling};
    };
    for (int64_t start = 0; s.has_scaled_states() && start < s.count; start += kChunkElements) {
        table.measure_update(job(start), scaling);
    }
    const std::array<uint32_t, 3> maxima = {scaling.weight_amax, scaling.state_amax[0],
                                            scaling.state_amax[1]};
    renew_scales(s, scaling);
    for (int64_t start = 0; start < s.count; start += kChunkElements) {
        table.update(job(start));
    }
    return {placed.arrays(), block_scales, maxima};
}

TEST_P(AdamwChunk, ScaledStatesEqualTheBaseline) {
    for (const ScaledLayout& layout : kScaledLayouts) {
        for (const Content content : kAllContents) {
            for (const int64_t count : kOddSizes) {
                const std::size_t offset = kOffsets[static_cast<std::size_t>(count) % 2];
                const bool is_nearest = has_blocks(layout.moments) || layout.types.master == kI;
                const uint32_t flags = count % 3 != 0 ? 0U : is_nearest ? 8U : 15U;
                SCOPED_TRACE(std::string(layout.name) + ", " + content_name(content) + ", " +
                             std::to_string(count) + " elements");
                const Arrays before = make_arrays(layout.types, count, content, 60);
                const ScaledResult expected =
                    run_scaled(*runnable_tables().back(), layout, before, flags, 0);
                const ScaledResult actual = run_scaled(*GetParam(), layout, before, flags, offset);
                expect_same(expected.arrays, actual.arrays);
                for (std::size_t i = 0; i < expected.block_scales.size(); ++i) {
                    const float a = expected.block_scales[i];
                    const float b = actual.block_scales[i];
                    EXPECT_TRUE(a == b || (numerics::is_nan(a) && numerics::is_nan(b))) << i;
                }
                for (std::size_t i = 0; i < 3; ++i) { // a NaN's payload may differ
                    EXPECT_TRUE(expected.maxima[i] == actual.maxima[i] ||
                                (numerics::is_nan_bits(expected.maxima[i]) &&
                                 numerics::is_nan_bits(actual.maxima[i])));
                }
            }
        }
    }
}

MP_FOR_EVERY_TABLE(AdamwChunk);

} // namespace
} // namespace mp::test
