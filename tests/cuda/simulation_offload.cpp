// SPDX-License-Identifier: Apache-2.0
// Copies from pinned memory, and the step on the host that lives by them: nobody waits but where the host needs numbers.
#include "../core/core_context.hpp"
#include "optim/optimizer.hpp"
#include "simulation.hpp"

namespace mp::test {
namespace {

// What core pinned is copied from its place, as late as the device likes; all other memory is free when the call returns.
TEST_F(Simulation, PinnedMemoryIsNeitherStagedNorWaitedFor) {
    TestDevice on(backend(), 1);
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    std::vector<unsigned char> source(kBytes);
    void* memory = nullptr;
    check(on.device().allocate(kBytes, &memory));
    const auto arrives = [&](std::size_t offset, std::size_t bytes) {
        std::fill(source.begin(), source.end(), static_cast<unsigned char>(1));
        check(on.device().copy(on.queue(), memory, source.data() + offset, bytes,
                               CopyKind::host_to_device));
        std::fill(source.begin(), source.end(), static_cast<unsigned char>(2));
        unsigned char first = 0;
        check(on.device().copy(on.queue(), &first, memory, 1, CopyKind::device_to_host));
        on.sync();
        return static_cast<int>(first);
    };
    EXPECT_EQ(arrives(0, kBytes), 1);
    check(on.device().pin(source.data(), kBytes - 4096));
    const int64_t syncs = control().syncs;
    EXPECT_EQ(arrives(0, kBytes - 4096), 2);
    EXPECT_EQ(arrives(64, 4), 2);
    EXPECT_EQ(control().syncs, syncs + 2) << "each test's own";
    EXPECT_EQ(arrives(kBytes - 4095, 4095), 1) << "beside it";
    on.device().unpin(source.data(), kBytes - 4096);
    EXPECT_EQ(arrives(0, kBytes), 1);
    on.device().release(memory, kBytes);
}

TEST_F(Simulation, MemoryThatCannotBePinnedIsNotTakenForPinned) {
    TestDevice on(backend(), 1);
    std::vector<unsigned char> source(std::size_t{1} << 20, 1);
    void* memory = nullptr;
    check(on.device().allocate(source.size(), &memory));
    control().fail_in = 1;
    EXPECT_FALSE(on.device().pin(source.data(), source.size()).ok());
    check(on.device().copy(on.queue(), memory, source.data(), source.size(),
                           CopyKind::host_to_device));
    source[0] = 2;
    unsigned char first = 0;
    check(on.device().copy(on.queue(), &first, memory, 1, CopyKind::device_to_host));
    on.sync();
    EXPECT_EQ(first, 1);
    on.device().release(memory, source.size());
}

// Three buckets of two parameters, whose staging memory is used twice in a step.
class OffloadedSteps {
  public:
    static constexpr int32_t kParameters = 6;
    static constexpr int64_t kCount = 2200000;
    static constexpr int kBuckets = 3;

    explicit OffloadedSteps(const Backend* accelerator, bool has_grads = false)
        : context_(std::make_shared<Context>(context_options(), enabled_backends(), accelerator)),
          optimizer_(context_, recipe::find_preset("fp32").recipe, options(has_grads)) {
        optimizer_.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
        for (int32_t i = 0; i < kParameters; ++i) {
            optim::NewParameter parameter;
            parameter.name = std::to_string(i);
            parameter.param =
                std::make_shared<Tensor>(context_, stream(), DType::fp32, mp::Shape{{kCount}, 1});
            fill(*parameter.param, static_cast<uint64_t>(i));
            optimizer_.add_parameter(stream(), 0, parameter);
            optimizer_.parameters().acquire_grad(stream(), i);
            fill(*optimizer_.parameters().state(i, "grad"), static_cast<uint64_t>(100 + i));
        }
    }
    void acquire() {
        for (int32_t i = 0; i < kParameters; ++i) {
            optimizer_.parameters().acquire_grad(stream(), i);
        }
    }
    void send() {
        for (int32_t i = 0; i < kParameters; ++i) {
            optimizer_.parameters().grad_ready(stream(), i);
        }
    }
    void step() { optimizer_.step(stream(), nullptr); }
    [[nodiscard]] std::vector<float> weight(int32_t index) {
        std::vector<float> values(kCount);
        const Tensor& tensor = *optimizer_.parameters()[index].param;
        stream().copy(values.data(), tensor.data(), tensor.bytes(), CopyKind::device_to_host);
        stream().sync();
        return values;
    }

  private:
    static optim::OptimizerOptions options(bool has_grads) {
        optim::OptimizerOptions options;
        options.offload = true;
        options.offload_grads = has_grads;
        return options;
    }
    [[nodiscard]] Stream& stream() const { return context_->stream(); }
    void fill(const Tensor& tensor, uint64_t seed) {
        std::vector<float> values(kCount);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>((i * 7 + seed * 13) % 61) / 32.0F - 1.0F;
        }
        stream().copy(tensor.data(), values.data(), tensor.bytes(), CopyKind::host_to_device);
    }

    std::shared_ptr<Context> context_;
    optim::Optimizer optimizer_;
};

TEST_F(Simulation, OffloadedWeightsLeaveWithoutAWait) {
    OffloadedSteps offloaded(&backend());
    OffloadedSteps expected(nullptr);
    offloaded.step();
    expected.step();
    const int64_t before = control().syncs;
    offloaded.step();
    // The decision, each bucket's gradients, and the two queues at the end.
    EXPECT_EQ(control().syncs - before, 1 + OffloadedSteps::kBuckets + 2);
    expected.step();
    for (int32_t i = 0; i < OffloadedSteps::kParameters; ++i) {
        EXPECT_EQ(offloaded.weight(i), expected.weight(i)) << i;
    }
}

// They leave during backward, and nobody waits; the step waits for them once, and for no bucket.
TEST_F(Simulation, GradientsLeaveForTheHostWithoutAWait) {
    OffloadedSteps offloaded(&backend(), true);
    OffloadedSteps expected(nullptr);
    offloaded.step();
    expected.step();
    const int64_t before = control().syncs;
    offloaded.acquire(); // as they were
    offloaded.send();
    EXPECT_EQ(control().syncs, before);
    const int64_t again = control().syncs;
    offloaded.step();
    // The gradients, the decision, each bucket's memory, and the two queues at the end.
    EXPECT_EQ(control().syncs - again, 1 + 1 + OffloadedSteps::kBuckets + 2);
    expected.step();
    for (int32_t i = 0; i < OffloadedSteps::kParameters; ++i) {
        EXPECT_EQ(offloaded.weight(i), expected.weight(i)) << i;
    }
}

// One that another library works on; only events were recorded in it.
TEST_F(Simulation, AQueueOverABusyStreamEndsWithoutWaiting) {
    TestDevice on(backend(), 1);
    void* memory = nullptr;
    check(on.device().allocate(16, &memory));
    check(on.device().zero(on.queue(), memory, 16));
    Queue* made = nullptr;
    check(on.device().create_queue(on.queue().native(), &made));
    std::unique_ptr<Queue> wrapped(made);
    Event* event = nullptr;
    check(on.device().create_event(&event));
    const std::unique_ptr<Event> owner(event);
    check(event->record(*wrapped));
    const int64_t syncs = control().syncs;
    wrapped.reset();
    EXPECT_EQ(control().syncs, syncs);
    bool is_reached = true;
    check(event->test(&is_reached));
    EXPECT_FALSE(is_reached);
    on.sync();
    on.device().release(memory, 16);
}

} // namespace
} // namespace mp::test
