// SPDX-License-Identifier: Apache-2.0
// One AdamW step of many parameters by one candidate, and its comparison with the reference.
#pragma once

#include "launch.hpp"

namespace mp::test {

using numerics::GroupHyper;
using numerics::GroupScalars;
using numerics::OptimizerState;

struct StepCase {
    std::vector<ParamArrays> params;
    std::vector<GroupHyper> hyper;
    double grad_mul = 1.0;
    int64_t step = 3;
    uint32_t skip = 0;
    bool stochastic_param = false;
    bool stochastic_states[numerics::kMaxStates] = {};
    bool zero_grad = false;
};

inline bool adamw(TestDevice& on, const Candidate& candidate, const StepCase& c,
                  std::vector<ParamArrays>& result) {
    Launch launch(on, c.params);
    std::vector<GroupScalars> scalars;
    for (const GroupHyper& hyper : c.hyper) {
        scalars.push_back(numerics::group_scalars(hyper, c.step, c.grad_mul));
    }
    const DeviceBytes device_scalars(on, scalars.data(), scalars.size() * sizeof(GroupScalars));
    OptimizerState host_state;
    host_state.step = c.step;
    host_state.grad_mul = c.grad_mul;
    host_state.skip = c.skip;
    const DeviceValue<OptimizerState> state(on, host_state);
    OptimizerUpdateDesc op{};
    op.kind = OpKind::optimizer_update;
    op.table = launch.table();
    op.scalars = device_scalars.as<GroupScalars>();
    op.state = state.data();
    op.seed = 0xfedcba9876543210U;
    op.stochastic_param = c.stochastic_param;
    op.stochastic_states[0] = c.stochastic_states[0];
    op.stochastic_states[1] = c.stochastic_states[1];
    op.zero_grad = c.zero_grad;
    op.scaling = launch.scaling();
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    result.clear();
    for (std::size_t i = 0; i < c.params.size(); ++i) {
        result.push_back(launch.download(i));
    }
    return true;
}

// Whether such a parameter is to be stepped there. A host must; another device says by its supports().
inline bool takes(TestDevice& on, const DeviceChoice& choice, const ParamArrays& arrays) {
    if (choice.backend->kind == DeviceKind::host) {
        return true;
    }
    const Launch launch(on, {arrays});
    OptimizerUpdateDesc op{};
    op.kind = OpKind::optimizer_update;
    op.table = launch.table();
    op.scaling = launch.scaling();
    return first_candidate(on, op) != nullptr;
}

inline std::string describe(const ParamArrays& arrays) {
    std::string text = "p " + std::string(dtype_name(arrays.param.dtype));
    text += std::string(", g ") + dtype_name(arrays.grad.dtype);
    text += std::string(", m ") + dtype_name(arrays.exp_avg.dtype);
    text += std::string(", v ") + dtype_name(arrays.exp_avg_sq.dtype);
    text += std::string(", c ") + dtype_name(arrays.compensation.dtype);
    text += std::string(", master ") + dtype_name(arrays.master.dtype);
    if (has_blocks(arrays.exp_avg_coding) || has_blocks(arrays.exp_avg_sq_coding)) {
        text += ", codings " + std::to_string(static_cast<int32_t>(arrays.exp_avg_coding)) + " " +
                std::to_string(static_cast<int32_t>(arrays.exp_avg_sq_coding));
    }
    if (has_blocks(arrays.compensation_coding)) {
        text += ", c's coding " + std::to_string(static_cast<int32_t>(arrays.compensation_coding));
    }
    return text + ", " + std::to_string(arrays.count()) + " elements";
}

inline void expect_same(const ParamArrays& expected, const ParamArrays& actual) {
    EXPECT_TRUE(same_bits(expected.param, actual.param, NanRule::any_nan)) << "param";
    EXPECT_TRUE(same_bits(expected.grad, actual.grad, NanRule::same_bits)) << "grad";
    EXPECT_TRUE(same_bits(expected.exp_avg, actual.exp_avg, NanRule::any_nan)) << "exp_avg";
    EXPECT_TRUE(same_bits(expected.exp_avg_sq, actual.exp_avg_sq, NanRule::any_nan))
        << "exp_avg_sq";
    EXPECT_TRUE(same_bits(expected.compensation, actual.compensation, NanRule::any_nan))
        << "compensation";
    EXPECT_TRUE(same_bits(expected.master, actual.master, NanRule::any_nan)) << "master";
    EXPECT_EQ(expected.scale_inv, actual.scale_inv);
    EXPECT_TRUE(same_bits(expected.exp_avg_scales, actual.exp_avg_scales, NanRule::any_nan))
        << "scales of exp_avg";
    EXPECT_TRUE(same_bits(expected.exp_avg_sq_scales, actual.exp_avg_sq_scales, NanRule::any_nan))
        << "scales of exp_avg_sq";
    EXPECT_TRUE(
        same_bits(expected.compensation_scales, actual.compensation_scales, NanRule::any_nan))
        << "scales of compensation";
}

// Every byte of every array, NaNs too; or gradients are zero.
inline void expect_unchanged(const std::vector<ParamArrays>& before,
                             const std::vector<ParamArrays>& after, bool zeroes = false) {
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
        const ParamArrays& a = before[i];
        const ParamArrays& b = after[i];
        SCOPED_TRACE("segment " + std::to_string(i) + ": " + describe(a));
        EXPECT_EQ(b.param.bytes, a.param.bytes);
        EXPECT_EQ(b.grad.bytes,
                  zeroes ? decltype(a.grad.bytes)(a.grad.bytes.size()) : a.grad.bytes);
        EXPECT_EQ(b.exp_avg.bytes, a.exp_avg.bytes);
        EXPECT_EQ(b.exp_avg_sq.bytes, a.exp_avg_sq.bytes);
        EXPECT_EQ(b.compensation.bytes, a.compensation.bytes);
        EXPECT_EQ(b.master.bytes, a.master.bytes);
        EXPECT_EQ(b.exp_avg_scales.bytes, a.exp_avg_scales.bytes);
        EXPECT_EQ(b.exp_avg_sq_scales.bytes, a.exp_avg_sq_scales.bytes);
        EXPECT_EQ(b.compensation_scales.bytes, a.compensation_scales.bytes);
        EXPECT_EQ(b.scale_inv, a.scale_inv);
    }
}

inline std::vector<GroupHyper> three_groups() {
    return {
        {1e-3, 0.9, 0.999, 1e-8, 0.1}, {3e-4, 0.8, 0.95, 1e-6, 0.0}, {1e-2, 0.0, 0.9, 1e-7, 1.0}};
}

inline StepCase with_flags(uint32_t bits) {
    StepCase c;
    c.hyper = three_groups();
    c.stochastic_param = (bits & 1U) != 0;
    c.stochastic_states[0] = (bits & 2U) != 0;
    c.stochastic_states[1] = (bits & 4U) != 0;
    c.zero_grad = (bits & 8U) != 0;
    return c;
}

class AdamwComparison : public BackendTest {
  protected:
    void compare(const StepCase& c) {
        std::vector<ParamArrays> expected;
        ASSERT_TRUE(
            adamw(reference_device(), reference_candidate(OpKind::optimizer_update), c, expected));
        const int32_t supporting =
            for_each_candidate(device(), OpKind::optimizer_update, [&](const Candidate& candidate) {
                std::vector<ParamArrays> result;
                if (!adamw(device(), candidate, c, result)) {
                    return false;
                }
                for (std::size_t i = 0; i < c.params.size(); ++i) {
                    SCOPED_TRACE("segment " + std::to_string(i) + ": " + describe(c.params[i]));
                    expect_same(expected[i], result[i]);
                }
                return true;
            });
        if (supporting == 0 && GetParam().backend->kind != DeviceKind::host && !IsSkipped()) {
            GTEST_SKIP() << "skipped: what this device refuses: " << describe(c.params[0]);
        }
        EXPECT_TRUE(supporting > 0 || GetParam().backend->kind != DeviceKind::host);
    }
};

class AdamwStep : public BackendTest {
  protected:
    std::vector<ParamArrays> step(const StepCase& c) {
        std::vector<ParamArrays> result;
        const CandidateList list = device().device().candidates(OpKind::optimizer_update);
        for (int32_t i = 0; i < list.count; ++i) {
            if (adamw(device(), list.items[i], c, result)) {
                return result;
            }
        }
        ADD_FAILURE() << "no candidate";
        return c.params;
    }
};

} // namespace mp::test
