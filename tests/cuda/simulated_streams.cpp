// SPDX-License-Identifier: Apache-2.0
// Streams of the simulated device as threads, whose only order is CUDA's: launches, events, waits and frees. Under the thread
// sanitizer an order that is missing is a report; elsewhere these tests compare results.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "simulation_twin.hpp"

namespace mp::test {
namespace {

// Memory and streams that a program has beside the library.
class SimulatedStreams : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(MP_SIMULATED(cudaSetDevice)(0), cudaSuccess); }
    void TearDown() override {
        EXPECT_EQ(control().misuse, 0);
        EXPECT_EQ(control().wrong_context, 0);
    }
    static Context open_context() {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.device_kind = MP_DEVICE_CUDA;
        mp_context* context = nullptr;
        must(mp_context_create(&desc, &context));
        return Context(context);
    }
    static Queue make_queue(mp_context* context) {
        mp_queue* queue = nullptr;
        must(mp_queue_create(context, &queue));
        return Queue(queue);
    }
    static cudaStream_t make_stream() {
        cudaStream_t stream = nullptr;
        EXPECT_EQ(MP_SIMULATED(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking),
                  cudaSuccess);
        return stream;
    }
    static void destroy(cudaStream_t stream) {
        EXPECT_EQ(MP_SIMULATED(cudaStreamDestroy)(stream), cudaSuccess);
    }
    static void fill(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
        EXPECT_EQ(MP_SIMULATED(cudaMemsetAsync)(memory, value, bytes, stream), cudaSuccess);
    }
};

// ---- the device itself --------------------------------------------------------------------------

// Time for a stream, which is no order. The thread sanitizer may miss two accesses at the very same moment.
void pass_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Two streams write the same memory, ordered by an event or not at all.
void write_from_two_streams(bool in_order) {
    (void)MP_SIMULATED(cudaSetDevice)(0);
    cudaStream_t streams[2];
    for (cudaStream_t& stream : streams) {
        (void)MP_SIMULATED(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking);
    }
    cudaEvent_t event = nullptr;
    (void)MP_SIMULATED(cudaEventCreateWithFlags)(&event, cudaEventDisableTiming);
    void* memory = nullptr;
    (void)MP_SIMULATED(cudaMalloc)(&memory, 64);
    (void)MP_SIMULATED(cudaMemsetAsync)(memory, 1, 64, streams[0]);
    pass_time();
    if (in_order) {
        (void)MP_SIMULATED(cudaEventRecord)(event, streams[0]);
        (void)MP_SIMULATED(cudaStreamWaitEvent)(streams[1], event, 0);
    }
    (void)MP_SIMULATED(cudaMemsetAsync)(memory, 2, 64, streams[1]);
    (void)MP_SIMULATED(cudaFree)(memory);
    (void)MP_SIMULATED(cudaEventDestroy)(event);
    for (cudaStream_t stream : streams) {
        (void)MP_SIMULATED(cudaStreamDestroy)(stream);
    }
}

// The host reads what a stream writes, before or after it has waited.
void read_on_the_host(bool waits) {
    (void)MP_SIMULATED(cudaSetDevice)(0);
    cudaStream_t stream = nullptr;
    (void)MP_SIMULATED(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking);
    void* memory = nullptr;
    (void)MP_SIMULATED(cudaMallocManaged)(&memory, 64, cudaMemAttachGlobal);
    (void)MP_SIMULATED(cudaMemsetAsync)(memory, 1, 64, stream);
    pass_time();
    if (waits) {
        (void)MP_SIMULATED(cudaStreamSynchronize)(stream);
    }
    const volatile char first = *static_cast<const char*>(memory);
    (void)first;
    (void)MP_SIMULATED(cudaFree)(memory);
    (void)MP_SIMULATED(cudaStreamDestroy)(stream);
}

TEST_F(SimulatedStreams, AreInOrderByEventsAndWaits) {
    write_from_two_streams(true);
    read_on_the_host(true);
}

#if defined(__SANITIZE_THREAD__)
// Else a test that finds nothing would show nothing.
TEST_F(SimulatedStreams, AMissingOrderIsReported) {
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
    EXPECT_DEATH(write_from_two_streams(false), "data race");
    EXPECT_DEATH(read_on_the_host(false), "data race");
}
#endif

// ---- the library --------------------------------------------------------------------------------

// Steps on three queues, each behind the one before by an event, and nobody waits: copies of weights, kept inputs, scratch
// memory, optimizer states and scales go from queue to queue.
TEST_F(SimulatedStreams, StepsOnQueuesInTurnHaveTheBitsOfStepsThatWait) {
    for (const char* recipe :
         {"bf16_mixed", "bf16_pure_sr", "fp16_mixed", "fp8_current", "fp8_delayed", "mxfp8"}) {
        SCOPED_TRACE(recipe);
        std::mt19937_64 random(7);
        Twin waiting(recipe);
        Twin enqueuing(recipe);
        for (int i = 0; i < 12; ++i) {
            Step step;
            step.queue = random() % kTwinQueues;
            step.ends = true;
            for (std::size_t pass = 0; pass < 2; ++pass) {
                step.passes.push_back({static_cast<Pass::Kind>(random() % 5),
                                       random() % kTwinLayers, random() % 3, random() % 8 == 0});
            }
            for (Twin* twin : {&waiting, &enqueuing}) {
                twin->take_turn(step.queue);
                twin->run(step);
            }
            waiting.sync();
        }
        EXPECT_EQ(waiting.bits(), enqueuing.bits());
    }
}

// More uploads than there are slots, from memory that is written again at once, between other work.
TEST_F(SimulatedStreams, UploadsLeaveTheSourceToTheHost) {
    const Context context = open_context();
    const Queue queues[] = {make_queue(context), make_queue(context)};
    constexpr int64_t kCount = 1000;
    constexpr int kUploads = 30;
    std::vector<float> values(kCount);
    std::vector<Tensor> tensors;
    for (int i = 0; i < kUploads; ++i) {
        tensors.push_back(make_tensor(context, MP_DTYPE_FP32, {kCount}));
    }
    MP_OK(mp_context_sync(context));
    for (int i = 0; i < kUploads; ++i) {
        const Queue& queue = queues[i % 2];
        MP_OK(mp_tensor_zero(tensors[static_cast<std::size_t>(i)], queue));
        std::fill(values.begin(), values.end(), static_cast<float>(i));
        MP_OK(mp_tensor_write(tensors[static_cast<std::size_t>(i)], queue, values.data(),
                              values.size() * sizeof(float)));
    }
    for (const Queue& queue : queues) {
        MP_OK(mp_queue_sync(queue));
    }
    for (int i = 0; i < kUploads; ++i) {
        EXPECT_EQ(values_of(context, tensors[static_cast<std::size_t>(i)]),
                  std::vector<float>(kCount, static_cast<float>(i)));
    }
}

// Memory that is given back goes to another stream in the same moment, as an allocator that caches would hand it on.
struct Cached {
    void* memory = nullptr;
    cudaStream_t stream = nullptr; // of whoever has it next
    int times = 0;
    static constexpr std::size_t kBytes = 4096 * sizeof(float);

    static void give_back(void* payload) {
        auto& cached = *static_cast<Cached*>(payload);
        ++cached.times;
        const CUcontext caller = MP_SIMULATED(mp_simulated_context)();
        (void)MP_SIMULATED(cudaSetDevice)(0);
        EXPECT_EQ(MP_SIMULATED(cudaMemsetAsync)(cached.memory, 1, kBytes, cached.stream),
                  cudaSuccess);
        MP_SIMULATED(mp_simulated_set_context)(caller);
    }
};

TEST_F(SimulatedStreams, MemoryOfTheCallersComesBackUnused) {
    Cached cached;
    cached.stream = make_stream();
    ASSERT_EQ(MP_SIMULATED(cudaMalloc)(&cached.memory, Cached::kBytes), cudaSuccess);
    {
        const Context context = open_context();
        const Queue queue = make_queue(context);
        const Tensor other = make_tensor(context, MP_DTYPE_FP32, {4096});
        MP_OK(mp_context_sync(context));
        const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {4096});
        for (int i = 1; i <= 20; ++i) {
            mp_tensor* raw = nullptr;
            MP_OK(mp_tensor_wrap(context, &desc, cached.memory, Cached::give_back, &cached, &raw));
            {
                const Tensor tensor(raw);
                MP_OK(mp_tensor_copy(other, queue, tensor));
            }
            MP_OK(mp_queue_sync(queue));
            EXPECT_EQ(cached.times, i);
            ASSERT_EQ(MP_SIMULATED(cudaStreamSynchronize)(cached.stream), cudaSuccess);
        }
    }
    ASSERT_EQ(MP_SIMULATED(cudaFree)(cached.memory), cudaSuccess);
    destroy(cached.stream);
}

// A tensor over managed memory, which the host reads itself once it has waited.
TEST_F(SimulatedStreams, TheHostReadsManagedMemoryAfterAWait) {
    void* memory = nullptr;
    constexpr int64_t kCount = 5000;
    ASSERT_EQ(MP_SIMULATED(cudaMallocManaged)(&memory, kCount * sizeof(float), cudaMemAttachGlobal),
              cudaSuccess);
    {
        const Context context = open_context();
        const Queue queue = make_queue(context);
        const std::vector<float> values = numbers(kCount, 3);
        const Tensor source = make_tensor(context, MP_DTYPE_FP32, {kCount}, values);
        const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {kCount});
        mp_tensor* raw = nullptr;
        MP_OK(mp_tensor_wrap(context, &desc, memory, nullptr, nullptr, &raw));
        const Tensor tensor(raw);
        MP_OK(mp_context_sync(context));
        MP_OK(mp_tensor_copy(source, queue, tensor));
        MP_OK(mp_queue_sync(queue));
        const auto* const first = static_cast<const float*>(memory);
        EXPECT_EQ(std::vector<float>(first, first + kCount), values);
    }
    ASSERT_EQ(MP_SIMULATED(cudaFree)(memory), cudaSuccess);
}

} // namespace
} // namespace mp::test
