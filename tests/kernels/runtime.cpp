// SPDX-License-Identifier: Apache-2.0
// Starting, sharing and ending Kokkos on the host. One process: the tests run in the order they are
// written in, and the last one ends Kokkos for good.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "kokkos/host_ops.hpp"
#include "kokkos/runtime.hpp"
#include "numerics/bf16.hpp"

namespace mp::test {
namespace {

class NoQueue final : public Queue {
  public:
    Status sync() noexcept override { return {}; }
};

// A device of which the candidates look at the number of threads only.
class ThreadsOnly final : public Device {
  public:
    explicit ThreadsOnly(int32_t threads) : threads_(threads) {}
    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::host; }
    [[nodiscard]] int32_t index() const noexcept override { return 0; }
    void describe(char* /*buffer*/, std::size_t /*capacity*/) const noexcept override {}
    [[nodiscard]] int32_t num_threads() const noexcept override { return threads_; }
    Status allocate(std::size_t /*bytes*/, void** /*out*/) noexcept override { return refuse(); }
    void release(void* /*pointer*/, std::size_t /*bytes*/) noexcept override {}
    Status create_queue(void* /*native*/, Queue** /*out*/) noexcept override { return refuse(); }
    Status copy(Queue& /*queue*/, void* /*to*/, const void* /*from*/, std::size_t /*bytes*/,
                CopyKind /*kind*/) noexcept override {
        return refuse();
    }
    Status zero(Queue& /*queue*/, void* /*to*/, std::size_t /*bytes*/) noexcept override {
        return refuse();
    }
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override {
        return backends::kokkos::host_candidates(kind);
    }

  private:
    static Status refuse() noexcept { return Status::error(Code::internal, "not in this test"); }
    int32_t threads_;
};

// Casts many numbers on `threads` threads; true if all are right.
Status cast_numbers(int32_t threads, bool& all_right) {
    constexpr int64_t kCount = 150001;
    std::vector<float> from(static_cast<std::size_t>(kCount));
    std::vector<uint16_t> into(static_cast<std::size_t>(kCount), 0xffff);
    for (int64_t i = 0; i < kCount; ++i) {
        from[static_cast<std::size_t>(i)] = static_cast<float>(i) * 0.37F;
    }
    ThreadsOnly device(threads);
    NoQueue queue;
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = {from.data(), kCount, DType::fp32};
    op.destination = {into.data(), kCount, DType::bf16};
    const Status status = device.candidates(OpKind::cast).items[0].run(device, queue, op);
    all_right = true;
    for (std::size_t i = 0; i < into.size(); ++i) {
        all_right = all_right && into[i] == numerics::float_to_bf16(from[i]);
    }
    return status;
}

// The first use of all, from inside a parallel region of the program, with an environment that is
// meant for the program's own Kokkos or is nonsense.
TEST(KokkosRuntime, StartsQuietlyAnywhere) {
    ::setenv("KOKKOS_NUM_THREADS", "many", 1);
    ::setenv("KOKKOS_DEVICE_ID", "-7", 1);
    ::setenv("KOKKOS_PRINT_CONFIGURATION", "1", 1);
    ::setenv("KOKKOS_TOOLS_LIBS", "/no/such/tool.so", 1);
    ::setenv("KOKKOS_PROFILE_LIBRARY", "/no/such/profiler.so", 1);
    ::unsetenv("OMP_PROC_BIND");
    EXPECT_FALSE(backends::kokkos::is_running());

    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    omp_set_num_threads(3);
    std::array<bool, 2> right{};
    std::array<Status, 2> status{};
#pragma omp parallel num_threads(2)
    {
        const auto me = static_cast<std::size_t>(omp_get_thread_num());
        status[me] = cast_numbers(2, right[me]);
    }
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(omp_get_max_threads(), 3) << "the program's OpenMP setting was changed";
    EXPECT_TRUE(backends::kokkos::is_running());
    EXPECT_TRUE(status[0].ok()) << status[0].text();
    EXPECT_TRUE(right[0]);
    // A team of one leaves the second place unused.
    EXPECT_TRUE(status[1].ok()) << status[1].text();
}

TEST(KokkosRuntime, StartsOnce) {
    EXPECT_TRUE(backends::kokkos::start(1, -1).ok());
    EXPECT_TRUE(backends::kokkos::start(5, 3).ok());
    EXPECT_TRUE(backends::kokkos::is_running());
}

TEST(KokkosRuntime, WorksWithAnyNumberOfThreads) {
    for (const int32_t threads : {1, 2, 3, 7}) {
        bool right = false;
        const Status status = cast_numbers(threads, right);
        EXPECT_TRUE(status.ok()) << status.text();
        EXPECT_TRUE(right) << threads;
    }
}

TEST(KokkosRuntime, RefusesMoreThreadsThanKokkosHasRoomFor) {
    for (const int32_t threads : {-1, 0, 513}) {
        bool right = false;
        EXPECT_EQ(cast_numbers(threads, right).code(), Code::unsupported) << threads;
    }
}

// Ranks that are threads of one process.
TEST(KokkosRuntime, ServesSeveralThreadsAtOnce) {
    std::atomic<int> failures{0};
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank) {
        ranks.emplace_back([rank, &failures] {
            for (int round = 0; round < 20; ++round) {
                bool right = false;
                const Status status = cast_numbers(1 + rank % 2, right);
                failures += status.ok() && right ? 0 : 1;
            }
        });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    EXPECT_EQ(failures.load(), 0);
}

TEST(KokkosRuntime, RefusesToWorkAfterShutdown) {
    backends::kokkos::shutdown();
    backends::kokkos::shutdown();
    EXPECT_FALSE(backends::kokkos::is_running());
    bool right = false;
    const Status status = cast_numbers(2, right);
    EXPECT_EQ(status.code(), Code::bad_state);
    EXPECT_NE(std::string(status.text()).find("shut down"), std::string::npos) << status.text();
    EXPECT_EQ(backends::kokkos::start(1, -1).code(), Code::bad_state);
}

} // namespace
} // namespace mp::test
