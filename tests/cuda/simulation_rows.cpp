// SPDX-License-Identifier: Apache-2.0
// The rows of the AdamW kernel, thread by thread on the simulated device.
#include "simulation.hpp"

namespace mp::test {
namespace {

struct Row {
    const char* name;
    Layout layout;
    uint32_t stochastic;
};

enum : uint32_t { kSrNone = 0, kSrParam = 1, kSrState0 = 2, kSrState1 = 4 };

const Row kRows[] = {
#define X(name, param, grad, exp_avg, exp_avg_sq, compensation, master, sr)                        \
    {#name,                                                                                        \
     {DType::param, DType::grad, DType::exp_avg, DType::exp_avg_sq, DType::compensation,           \
      DType::master},                                                                              \
     (sr)},
#include "cuda/update_rows.def"
#undef X
};

std::vector<ParamArrays> step(TestDevice& on, const std::vector<ParamArrays>& params,
                              uint32_t stochastic) {
    Launch launch(on, params);
    numerics::OptimizerState host_state;
    host_state.step = 5;
    const DeviceValue<numerics::OptimizerState> state(on, host_state);
    const DeviceValue<numerics::GroupScalars> scalars(
        on, numerics::group_scalars({1e-2, 0.9, 0.99, 1e-8, 0.1}, 5, 0.5));
    OptimizerUpdateDesc op{};
    op.kind = OpKind::optimizer_update;
    op.table = launch.table();
    op.scalars = scalars.data();
    op.state = state.data();
    op.seed = 99;
    op.stochastic_param = (stochastic & kSrParam) != 0;
    op.stochastic_states[0] = (stochastic & kSrState0) != 0;
    op.stochastic_states[1] = (stochastic & kSrState1) != 0;
    op.zero_grad = true;
    check(
        on.device().candidates(OpKind::optimizer_update).items[0].run(on.device(), on.queue(), op));
    std::vector<ParamArrays> result;
    for (std::size_t i = 0; i < params.size(); ++i) {
        result.push_back(launch.download(i));
    }
    return result;
}

// A row alone in a launch, and beside a segment of another layout, which takes the generic kernel.
TEST_F(Simulation, EveryAdamwRowHasTheReferencesBits) {
    TestDevice on(backend(), 1);
    for (const Row& row : kRows) {
        SCOPED_TRACE(row.name);
        for (const int64_t count : {int64_t{1}, int64_t{8}, int64_t{16391}, int64_t{32768}}) {
            for (const int64_t offset : {int64_t{0}, int64_t{1}, int64_t{8}}) {
                ParamArrays arrays = make_param(row.layout, count, Content::normal, 7);
                arrays.offset = offset;
                Layout other = row.layout;
                other.grad = other.grad == DType::fp16 ? DType::fp32 : DType::fp16;
                const ParamArrays beside = make_param(other, 9, Content::normal, 8);
                const ParamArrays expected = step(reference_device(), {arrays}, row.stochastic)[0];
                for (const auto& params : {std::vector{arrays}, std::vector{arrays, beside}}) {
                    const ParamArrays result = step(on, params, row.stochastic)[0];
                    const NanRule rule = NanRule::same_bits;
                    EXPECT_TRUE(same_bits(expected.param, result.param, rule));
                    EXPECT_TRUE(same_bits(expected.grad, result.grad, rule));
                    EXPECT_TRUE(same_bits(expected.exp_avg, result.exp_avg, rule));
                    EXPECT_TRUE(same_bits(expected.exp_avg_sq, result.exp_avg_sq, rule));
                    EXPECT_TRUE(same_bits(expected.compensation, result.compensation, rule));
                    EXPECT_TRUE(same_bits(expected.master, result.master, rule));
                }
            }
        }
    }
}

// No row has it: a launch of a row's types takes the generic kernel.
TEST_F(Simulation, HalvesGoAwayFromZeroAsInTheReference) {
    TestDevice on(backend(), 1);
    Layout layout = {DType::bf16, DType::fp32, DType::fp32, DType::fp32, DType::none, DType::fp32};
    layout.half_away = true;
    for (const int64_t count : {int64_t{1}, int64_t{16391}}) {
        for (const Content content : {Content::normal, Content::patterns}) {
            const ParamArrays arrays = make_param(layout, count, content, 7);
            const ParamArrays expected = step(reference_device(), {arrays}, kSrNone)[0];
            const ParamArrays result = step(on, {arrays}, kSrNone)[0];
            const NanRule rule = NanRule::any_nan; // whose sign is that of either operand
            EXPECT_TRUE(same_bits(expected.param, result.param, rule));
            EXPECT_TRUE(same_bits(expected.master, result.master, rule));
        }
    }
    ParamArrays tie = make_param(layout, 1, Content::normal, 7);
    tie.grad.set(0, 0.0F);
    tie.exp_avg.set(0, 0.0F);
    tie.master.set_code(0, 0x8021U); // of which the decay, 1e-3, takes 0x21
    const ParamArrays result = step(on, {tie}, kSrNone)[0];
    EXPECT_EQ(result.master.code(0), 0x8000U);
    EXPECT_EQ(result.param.code(0), 1U); // to even it would be 0
}

} // namespace
} // namespace mp::test
