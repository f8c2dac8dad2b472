// SPDX-License-Identifier: Apache-2.0
// Every combination of types and codings of gradient, states, weight, compensation and master weight, by AdamW and by Lion,
// generated: the sound ones have the bits of a simple oracle on every backend, thread count and instruction set; the others are
// refused with their reason.
#include <gtest/gtest.h>

#include <cstdlib>

#include "adamw_oracle.hpp"
#include "host/kernels/isa.hpp"
#include "optim/step_memory.hpp"
#include "step_case.hpp"

namespace mp::test {
namespace {

using numerics::RuleId;

constexpr DType kF = DType::fp32;
constexpr DType kH = DType::fp16;
constexpr DType kB = DType::bf16;
constexpr DType kE = DType::fp8_e4m3;
constexpr DType kE5 = DType::fp8_e5m2;
constexpr DType kNone = DType::none;

struct Form {
    DType dtype = kNone;
    Coding coding = Coding::plain;
};
constexpr Form kGrads[] = {{kF},
                           {kH},
                           {kB},
                           {kH, Coding::scaled},
                           {kB, Coding::scaled},
                           {kE, Coding::scaled},
                           {kE5, Coding::scaled}};
constexpr Form kMoments[] = {{kF},
                             {kH},
                             {kB},
                             {kH, Coding::scaled},
                             {kE, Coding::scaled},
                             {kE, Coding::block},
                             {kE, Coding::block128},
                             {DType::uint8, Coding::dynamic8},
                             {DType::uint8, Coding::dynamic4},
                             {DType::uint8, Coding::companded8}};
constexpr Form kParams[] = {{kF}, {kH}, {kB}, {kH, Coding::scaled}, {kE, Coding::scaled}};
constexpr DType kCompensations[] = {kNone, kF, kH, kB};
constexpr Form kMasters[] = {{},   {kF}, {kH, Coding::scaled}, {DType::int16, Coding::remainder},
                             {kH}, {kB}};

// Lion has no second moment: its dtype is none.
struct Combination {
    Form grad, first, second, param, master;
    DType compensation = kNone;
    bool half_away = false;
};

// What is wrong with it, in words of the messages; empty for what works.
std::vector<std::string> reasons(const Combination& c) {
    std::vector<std::string> list;
    if (c.second.dtype == kE && c.second.coding == Coding::scaled) {
        list.emplace_back("one scale, which holds second moments with a ratio of at most 2.3e5");
    }
    if (c.master.coding == Coding::remainder &&
        (c.param.dtype != kB || c.param.coding != Coding::plain)) {
        list.emplace_back("a remainder is int16 beside a bf16 parameter");
    }
    if (c.master.dtype != kNone && c.compensation != kNone) {
        list.emplace_back("both master and compensation");
    }
    if (c.param.coding == Coding::scaled && c.compensation != kNone) {
        list.emplace_back("a compensation is given for a parameter with a scale");
    }
    if ((c.master.dtype == kH || c.master.dtype == kB) && c.master.coding == Coding::plain) {
        list.emplace_back("it must be one of: fp32, fp16_scaled, remainder16");
    }
    return list;
}

std::vector<Combination> generated(RuleId rule) {
    std::vector<Combination> list;
    const std::vector<Form> seconds =
        rule == RuleId::lion ? std::vector<Form>(1)
                             : std::vector<Form>(std::begin(kMoments), std::end(kMoments));
    for (const Form& grad : kGrads) {
        for (const Form& first : kMoments) {
            for (const Form& second : seconds) {
                for (const Form& param : kParams) {
                    for (const Form& master : kMasters) {
                        for (const DType compensation : kCompensations) {
                            list.push_back(
                                {grad, first, second, param, master, compensation, false});
                        }
                    }
                }
            }
        }
    }
    return list;
}

std::vector<Combination> sound(RuleId rule) {
    std::vector<Combination> list = generated(rule);
    std::erase_if(list, [](const Combination& c) { return !reasons(c).empty(); });
    for (const Combination& c : std::vector<Combination>(list)) {
        if (c.param.dtype == kB && c.master.dtype == kF) {
            list.push_back(c);
            list.back().half_away = true;
        }
    }
    return list;
}

float first_scale(const Form& form) { return form.coding == Coding::scaled ? 0x1p-3F : 0.0F; }

HostArray codes_of(const Form& form, int64_t count) {
    return {form.dtype, form.coding == Coding::dynamic4 ? (count + 1) / 2 : count};
}

HostArray scales_of(const Form& form, int64_t count) {
    return has_blocks(form.coding)
               ? HostArray(block_layout(form.coding).scales.dtype,
                           (count + block_size(form.coding) - 1) / block_size(form.coding))
               : HostArray();
}

std::vector<float> some_numbers(int64_t count, uint64_t seed, bool squared) {
    const HostArray array = make_array(kF, count, Content::normal, seed);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        values.push_back(squared ? array.get(i) * array.get(i) : array.get(i));
    }
    return values;
}

// As in the middle of training; the gradient is zero throughout in one of seven.
ParamArrays start(const Combination& c, int64_t count, uint64_t seed) {
    ParamArrays a;
    a.uid = seed;
    a.offset = static_cast<int64_t>(seed % 5); // elements past an aligned address
    a.exp_avg_coding = has_blocks(c.first.coding) ? c.first.coding : Coding::plain;
    a.exp_avg_sq_coding = has_blocks(c.second.coding) ? c.second.coding : Coding::plain;
    a.master_coding = c.master.coding == Coding::remainder ? Coding::remainder : Coding::plain;
    a.half_away = c.half_away;
    a.scale_inv = {first_scale(c.param), first_scale(c.grad), first_scale(c.first),
                   first_scale(c.second), first_scale(c.master)};
    a.grad = HostArray(c.grad.dtype, count);
    a.param = HostArray(c.param.dtype, count);
    a.exp_avg = codes_of(c.first, count);
    a.exp_avg_sq = c.second.dtype == kNone ? HostArray() : codes_of(c.second, count);
    a.exp_avg_scales = scales_of(c.first, count);
    a.exp_avg_sq_scales = scales_of(c.second, count);
    if (seed % 7 != 0) {
        oracle::encode(some_numbers(count, seed, false), a.grad, a.scale_inv.grad);
    }
    oracle::encode_moment(some_numbers(count, seed + 1, false), a.exp_avg_coding, true, a.exp_avg,
                          a.exp_avg_scales, a.scale_inv.exp_avg);
    if (c.second.dtype != kNone) {
        oracle::encode_moment(some_numbers(count, seed + 2, true), a.exp_avg_sq_coding, false,
                              a.exp_avg_sq, a.exp_avg_sq_scales, a.scale_inv.exp_avg_sq);
    }
    std::vector<float> weight = some_numbers(count, seed + 3, false);
    if (c.compensation != kNone) {
        a.compensation = HostArray(c.compensation, count);
    }
    if (c.master.dtype != kNone) {
        a.master = HostArray(c.master.dtype, count);
    }
    oracle::store_weight(a, weight, std::vector<float>(weight.size(), 0.0F));
    return a;
}

GroupHyper hyper_of(RuleId rule) {
    GroupHyper hyper = {3e-3, 0.9, 0.99, 1e-8, 0.1};
    hyper.rule = rule;
    return hyper;
}
constexpr int64_t kStep = 3;
constexpr double kGradMul = 0.75;
class AdamwCombinations : public BackendTest {
  protected:
    // All of them in launches of many segments, on each of these instruction sets (none: as it is). Which of `sizes` a
    // combination has differs from one to the next, and from backend to backend: between them they meet all.
    void compare(RuleId rule, const std::vector<Combination>& list,
                 const std::vector<int64_t>& sizes,
                 const std::vector<const char*>& sets = {nullptr}) {
        constexpr std::size_t kLaunch = 400;
        for (std::size_t begin = 0; begin < list.size(); begin += kLaunch) {
            StepCase c;
            c.hyper = {hyper_of(rule)};
            c.step = kStep;
            c.grad_mul = kGradMul;
            std::vector<ParamArrays> expected;
            for (std::size_t i = begin; i < std::min(begin + kLaunch, list.size()); ++i) {
                if (!is_taken(list[i])) {
                    continue;
                }
                c.params.push_back(start(list[i], sizes[turn(i) % sizes.size()], 9 * i + 1));
                expected.push_back(c.params.back());
                oracle::step(expected.back(), c.hyper[0], kStep, kGradMul);
            }
            for (const char* set : sets) {
                SCOPED_TRACE(set == nullptr ? "" : set);
                if (set != nullptr) {
                    ::setenv("MIXEDPREC_ISA", set, 1);
                    check(backends::host::select_isa_from_environment());
                }
                check_launch(c, expected);
            }
        }
    }

    [[nodiscard]] bool is_taken(const Combination& c) const {
        return takes(device(), GetParam(), start(c, 1, 1));
    }

  private:
    // Neighbours differ in one kind of array, with which their turns must not go; labels end in a number of threads.
    static std::size_t turn(std::size_t i) {
        return static_cast<std::size_t>(GetParam().label.back()) + (i * 2654435761U >> 16U);
    }
    void check_launch(const StepCase& c, const std::vector<ParamArrays>& expected) {
        std::vector<ParamArrays> result;
        const CandidateList candidates = device().device().candidates(OpKind::optimizer_update);
        bool done = false;
        for (int32_t i = 0; i < candidates.count && !done; ++i) {
            done = adamw(device(), candidates.items[i], c, result);
        }
        ASSERT_TRUE(done);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            SCOPED_TRACE(describe(expected[i]));
            expect_same(expected[i], result[i]);
            ASSERT_FALSE(HasFailure()); // one is enough to read
        }
    }
};

TEST_P(AdamwCombinations, HaveTheBitsOfTheOracle) {
    const std::vector<Combination> list = sound(RuleId::adamw);
    EXPECT_EQ(list.size(), 7U * 10U * 9U * 26U);
    compare(RuleId::adamw, list, {1, 7, 255, 257});
}

TEST_P(AdamwCombinations, OfLionHaveTheBitsOfTheOracle) {
    const std::vector<Combination> list = sound(RuleId::lion);
    EXPECT_EQ(list.size(), 7U * 10U * 26U);
    compare(RuleId::lion, list, {1, 7, 255, 257});
    compare(RuleId::lion, list, {4097});
}

// One of ten of them, by a stride that has nothing in common with the lists' lengths.
TEST_P(AdamwCombinations, HaveTheBitsOfTheOracleAcrossBlocksAndChunks) {
    const std::vector<Combination> list = sound(RuleId::adamw);
    std::vector<Combination> some;
    for (std::size_t i = 0; i < list.size(); i += 11) {
        some.push_back(list[i]);
    }
    compare(RuleId::adamw, some, {4095, 4097});
    compare(RuleId::adamw, {list[5], list[list.size() / 2 + 13], list[list.size() - 3]}, {1000003});
}

// The same on every instruction set that this processor has.
TEST_P(AdamwCombinations, HaveTheBitsOfTheOracleOnEveryInstructionSet) {
    if (GetParam().label != "host_threads_1") {
        GTEST_SKIP() << "skipped: instruction sets are the host's, and threads do not matter";
    }
    const backends::host::IsaList runnable = backends::host::runnable_isas();
    std::vector<const char*> sets;
    for (int32_t i = 0; i < runnable.count; ++i) {
        sets.push_back(runnable.items[i]->name);
    }
    for (const RuleId rule : {RuleId::adamw, RuleId::lion}) {
        compare(rule, sound(rule), {263}, sets);
    }
    ::unsetenv("MIXEDPREC_ISA");
    check(backends::host::select_isa_from_environment());
}

// A NaN or an infinity in any one gradient: no array of any combination changes, nor t.
TEST_P(AdamwCombinations, OneBadGradientStopsAllOfThem) {
    const std::vector<Combination> list = sound(RuleId::adamw);
    std::vector<ParamArrays> params;
    for (std::size_t i = 0; i < list.size(); i += 23) {
        if (is_taken(list[i])) {
            params.push_back(start(list[i], 300, 9 * i + 1));
        }
    }
    for (const float bad : {std::nanf(""), -INFINITY}) {
        std::vector<ParamArrays> broken = params;
        const auto wide =
            std::find_if(broken.begin() + static_cast<std::ptrdiff_t>(params.size() / 2),
                         broken.end(), [](const ParamArrays& a) { return a.grad.dtype != kE; });
        wide->grad.set(299, bad);
        Launch launch(device(), broken);
        DeviceValue<OptimizerState> state(device(), {});
        const GroupHyper hyper = hyper_of(RuleId::adamw);
        const DeviceValue<GroupHyper> device_hyper(device(), hyper);
        DeviceValue<GroupScalars> scalars(device(), {});
        DeviceValue<int64_t> group_step(device(), 5);
        const std::vector<double> zeros(65536);
        const DeviceBytes sums(device(), zeros.data(), zeros.size() * sizeof(double));
        GradStatsDesc stats{};
        stats.kind = OpKind::grad_stats;
        stats.table = launch.table();
        stats.chunk_sums = sums.as<double>();
        stats.state = state.data();
        OptimizerPrepareDesc prepare{};
        prepare.kind = OpKind::optimizer_prepare;
        prepare.state = state.data();
        prepare.hyper = device_hyper.data();
        prepare.group_steps = group_step.data();
        prepare.scalars = scalars.data();
        prepare.group_count = 1;
        prepare.rule.has_stats = 1;
        OptimizerUpdateDesc update{};
        update.kind = OpKind::optimizer_update;
        update.table = launch.table();
        update.scalars = scalars.data();
        update.state = state.data();
        update.scaling = launch.scaling();
        update.zero_grad = true;
        for (const OpDesc* op :
             {static_cast<const OpDesc*>(&stats), static_cast<const OpDesc*>(&prepare),
              static_cast<const OpDesc*>(&update)}) {
            const Candidate* candidate = first_candidate(device(), *op);
            ASSERT_NE(candidate, nullptr);
            run(device(), *candidate, *op);
        }
        std::vector<ParamArrays> after;
        after.reserve(broken.size());
        for (std::size_t i = 0; i < broken.size(); ++i) {
            after.push_back(launch.download(i));
        }
        expect_unchanged(broken, after, true);
        EXPECT_EQ(state.download().skip, 1U);
        EXPECT_EQ(state.download().step, 0);
        EXPECT_EQ(group_step.download(), 5);
    }
}

MP_ALL_BACKENDS(AdamwCombinations);

// ---- what is refused ---------------------------------------------------------------------------

UpdateSegment segment_of(const Combination& c, unsigned char* memory) {
    UpdateSegment s;
    auto* scale = reinterpret_cast<float*>(memory);
    const auto scale_if = [&](const Form& form) {
        return form.coding == Coding::scaled || has_blocks(form.coding) ? scale : nullptr;
    };
    s.count = 1;
    s.param.data = s.grad.data = s.states[0].data = s.states[1].data = memory;
    s.param.dtype = c.param.dtype;
    s.grad.dtype = c.grad.dtype;
    s.states[0].dtype = c.first.dtype;
    s.states[1].dtype = c.second.dtype;
    s.compensation.dtype = c.compensation;
    s.compensation.data = c.compensation == kNone ? nullptr : memory;
    s.master.dtype = c.master.dtype;
    s.master.data = c.master.dtype == kNone ? nullptr : memory;
    s.param.scale_inv = scale_if(c.param);
    s.grad.scale_inv = scale_if(c.grad);
    s.states[0].scale_inv = scale_if(c.first);
    s.states[1].scale_inv = scale_if(c.second);
    s.master.scale_inv = scale_if(c.master);
    s.states[0].coding = has_blocks(c.first.coding) ? c.first.coding : Coding::plain;
    s.states[1].coding = has_blocks(c.second.coding) ? c.second.coding : Coding::plain;
    s.master.coding = c.master.coding == Coding::remainder ? Coding::remainder : Coding::plain;
    return s;
}

TEST(AdamwCombinationsRefused, UnsoundOnesWithTheirReason) {
    alignas(16) unsigned char memory[16] = {};
    int64_t refused = 0;
    for (const Combination& c : generated(RuleId::adamw)) {
        std::string message;
        try {
            optim::check_segment(segment_of(c, memory), "here");
        } catch (const Error& error) {
            message = error.what();
        }
        const std::vector<std::string> wrong = reasons(c);
        if (wrong.empty()) {
            ASSERT_EQ(message, "");
            continue;
        }
        ++refused;
        ASSERT_EQ(message.rfind("here: ", 0), 0U);
        const bool is_named = std::any_of(wrong.begin(), wrong.end(), [&](const std::string& text) {
            return message.find(text) != std::string::npos;
        });
        ASSERT_TRUE(is_named) << message;
    }
    EXPECT_EQ(refused, 7 * 10 * 10 * 5 * 6 * 4 - 7 * 10 * 9 * 25);
}

} // namespace
} // namespace mp::test
