// SPDX-License-Identifier: Apache-2.0
// The CUDA module on a GPU: what the tests of all backends do not ask. Skipped where there is none.
#include <cuda_runtime_api.h>

#include "../backends/gemm_case.hpp"
#include "trainer.hpp"

namespace mp::test {
namespace {

// Opened through the module loader, as a program does it; this program's own CUDA runtime is another
// copy than the module's.
class CudaDevice : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string missing;
        const Backend* backend = open_module("cuda", missing);
        if (backend == nullptr) {
            GTEST_SKIP() << "skipped: no CUDA device" << missing;
        }
        backend_ = backend;
        device_ = std::make_unique<TestDevice>(*backend, 1);
    }
    [[nodiscard]] const Backend& backend() const { return *backend_; }
    [[nodiscard]] TestDevice& on() const { return *device_; }

    // One candidate of a kind, by its name.
    const Candidate& candidate(OpKind kind, const char* name) const {
        const CandidateList list = on().device().candidates(kind);
        for (int32_t i = 0; i < list.count; ++i) {
            if (std::strcmp(list.items[i].name, name) == 0) {
                return list.items[i];
            }
        }
        fail(Code::internal, "no candidate %s", name);
    }

  private:
    const Backend* backend_ = nullptr;
    std::unique_ptr<TestDevice> device_;
};

TEST_F(CudaDevice, WorksOnTheCallersStream) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    Queue* wrapped = nullptr;
    check(on().device().create_queue(stream, &wrapped));
    EXPECT_EQ(wrapped->native(), stream);
    const HostArray array = make_array(DType::fp32, 100000, Content::normal, 1);
    const DeviceArray source(on(), array);
    const DeviceValue<float> result(on(), -1.0F);
    on().sync();
    AmaxDesc op{};
    op.kind = OpKind::amax;
    op.source = source.ref();
    op.result = result.data();
    check(candidate(OpKind::amax, "cuda").run(on().device(), *wrapped, op));
    // In the caller's own stream order, without a word to the queue.
    float got = 0.0F;
    ASSERT_EQ(cudaMemcpyAsync(&got, result.data(), sizeof got, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    float expected = 0.0F;
    for (int64_t i = 0; i < array.count; ++i) {
        expected = std::max(expected, std::abs(array.get(i)));
    }
    EXPECT_EQ(got, expected);
    delete wrapped;
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// Uploads of any size from memory that is overwritten at once, behind a queue that is busy.
TEST_F(CudaDevice, UploadsLeaveTheSourceFree) {
    constexpr std::size_t kBusy = std::size_t{256} << 20;
    void* busy = nullptr;
    check(on().device().allocate(kBusy, &busy));
    for (const std::size_t bytes :
         {std::size_t{4}, std::size_t{65537}, std::size_t{1} << 19, std::size_t{5} << 20}) {
        std::vector<unsigned char> source(bytes, 0x3c);
        void* pinned = nullptr;
        ASSERT_EQ(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), cudaSuccess);
        void* memory = nullptr;
        check(on().device().allocate(bytes, &memory));
        for (void* from : {static_cast<void*>(source.data()), pinned}) {
            std::memset(from, 0x3c, bytes);
            for (int32_t i = 0; i < 20; ++i) {
                check(on().device().zero(on().queue(), busy, kBusy));
            }
            check(on().device().copy(on().queue(), memory, from, bytes, CopyKind::host_to_device));
            std::memset(from, 0xff, bytes);
            std::vector<unsigned char> got(bytes);
            check(on().device().copy(on().queue(), got.data(), memory, bytes,
                                     CopyKind::device_to_host));
            on().sync();
            EXPECT_EQ(got, std::vector<unsigned char>(bytes, 0x3c)) << bytes;
        }
        on().device().release(memory, bytes);
        EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    }
    on().device().release(busy, kBusy);
}

TEST_F(CudaDevice, AWrongPointerIsAStatus) {
    std::array<unsigned char, 64> host{};
    const Status status = on().device().copy(on().queue(), host.data(), host.data() + 32, 32,
                                             CopyKind::device_to_device);
    if (status.ok()) { // devices that read host memory
        on().sync();
        GTEST_SKIP() << "skipped: this device takes host memory";
    }
    EXPECT_EQ(status.code(), Code::cuda_error);
    EXPECT_NE(std::string(status.text()).find("cudaError"), std::string::npos) << status.text();
    on().sync(); // the device itself is well
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaDevice, SaysHowMuchMemoryIsFree) {
    void* memory = nullptr;
    const Status status = on().device().allocate(std::size_t{1} << 50, &memory);
    EXPECT_EQ(status.code(), Code::out_of_memory);
    EXPECT_EQ(memory, nullptr);
    EXPECT_NE(std::string(status.text()).find("are free"), std::string::npos) << status.text();
}

TEST_F(CudaDevice, FindsCublasLt) {
    const std::string text = describe(on().device());
    EXPECT_NE(text.find("\"cublaslt\": \"1"), std::string::npos) << text; // its version
    GemmCase c = make_case({{{64, 64, 64}, DType::bf16, DType::bf16}});
    HostArray result;
    EXPECT_TRUE(gemm(on(), candidate(OpKind::gemm, "cublaslt"), c, result));
    EXPECT_TRUE(within_bound(c, result));
}

// Everything on the queue until the first replay.
class Capture {
  public:
    explicit Capture(Queue& queue) : stream_(static_cast<cudaStream_t>(queue.native())) {
        EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    }
    ~Capture() {
        (void)cudaGraphExecDestroy(replay_);
        (void)cudaGraphDestroy(graph_);
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    void replay() {
        if (replay_ == nullptr) {
            ASSERT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess);
            ASSERT_EQ(cudaGraphInstantiate(&replay_, graph_, 0), cudaSuccess);
        }
        EXPECT_EQ(cudaGraphLaunch(replay_, stream_), cudaSuccess);
    }

  private:
    cudaStream_t stream_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t replay_ = nullptr;
};

TEST_F(CudaDevice, ACapturedStepHasTheBitsOfOthers) { expect_captured_steps<Capture>(backend()); }

// No candidate moves the calling thread to another device, nor prints.
TEST_F(CudaDevice, LeavesTheThreadAndItsOutputAlone) {
    int count = 0;
    ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(count - 1), cudaSuccess);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const HostArray array = make_array(DType::fp32, 5000, Content::normal, 3);
    const DeviceArray source(on(), array);
    const DeviceArray destination(on(), HostArray(DType::bf16, array.count));
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = source.ref();
    op.destination = destination.ref();
    for (const char* name : {"cuda", "kokkos"}) {
        run(on(), candidate(OpKind::cast, name), op);
        int device = -1;
        EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
        EXPECT_EQ(device, count - 1) << name;
    }
    on().sync();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

} // namespace
} // namespace mp::test
