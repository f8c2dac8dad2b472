// SPDX-License-Identifier: Apache-2.0
// Faults of the simulated device at every call, and in the work itself.
#include "simulation.hpp"

namespace mp::test {
namespace {

// Device memory that is given back however its scope ends.
class Block {
  public:
    Block(TestDevice& on, std::size_t bytes) : on_(on), bytes_(bytes) {
        check(on.device().allocate(bytes, &data_));
    }
    ~Block() { on_.device().release(data_, bytes_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    [[nodiscard]] void* data() const { return data_; }
    void copy(void* host, CopyKind kind) const {
        const bool is_upload = kind == CopyKind::host_to_device;
        check(on_.device().copy(on_.queue(), is_upload ? data_ : host, is_upload ? host : data_,
                                bytes_, kind));
    }

  private:
    TestDevice& on_;
    std::size_t bytes_;
    void* data_ = nullptr;
};

// A little of everything; throws what fails.
void use_everything() {
    TestDevice on(backend(), 1);
    std::vector<float> host(200000, 1.0F); // too large for the slots
    const Block large(on, host.size() * sizeof(float));
    large.copy(host.data(), CopyKind::host_to_device);
    const Block small(on, 4096);
    small.copy(host.data(), CopyKind::host_to_device);
    check(on.device().zero(on.queue(), small.data(), 64));
    AmaxDesc op{};
    op.kind = OpKind::amax;
    op.source = {large.data(), static_cast<int64_t>(host.size()), DType::fp32};
    op.result = static_cast<float*>(small.data());
    run(on, on.device().candidates(OpKind::amax).items[0], op);
    const GemmDesc product = make_case({{5, 6, 7}}).desc;
    const Candidate& gemm = on.device().candidates(OpKind::gemm).items[0];
    if (!supports(on, gemm, product)) {
        fail(Code::unsupported, "cuBLASLt did not take a product");
    }
    Plan* plan = nullptr;
    check(gemm.prepare(on.device(), product, &plan));
    const std::unique_ptr<Plan> owner(plan);
    check(gemm.run_plan(on.device(), on.queue(), *plan,
                        {large.data(), large.data(), nullptr, nullptr, small.data()}));
    small.copy(host.data(), CopyKind::device_to_host);
    on.sync();
    EXPECT_EQ(host[0], 7.0F);
}

TEST_F(Simulation, AFaultAtAnyCallIsAStatusAndLeavesNothingBehind) {
    auto* const last_error = symbol<cudaError_t()>("mp_simulated_last_error");
    const Outstanding before;
    int32_t failures = 0;
    bool is_reached = true;
    for (int64_t n = 1; is_reached; ++n) {
        SCOPED_TRACE("fault at call " + std::to_string(n));
        control().fail_in = n;
        control().fail_with = n % 2 == 0 ? cudaErrorMemoryAllocation : cudaErrorUnknown;
        try {
            use_everything();
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()), "");
            ++failures;
        }
        is_reached = control().fail_in == 0;
        control().fail_in = 0;
        EXPECT_TRUE(before == Outstanding());
        EXPECT_EQ(last_error(), cudaSuccess) << "an error was left for the host program to find";
    }
    EXPECT_GT(failures, 20);
}

// What went wrong in the work itself comes out where somebody waits for it.
TEST_F(Simulation, SyncReportsWhatFailedInTheWork) {
    TestDevice on(backend(), 1);
    void* memory = nullptr;
    check(on.device().allocate(64, &memory));
    check(on.device().zero(on.queue(), memory, 64));
    control().broken = cudaErrorLaunchFailure;
    const Status status = on.queue().sync();
    EXPECT_EQ(status.code(), Code::cuda_error);
    EXPECT_NE(std::string(status.text()).find("work on the queue failed"), std::string::npos);
    // Kokkos is not called any more: it would end the process.
    ScalerUpdateDesc op{};
    op.kind = OpKind::scaler_update;
    op.state = static_cast<numerics::LossScaleState*>(memory);
    const Candidate& kokkos = *on.device().candidates(OpKind::scaler_update).items;
    EXPECT_EQ(kokkos.run(on.device(), on.queue(), op).code(), Code::cuda_error);
    control().broken = cudaSuccess;
    on.device().release(memory, 64);
}

} // namespace
} // namespace mp::test
