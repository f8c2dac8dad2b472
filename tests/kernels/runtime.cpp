// SPDX-License-Identifier: Apache-2.0
// Starting, sharing and ending Kokkos, for the backend of that name. One process: the tests run in the order they are
// written in, and the last one ends Kokkos for good.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "../backends/harness.hpp"
#include "kokkos/runtime.hpp"
#include "numerics/bf16.hpp"

namespace mp::test {
namespace {

// Casts many numbers; true if all are right.
Status cast_numbers(bool& all_right) {
    constexpr int64_t kCount = 150001;
    std::vector<float> from(static_cast<std::size_t>(kCount));
    std::vector<uint16_t> into(static_cast<std::size_t>(kCount), 0xffff);
    for (int64_t i = 0; i < kCount; ++i) {
        from[static_cast<std::size_t>(i)] = static_cast<float>(i) * 0.37F;
    }
    TestDevice device(*find_backend("kokkos"), 1);
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = {from.data(), kCount, DType::fp32};
    op.destination = {into.data(), kCount, DType::bf16};
    const Status status =
        device.device().candidates(OpKind::cast).items[0].run(device.device(), device.queue(), op);
    all_right = true;
    for (std::size_t i = 0; i < into.size(); ++i) {
        all_right = all_right && into[i] == numerics::float_to_bf16(from[i]);
    }
    return status;
}

// The first use of all, with an environment that is meant for the program's own Kokkos or is nonsense.
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
    bool right = false;
    const Status status = cast_numbers(right);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_TRUE(backends::kokkos::is_running());
    EXPECT_TRUE(status.ok()) << status.text();
    EXPECT_TRUE(right);
}

TEST(KokkosRuntime, StartsOnce) {
    EXPECT_TRUE(backends::kokkos::start(1, -1).ok());
    EXPECT_TRUE(backends::kokkos::start(5, 3).ok());
    EXPECT_TRUE(backends::kokkos::is_running());
}

// Ranks that are threads of one process.
TEST(KokkosRuntime, ServesSeveralThreadsAtOnce) {
    std::atomic<int> failures{0};
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank) {
        ranks.emplace_back([&failures] {
            for (int round = 0; round < 20; ++round) {
                bool right = false;
                const Status status = cast_numbers(right);
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
    const Status status = cast_numbers(right);
    EXPECT_EQ(status.code(), Code::bad_state);
    EXPECT_NE(std::string(status.text()).find("shut down"), std::string::npos) << status.text();
    EXPECT_EQ(backends::kokkos::start(1, -1).code(), Code::bad_state);
}

} // namespace
} // namespace mp::test
