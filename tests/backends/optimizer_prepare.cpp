// SPDX-License-Identifier: Apache-2.0
// optimizer_prepare on every backend: the one decision of a step, and the scalars of the groups.
#include <cmath>
#include <limits>

#include "harness.hpp"

namespace mp::test {
namespace {

using numerics::GroupHyper;
using numerics::GroupScalars;
using numerics::LossScaleState;
using numerics::OptimizerState;

struct Prepared {
    OptimizerState state;
    LossScaleState scaler;
    std::vector<GroupScalars> scalars;
    std::vector<int64_t> group_steps;
};

struct PrepareCase {
    OptimizerState state;
    bool has_scaler = false;
    LossScaleState scaler;
    std::vector<GroupHyper> hyper;
    std::vector<int64_t> group_steps; // empty: state.step of each
    std::vector<float> device_lr;     // by group; empty, or 0: none
    float device_grad_scale = 0.0F;   // 0: none
    float device_grad_mul = 0.0F;     // 0: none
    bool device_values = false;       // the first group's five, by pointer
    bool device_step = false;         // the count, in the memory of the first group's
    numerics::StepRule rule;
};

// What no test may find in the result by accident.
constexpr float kUntouched = -77.0F;

bool prepare(TestDevice& on, const Candidate& candidate, const PrepareCase& c, Prepared& result) {
    DeviceValue<OptimizerState> state(on, c.state);
    DeviceValue<LossScaleState> scaler(on, c.scaler);
    const DeviceBytes lr(on, c.device_lr.data(), c.device_lr.size() * sizeof(float));
    const DeviceValue<float> grad_scale(on, c.device_grad_scale);
    std::vector<GroupHyper> host_hyper = c.hyper;
    for (std::size_t i = 0; i < c.device_lr.size(); ++i) {
        host_hyper[i].device_lr = c.device_lr[i] == 0.0F ? nullptr : lr.as<float>() + i;
    }
    const DeviceValue<float> grad_mul(on, c.device_grad_mul);
    std::vector<double> five(5);
    if (c.device_values) {
        GroupHyper& given = host_hyper.front();
        five = {given.lr, given.beta1, given.beta2, given.eps, given.weight_decay};
        given.lr = given.beta1 = given.beta2 = given.eps = given.weight_decay = 0.5;
    }
    const DeviceBytes values_on_device(on, five.data(), five.size() * sizeof(double));
    if (c.device_values) {
        host_hyper.front().device_values = values_on_device.as<double>();
    }
    const DeviceBytes hyper(on, host_hyper.data(), host_hyper.size() * sizeof(GroupHyper));
    result.group_steps = c.group_steps;
    result.group_steps.resize(c.hyper.size(), c.state.step);
    DeviceBytes steps(on, result.group_steps.data(), c.hyper.size() * sizeof(int64_t));
    GroupScalars untouched;
    numerics::Adamw::Scalars values{};
    values.step_size = kUntouched;
    untouched.set(values);
    result.scalars.assign(c.hyper.size(), untouched);
    DeviceBytes scalars(on, result.scalars.data(), c.hyper.size() * sizeof(GroupScalars));
    OptimizerPrepareDesc op{};
    op.kind = OpKind::optimizer_prepare;
    op.state = state.data();
    op.scaler = c.has_scaler ? scaler.data() : nullptr;
    op.hyper = hyper.as<GroupHyper>();
    op.group_steps = steps.as<int64_t>();
    op.scalars = scalars.as<GroupScalars>();
    op.group_count = static_cast<int32_t>(c.hyper.size());
    op.rule = c.rule;
    op.rule.device_grad_mul = c.device_grad_mul == 0.0F ? nullptr : grad_mul.data();
    op.rule.device_step = c.device_step ? steps.as<int64_t>() : nullptr;
    op.rule.device_grad_scale = c.device_grad_scale == 0.0F ? nullptr : grad_scale.data();
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    result.state = state.download();
    result.scaler = scaler.download();
    scalars.download(result.scalars.data());
    steps.download(result.group_steps.data());
    return true;
}

// As bytes: none of these structs has padding, and NaN does not occur in them but in sum_squares,
// which goes through unchanged.
template <typename T> bool same_bytes(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

std::vector<GroupHyper> some_hyper(std::size_t groups) {
    std::vector<GroupHyper> hyper(groups);
    for (std::size_t i = 0; i < groups; ++i) {
        const auto x = static_cast<double>(i);
        hyper[i] = {1e-3 / (1.0 + x), 0.9 - 0.01 * x, 0.999 - 0.001 * x, 1e-8 * (1.0 + x),
                    0.01 * x};
    }
    return hyper;
}

std::vector<PrepareCase> all_cases() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    std::vector<PrepareCase> cases;
    for (const double sum : {0.0, 1e-300, 0.3, 1e4, 1e70, kInfinity, std::nan("")}) {
        for (const int64_t step : {int64_t{0}, int64_t{1}, int64_t{9999}, int64_t{1} << 40}) {
            for (uint32_t bits = 0; bits < 16; ++bits) {
                PrepareCase c;
                c.state.step = step;
                c.state.skipped_steps = 3;
                c.state.sum_squares = sum;
                c.has_scaler = (bits & 1U) != 0;
                c.scaler.scale = 3072.0F;
                c.scaler.found_inf = (bits & 2U) != 0 ? 1.0F : 0.0F;
                c.rule.has_stats = (bits >> 2) & 1U;
                c.rule.max_grad_norm = (bits & 8U) != 0 ? 0.7 : 0.0;
                c.rule.grad_scale = (bits & 8U) != 0 ? 3.0 : 1.0;
                c.hyper = some_hyper(static_cast<std::size_t>(step % 5));
                if ((bits & 8U) != 0) {
                    c.device_grad_scale = sum == 0.3 ? 6.0F : 0.0F;
                    for (std::size_t i = 0; i < c.hyper.size(); ++i) {
                        c.hyper[i].enabled = i != 1;
                        c.group_steps.push_back(static_cast<int64_t>(7 * i));
                        c.device_lr.push_back(i == 2 ? 0.125F : 0.0F);
                    }
                }
                cases.push_back(c);
            }
        }
    }
    return cases;
}

class OptimizerPrepare : public BackendTest {};

TEST_P(OptimizerPrepare, EqualsTheReference) {
    for (const PrepareCase& c : all_cases()) {
        Prepared expected;
        ASSERT_TRUE(prepare(reference_device(), reference_candidate(OpKind::optimizer_prepare), c,
                            expected));
        const int32_t supporting = for_each_candidate(
            device(), OpKind::optimizer_prepare, [&](const Candidate& candidate) {
                Prepared result;
                if (!prepare(device(), candidate, c, result)) {
                    return false;
                }
                EXPECT_TRUE(same_bytes(expected.state, result.state));
                EXPECT_TRUE(same_bytes(expected.scaler, result.scaler));
                EXPECT_EQ(expected.group_steps, result.group_steps);
                for (std::size_t i = 0; i < c.hyper.size(); ++i) {
                    EXPECT_TRUE(same_bytes(expected.scalars[i], result.scalars[i])) << i;
                }
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
}

TEST_P(OptimizerPrepare, EqualsTheReferenceForManyGroups) {
    for (const std::size_t groups : {1U, 31U, 257U}) {
        PrepareCase c;
        c.state.step = 16;
        c.hyper = some_hyper(groups);
        Prepared expected;
        Prepared result;
        ASSERT_TRUE(prepare(reference_device(), reference_candidate(OpKind::optimizer_prepare), c,
                            expected));
        ASSERT_TRUE(prepare(
            device(), device().device().candidates(OpKind::optimizer_prepare).items[0], c, result));
        for (std::size_t i = 0; i < groups; ++i) {
            EXPECT_TRUE(same_bytes(expected.scalars[i], result.scalars[i])) << i;
        }
    }
}

MP_COMPARE_BACKENDS(OptimizerPrepare);

// A window that fills, an outlier, one that is not finite, and a loss: the state and the window after each step.
TEST_P(OptimizerPrepare, GuardsAsTheReferenceDoes) {
    const auto guarded_steps = [](TestDevice& on, const Candidate& candidate) {
        numerics::OptimizerState now;
        numerics::GuardState seen;
        std::vector<unsigned char> all;
        double loss = 3.0;
        for (const double norm : {1.0, 2.0, 1.5, 40.0, std::nan(""), 1.25, 7.0}) {
            now.sum_squares = norm * norm;
            DeviceValue<numerics::OptimizerState> state(on, now);
            DeviceValue<numerics::GuardState> guard(on, seen);
            OptimizerPrepareDesc op{};
            op.kind = OpKind::optimizer_prepare;
            op.state = state.data();
            op.rule.has_stats = 1;
            op.rule.guard = guard.data();
            op.rule.guard_rule = {{3.0, 2.0}, 3, 0, loss *= 1.125};
            EXPECT_TRUE(supports(on, candidate, op));
            run(on, candidate, op);
            now = state.download();
            seen = guard.download();
            now.grad_norm = std::isnan(now.grad_norm) ? 0.0 : now.grad_norm;
            now.sum_squares = 0.0;
            now.norm = 0.0F;
            const auto* bytes = reinterpret_cast<const unsigned char*>(&now);
            all.insert(all.end(), bytes, bytes + sizeof now);
        }
        EXPECT_EQ(now.outlier_steps, 3); // 40 beside 1 to 2, and losses that grow by an eighth
        const auto* bytes = reinterpret_cast<const unsigned char*>(&seen);
        all.insert(all.end(), bytes, bytes + sizeof seen);
        return all;
    };
    const auto expected =
        guarded_steps(reference_device(), reference_candidate(OpKind::optimizer_prepare));
    for_each_candidate(device(), OpKind::optimizer_prepare, [&](const Candidate& candidate) {
        EXPECT_EQ(guarded_steps(device(), candidate), expected);
        return true;
    });
}

class OptimizerPrepareValues : public BackendTest {
  protected:
    Prepared run_case(const PrepareCase& c) {
        Prepared result;
        EXPECT_TRUE(prepare(
            device(), device().device().candidates(OpKind::optimizer_prepare).items[0], c, result));
        return result;
    }
};

TEST_P(OptimizerPrepareValues, TakesAStepAndItsScalars) {
    PrepareCase c;
    c.state.step = 4;
    c.hyper = {{1e-3, 0.9, 0.999, 1e-8, 0.1}};
    const Prepared result = run_case(c);
    EXPECT_EQ(result.state.step, 5);
    EXPECT_EQ(result.state.skip, 0U);
    EXPECT_EQ(result.state.skipped_steps, 0);
    EXPECT_EQ(result.state.grad_mul, 1.0);
    EXPECT_EQ(result.scalars[0].grad_mul, 1.0F);
    const auto s = result.scalars[0].as<numerics::Adamw>();
    EXPECT_EQ(s.beta2, 0.999F);
    EXPECT_EQ(s.one_minus_beta2, static_cast<float>(1.0 - 0.999)); // not 1 - 0.999F
    EXPECT_FLOAT_EQ(s.step_size, static_cast<float>(1e-3 / (1.0 - std::pow(0.9, 5))));
    EXPECT_FLOAT_EQ(s.inv_sqrt_bias2,
                    static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(0.999, 5))));
    EXPECT_EQ(s.decay, static_cast<float>(1e-3 * 0.1));
}

// torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), at most 1.
TEST_P(OptimizerPrepareValues, UnscalesAndClips) {
    PrepareCase c;
    c.hyper = some_hyper(1);
    c.has_scaler = true;
    c.scaler.scale = 1024.0F;
    c.rule.has_stats = 1;
    c.rule.max_grad_norm = 0.5;
    c.state.sum_squares = 4.0 * 1024.0 * 1024.0; // norm 2 when unscaled
    Prepared result = run_case(c);
    EXPECT_DOUBLE_EQ(result.state.grad_norm, 2.0);
    EXPECT_DOUBLE_EQ(result.state.grad_mul, 0.5 / (2.0 + 1e-6) / 1024.0);
    EXPECT_EQ(result.scalars[0].grad_mul, static_cast<float>(result.state.grad_mul));
    c.rule.max_grad_norm = 3.0;
    result = run_case(c);
    EXPECT_DOUBLE_EQ(result.state.grad_mul, 1.0 / 1024.0);
    c.rule.grad_scale = 8.0; // as a mean over 8 micro-batches
    result = run_case(c);
    EXPECT_DOUBLE_EQ(result.state.grad_norm, 0.25);
    EXPECT_DOUBLE_EQ(result.state.grad_mul, 1.0 / 8192.0);
}

TEST_P(OptimizerPrepareValues, SkipsAndCountsAndTellsTheScaler) {
    PrepareCase c;
    c.state.step = 4;
    c.state.skipped_steps = 2;
    c.hyper = some_hyper(2);
    c.has_scaler = true;
    c.rule.has_stats = 1;
    c.state.sum_squares = std::numeric_limits<double>::infinity();
    Prepared result = run_case(c);
    EXPECT_EQ(result.state.skip, 1U);
    EXPECT_EQ(result.state.step, 4);
    EXPECT_EQ(result.state.skipped_steps, 3);
    EXPECT_EQ(result.scaler.found_inf, 1U);
    EXPECT_EQ(result.scalars[0].as<numerics::Adamw>().step_size, kUntouched);
    // Found by somebody else, for example on another rank.
    c.state.sum_squares = 1.0;
    c.scaler.found_inf = 1;
    result = run_case(c);
    EXPECT_EQ(result.state.skip, 1U);
    EXPECT_EQ(result.state.step, 4);
    // The next good step is not skipped.
    c.scaler.found_inf = 0;
    c.state = result.state;
    result = run_case(c);
    EXPECT_EQ(result.state.skip, 0U);
    EXPECT_EQ(result.state.step, 5);
    EXPECT_EQ(result.scaler.found_inf, 0.0F);
}

// Each group counts the steps it takes part in; a skipped step is one of nobody.
TEST_P(OptimizerPrepareValues, GroupsCountTheirOwnSteps) {
    PrepareCase c;
    c.state.step = 50;
    c.hyper = std::vector<GroupHyper>(3, GroupHyper{1e-3, 0.9, 0.999, 1e-8, 0.0});
    c.hyper[1].enabled = false;
    c.group_steps = {0, 0, 9};
    c.rule.has_stats = 1;
    Prepared result = run_case(c);
    EXPECT_EQ(result.state.step, 51);
    EXPECT_EQ(result.group_steps, (std::vector<int64_t>{1, 0, 10}));
    EXPECT_FLOAT_EQ(result.scalars[0].as<numerics::Adamw>().step_size, 1e-2F); // lr / (1 - 0.9)
    EXPECT_EQ(result.scalars[1].as<numerics::Adamw>().step_size, kUntouched);
    EXPECT_FLOAT_EQ(result.scalars[2].as<numerics::Adamw>().step_size,
                    static_cast<float>(1e-3 / (1.0 - std::pow(0.9, 10))));
    c.state.sum_squares = std::nan("");
    result = run_case(c);
    EXPECT_EQ(result.group_steps, c.group_steps);
}

TEST_P(OptimizerPrepareValues, ReadsNumbersInDeviceMemory) {
    PrepareCase c;
    c.hyper = std::vector<GroupHyper>(2, GroupHyper{1e-3, 0.0, 0.0, 1e-8, 0.5});
    c.device_lr = {0.0F, 0.25F};
    c.device_grad_scale = 4.0F;
    c.rule.grad_scale = 8.0; // both are divided out
    const Prepared result = run_case(c);
    EXPECT_EQ(result.state.grad_mul, 0.03125);
    EXPECT_EQ(result.scalars[0].as<numerics::Adamw>().step_size, 1e-3F);
    EXPECT_EQ(result.scalars[1].as<numerics::Adamw>().step_size, 0.25F);
    EXPECT_EQ(result.scalars[1].as<numerics::Adamw>().decay, 0.125F);
}

// The count of steps, all five hyperparameters and a factor: the bits of the same numbers in the launch.
TEST_P(OptimizerPrepareValues, CountsInDeviceMemory) {
    PrepareCase plain;
    plain.hyper = {GroupHyper{3e-3, 0.8, 0.99, 1e-7, 0.25}};
    plain.state.step = 41;
    plain.rule.grad_scale = 4.0;
    plain.rule.has_stats = 1;
    PrepareCase c = plain;
    c.state.step = -7; // not read
    c.group_steps = {41};
    c.device_step = true;
    c.device_values = true;
    c.device_grad_mul = 0.5F;
    plain.rule.grad_scale = 8.0;
    const Prepared expected = run_case(plain);
    const Prepared result = run_case(c);
    EXPECT_EQ(result.state.step, 42);
    EXPECT_EQ(result.group_steps, (std::vector<int64_t>{42}));
    EXPECT_TRUE(same_bytes(result.scalars[0], expected.scalars[0]));
    EXPECT_EQ(result.state.grad_mul, expected.state.grad_mul);
    c.state.sum_squares = std::nan("");
    EXPECT_EQ(run_case(c).group_steps, c.group_steps); // a skipped step does not count
}

MP_ALL_BACKENDS(OptimizerPrepareValues);

} // namespace
} // namespace mp::test
