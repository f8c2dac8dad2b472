// SPDX-License-Identifier: Apache-2.0
// First values on the simulated device, of parameters that were deferred: the host's bits, wherever the states are.
#include "../core/core_context.hpp"
#include "optim/first_values.hpp"
#include "simulation.hpp"

namespace mp::test {
namespace {

constexpr int64_t kCount = 40000;

std::vector<unsigned char> bytes_of(Stream& stream, const Tensor& tensor) {
    std::vector<unsigned char> bytes(tensor.bytes());
    stream.copy(bytes.data(), tensor.data(), bytes.size(), CopyKind::device_to_host);
    stream.sync();
    return bytes;
}

// The weight, and all the bits that the optimizer has of it.
std::vector<std::vector<unsigned char>> values_on(const Backend* accelerator, const char* recipe,
                                                  bool offload) {
    const auto context =
        std::make_shared<Context>(context_options(), enabled_backends(), accelerator);
    Stream& stream = context->stream();
    optim::OptimizerOptions options;
    options.offload = offload;
    const recipe::Recipe& policy = recipe::find_preset(recipe).recipe;
    optim::Optimizer optimizer(context, policy, options);
    optimizer.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
    optim::NewParameter parameter;
    parameter.name = "w";
    parameter.param = std::make_shared<Tensor>(context, stream, dtype_of(policy.weight),
                                               mp::Shape{{kCount}, 1}, Deferred{});
    optimizer.add_parameter(stream, 0, parameter);
    const std::vector<int32_t> indices = {0};
    optim::set_first_values(optimizer, stream, indices, [&] {
        return std::make_unique<optim::RuleSource>(
            optimizer.parameters(), 3, indices,
            std::vector<numerics::InitRule>{{numerics::InitKind::normal, 0.0, 0.02}});
    });
    Stream& states = optimizer.parameters().state_stream(0, stream);
    const Tensor exact(context, states, DType::fp32, mp::Shape{{kCount}, 1});
    read_state(stream, optimizer.parameters(), 0, "fp32_param", exact);
    return {bytes_of(stream, *parameter.param), bytes_of(states, exact)};
}

TEST_F(Simulation, FirstValuesAreThoseOfTheHost) {
    for (const char* recipe : {"fp32", "bf16_pure_kahan", "bf16_pure_remainder", "fp16_mixed"}) {
        const auto expected = values_on(nullptr, recipe, false);
        EXPECT_NE(expected[0], std::vector<unsigned char>(expected[0].size()));
        for (const bool offload : {false, true}) {
            EXPECT_EQ(values_on(&backend(), recipe, offload), expected) << recipe << offload;
        }
    }
}

} // namespace
} // namespace mp::test
