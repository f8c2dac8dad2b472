// SPDX-License-Identifier: Apache-2.0
// That the simulated device is as strict with captures as CUDA's documentation is: else no test on it shows anything.
#include <gtest/gtest.h>

#include <thread>

#include "simulated/api.hpp"

namespace mp::test {
namespace {

class SimulatedDevice : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(MP_SIMULATED(cudaSetDevice)(0), cudaSuccess);
        for (cudaStream_t* stream : {&a_, &b_}) {
            ASSERT_EQ(MP_SIMULATED(cudaStreamCreateWithFlags)(stream, cudaStreamNonBlocking),
                      cudaSuccess);
        }
        ASSERT_EQ(MP_SIMULATED(cudaEventCreateWithFlags)(&event_, cudaEventDisableTiming),
                  cudaSuccess);
        ASSERT_EQ(MP_SIMULATED(cudaMalloc)(&memory_, 64), cudaSuccess);
    }
    void TearDown() override {
        EXPECT_EQ(MP_SIMULATED(cudaFree)(memory_), cudaSuccess);
        EXPECT_EQ(MP_SIMULATED(cudaEventDestroy)(event_), cudaSuccess);
        for (cudaStream_t stream : {a_, b_}) {
            EXPECT_EQ(MP_SIMULATED(cudaStreamDestroy)(stream), cudaSuccess);
        }
        EXPECT_EQ(control().misuse, expected_misuses_);
        control().misuse = 0;
        EXPECT_EQ(control().wrong_context, 0);
    }

    static cudaError_t begin(cudaStream_t stream,
                             cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
        return MP_SIMULATED(cudaStreamBeginCapture)(stream, mode);
    }
    static cudaStreamCaptureStatus status(cudaStream_t stream) {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        EXPECT_EQ(MP_SIMULATED(cudaStreamIsCapturing)(stream, &status), cudaSuccess);
        return status;
    }
    static cudaError_t exchange_mode(cudaStreamCaptureMode mode) {
        return MP_SIMULATED(cudaThreadExchangeStreamCaptureMode)(&mode);
    }
    cudaError_t fill(cudaStream_t stream, int value) const {
        return MP_SIMULATED(cudaMemsetAsync)(memory_, value, 64, stream);
    }
    cudaError_t record(cudaStream_t stream) const {
        return MP_SIMULATED(cudaEventRecord)(event_, stream);
    }
    cudaError_t wait(cudaStream_t stream) const {
        return MP_SIMULATED(cudaStreamWaitEvent)(stream, event_, 0);
    }
    static cudaError_t allocate() {
        void* memory = nullptr;
        const cudaError_t error = MP_SIMULATED(cudaMalloc)(&memory, 16);
        if (error == cudaSuccess) {
            EXPECT_EQ(MP_SIMULATED(cudaFree)(memory), cudaSuccess);
        }
        return error;
    }
    static cudaError_t in_other_thread(const std::function<cudaError_t()>& call) {
        cudaError_t result = cudaSuccess;
        std::thread([&] {
            (void)MP_SIMULATED(cudaSetDevice)(0);
            result = call();
        }).join();
        return result;
    }
    unsigned char first_byte() const {
        unsigned char value = 0;
        EXPECT_EQ(MP_SIMULATED(cudaMemcpyAsync)(&value, memory_, 1, cudaMemcpyDeviceToHost, a_),
                  cudaSuccess);
        EXPECT_EQ(MP_SIMULATED(cudaStreamSynchronize)(a_), cudaSuccess);
        return value;
    }

    cudaStream_t a_ = nullptr;
    cudaStream_t b_ = nullptr;
    cudaEvent_t event_ = nullptr;
    void* memory_ = nullptr;
    int64_t expected_misuses_ = 0;
};

TEST_F(SimulatedDevice, AGraphIsDoneAtEachLaunchOnly) {
    ASSERT_EQ(fill(a_, 1), cudaSuccess);
    ASSERT_EQ(begin(a_), cudaSuccess);
    ASSERT_EQ(fill(a_, 2), cudaSuccess);
    Graph graph;
    ASSERT_EQ(graph.capture(a_), cudaSuccess);
    EXPECT_EQ(first_byte(), 1);
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(graph.launch(a_), cudaSuccess);
        EXPECT_EQ(first_byte(), 2);
        ASSERT_EQ(fill(a_, 3), cudaSuccess);
        EXPECT_EQ(first_byte(), 3);
    }
}

TEST_F(SimulatedDevice, MemoryNeverHasAnAddressTwice) {
    void* last = nullptr;
    for (int i = 0; i < 10; ++i) {
        void* memory = nullptr;
        ASSERT_EQ(MP_SIMULATED(cudaMalloc)(&memory, 100000), cudaSuccess);
        EXPECT_GT(memory, last);
        last = memory;
        ASSERT_EQ(MP_SIMULATED(cudaFree)(memory), cudaSuccess);
    }
}

TEST_F(SimulatedDevice, AnUnsafeCallEndsTheCapture) {
    void* host = nullptr;
    unsigned char byte = 0;
    const std::function<cudaError_t()> calls[] = {
        allocate,
        [this] { return MP_SIMULATED(cudaFree)(memory_); },
        [&] { return MP_SIMULATED(cudaHostAlloc)(&host, 16, cudaHostAllocDefault); },
        [this] { return MP_SIMULATED(cudaEventQuery)(event_); },
        [this] { return MP_SIMULATED(cudaEventSynchronize)(event_); },
        [this] { return MP_SIMULATED(cudaStreamSynchronize)(a_); },
        [this] { return MP_SIMULATED(cudaStreamQuery)(a_); },
        [&] { // from memory that is not pinned
            return MP_SIMULATED(cudaMemcpyAsync)(memory_, &byte, 1, cudaMemcpyHostToDevice, a_);
        }};
    for (const auto& call : calls) {
        ASSERT_EQ(begin(a_), cudaSuccess);
        EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
        EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
        EXPECT_EQ(status(a_), cudaStreamCaptureStatusInvalidated);
        EXPECT_EQ(fill(a_, 1), cudaErrorStreamCaptureInvalidated);
        EXPECT_EQ(record(a_), cudaErrorStreamCaptureInvalidated);
        Graph graph;
        EXPECT_EQ(graph.capture(a_), cudaErrorStreamCaptureInvalidated);
        EXPECT_EQ(status(a_), cudaStreamCaptureStatusNone);
        EXPECT_EQ(fill(a_, 1), cudaSuccess);
        ++expected_misuses_;
    }
}

TEST_F(SimulatedDevice, TheLegacyStreamEndsEveryCapture) {
    ASSERT_EQ(begin(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(MP_SIMULATED(cudaStreamSynchronize)(cudaStreamLegacy),
              cudaErrorStreamCaptureImplicit);
    Graph graph;
    EXPECT_EQ(graph.capture(a_), cudaErrorStreamCaptureInvalidated);
    expected_misuses_ = 1;
}

// Whether an allocation is refused: by the mode of the capture, and of the thread that allocates.
TEST_F(SimulatedDevice, ModesSayWhoIsRefused) {
    constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
    constexpr auto kLocal = cudaStreamCaptureModeThreadLocal;
    constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;
    const struct {
        cudaStreamCaptureMode of_capture, of_thread;
        bool refuses_own, refuses_other;
    } rows[] = {{kGlobal, kGlobal, true, true},    {kGlobal, kLocal, true, false},
                {kGlobal, kRelaxed, false, false}, {kLocal, kGlobal, true, false},
                {kLocal, kLocal, true, false},     {kLocal, kRelaxed, false, false},
                {kRelaxed, kGlobal, false, false}, {kRelaxed, kLocal, false, false},
                {kRelaxed, kRelaxed, false, false}};
    for (const auto& row : rows) {
        for (const bool is_other : {false, true}) {
            SCOPED_TRACE(testing::Message() << "capture " << row.of_capture << ", thread "
                                            << row.of_thread << ", other " << is_other);
            const bool refuses = is_other ? row.refuses_other : row.refuses_own;
            ASSERT_EQ(begin(a_, row.of_capture), cudaSuccess);
            const auto call = [&] {
                EXPECT_EQ(exchange_mode(row.of_thread), cudaSuccess);
                const cudaError_t error = allocate();
                EXPECT_EQ(exchange_mode(kGlobal), cudaSuccess);
                return error;
            };
            EXPECT_EQ(is_other ? in_other_thread(call) : call(),
                      refuses ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
            Graph graph;
            EXPECT_EQ(graph.capture(a_), refuses ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
            expected_misuses_ += refuses ? 1 : 0;
        }
    }
}

TEST_F(SimulatedDevice, OnlyItsThreadEndsACapture) {
    Graph graph;
    ASSERT_EQ(begin(a_), cudaSuccess);
    EXPECT_EQ(in_other_thread([&] { return graph.capture(a_); }),
              cudaErrorStreamCaptureWrongThread);
    EXPECT_EQ(graph.capture(a_), cudaSuccess);
    ASSERT_EQ(begin(a_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    EXPECT_EQ(in_other_thread([&] { return graph.capture(a_); }), cudaSuccess);
    EXPECT_EQ(graph.capture(a_), cudaErrorIllegalState); // it has ended
}

// An event of a captured stream pulls another one into the capture, which must come back by an event.
TEST_F(SimulatedDevice, AForkedStreamMustJoin) {
    for (const bool joins : {true, false}) {
        ASSERT_EQ(begin(a_), cudaSuccess);
        ASSERT_EQ(record(a_), cudaSuccess);
        ASSERT_EQ(wait(b_), cudaSuccess);
        EXPECT_EQ(status(b_), cudaStreamCaptureStatusActive);
        ASSERT_EQ(fill(b_, 7), cudaSuccess);
        if (joins) {
            ASSERT_EQ(record(b_), cudaSuccess);
            ASSERT_EQ(wait(a_), cudaSuccess);
        }
        Graph graph;
        EXPECT_EQ(graph.capture(a_), joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
        EXPECT_EQ(status(b_), cudaStreamCaptureStatusNone);
        if (joins) {
            ASSERT_EQ(graph.launch(a_), cudaSuccess);
            EXPECT_EQ(first_byte(), 7);
        }
    }
    expected_misuses_ = 1;
}

TEST_F(SimulatedDevice, AForkedStreamEndsNoCapture) {
    ASSERT_EQ(begin(a_), cudaSuccess);
    ASSERT_EQ(record(a_), cudaSuccess);
    ASSERT_EQ(wait(b_), cudaSuccess);
    Graph graph;
    EXPECT_EQ(graph.capture(b_), cudaErrorStreamCaptureUnmatched);
    EXPECT_EQ(graph.capture(a_), cudaErrorStreamCaptureInvalidated);
    expected_misuses_ = 1;
}

TEST_F(SimulatedDevice, CapturesDoNotMerge) {
    Graph graph;
    ASSERT_EQ(begin(a_), cudaSuccess);
    ASSERT_EQ(begin(b_), cudaSuccess);
    ASSERT_EQ(record(a_), cudaSuccess);
    EXPECT_EQ(wait(b_), cudaErrorStreamCaptureMerge);
    EXPECT_EQ(graph.capture(a_), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph.capture(b_), cudaErrorStreamCaptureInvalidated);
    expected_misuses_ = 2;
}

TEST_F(SimulatedDevice, NothingOutsideIsWaitedForInACapture) {
    Graph graph;
    ASSERT_EQ(begin(a_), cudaSuccess);
    EXPECT_EQ(wait(a_), cudaSuccess); // never recorded
    ASSERT_EQ(record(b_), cudaSuccess);
    EXPECT_EQ(wait(a_), cudaErrorStreamCaptureIsolation);
    EXPECT_EQ(graph.capture(a_), cudaErrorStreamCaptureInvalidated);
    expected_misuses_ = 1;
}

// Nobody waits for an event of a capture, in it or after it, until it is recorded again.
TEST_F(SimulatedDevice, AnEventOfACaptureIsNoPointOfAnyStream) {
    Graph graph;
    for (const bool is_over : {false, true}) {
        ASSERT_EQ(begin(a_), cudaSuccess);
        ASSERT_EQ(record(a_), cudaSuccess);
        if (is_over) {
            ASSERT_EQ(graph.capture(a_), cudaSuccess);
            EXPECT_EQ(wait(b_), cudaErrorCapturedEvent);
            ++expected_misuses_;
        }
        EXPECT_EQ(MP_SIMULATED(cudaEventQuery)(event_), cudaErrorCapturedEvent);
        EXPECT_EQ(MP_SIMULATED(cudaEventSynchronize)(event_), cudaErrorCapturedEvent);
        expected_misuses_ += 2;
        if (!is_over) {
            EXPECT_EQ(graph.capture(a_), cudaErrorStreamCaptureInvalidated);
        }
    }
    ASSERT_EQ(record(a_), cudaSuccess);
    EXPECT_EQ(MP_SIMULATED(cudaEventSynchronize)(event_), cudaSuccess);
    EXPECT_EQ(MP_SIMULATED(cudaEventQuery)(event_), cudaSuccess);
}

} // namespace
} // namespace mp::test
