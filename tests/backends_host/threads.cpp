// SPDX-License-Identifier: Apache-2.0
// How many threads a host device has and why, and that it leaves the caller's own settings alone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <sched.h>

#include "host_device.hpp"

namespace mp::test {
namespace {

using backends::host::choose_threads;
using backends::host::kMaxThreads;
using backends::host::ThreadCount;
using topology::Topology;

Topology machine(int32_t cores, int32_t cpus) {
    Topology found;
    found.physical_cores = cores;
    found.logical_cpus = cpus;
    return found;
}

TEST(ThreadCount, IsWhatTheCallerAsksFor) {
    for (const int32_t asked : {1, 2, 7, kMaxThreads}) {
        ThreadCount threads;
        ASSERT_TRUE(choose_threads(asked, machine(2, 4), threads).ok());
        EXPECT_EQ(threads.count, asked);
        EXPECT_STREQ(threads.reason.c_str(), "as the caller asked");
    }
}

TEST(ThreadCount, IsOneForEachPhysicalCoreOtherwise) {
    ThreadCount threads;
    ASSERT_TRUE(choose_threads(0, machine(6, 12), threads).ok());
    EXPECT_EQ(threads.count, 6);
    EXPECT_NE(std::string(threads.reason.c_str()).find("physical core"), std::string::npos);
    ASSERT_TRUE(choose_threads(0, machine(0, 0), threads).ok());
    EXPECT_EQ(threads.count, 1);
    ASSERT_TRUE(choose_threads(0, machine(4 * kMaxThreads, 8 * kMaxThreads), threads).ok());
    EXPECT_EQ(threads.count, kMaxThreads);
    EXPECT_NE(std::string(threads.reason.c_str()).find("2048"), std::string::npos);
}

TEST(ThreadCount, RefusesWhatIsAbsurd) {
    for (const int32_t asked : {-1, kMaxThreads + 1, INT32_MAX, INT32_MIN}) {
        ThreadCount threads;
        const Status status = choose_threads(asked, machine(2, 2), threads);
        EXPECT_EQ(status.code(), Code::invalid_argument);
        EXPECT_NE(std::string(status.text()).find(std::to_string(asked)), std::string::npos);
        CheckedMemory memory;
        Log log;
        DeviceConfig config;
        config.memory = memory.table();
        config.log = {Log::write, &log};
        config.num_threads = asked;
        Device* device = nullptr;
        EXPECT_EQ(backends::host::backend()->open(config, &device).code(), Code::invalid_argument);
        EXPECT_EQ(device, nullptr);
    }
}

TEST(HostDevice, TakesTheCoresItMayUse) {
    OpenHost host(0);
    EXPECT_EQ(host.device().num_threads(), topology::detect().physical_cores);
    std::thread([] {
        cpu_set_t mask;
        CPU_ZERO(&mask);
        CPU_SET(sched_getcpu(), &mask);
        ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
        OpenHost narrow(0);
        EXPECT_EQ(narrow.device().num_threads(), 1);
    }).join();
}

TEST(HostDevice, LogsWhatItFound) {
    OpenHost host(3);
    ASSERT_EQ(host.log().lines.size(), 1U);
    EXPECT_EQ(host.log().lines[0].first, 3);
    EXPECT_NE(host.log().lines[0].second.find("3 thread(s), as the caller asked"),
              std::string::npos);
}

// How many CPUs each thread of the device may use. They meet inside, so that every one of them takes an iteration.
std::vector<int> cpus_of_threads(const OpenHost& host, int32_t threads) {
    std::vector<int> cpus(static_cast<std::size_t>(threads));
    std::atomic<int32_t> arrived{0};
    host.device().threads().for_each_on(threads, [&](int64_t /*i*/, int32_t thread) {
        ++arrived;
        while (arrived.load() < threads) {
            std::this_thread::yield();
        }
        cpu_set_t mask;
        CPU_ZERO(&mask);
        (void)sched_getaffinity(0, sizeof mask, &mask);
        cpus[static_cast<std::size_t>(thread)] = CPU_COUNT(&mask);
    });
    return cpus;
}

// The caller's mask stays, those of the others are one core each.
TEST(HostDevice, BindsOnlyItsOwnThreadsAndOnlyWhenAsked) {
    std::thread([] {
        cpu_set_t before;
        ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
        const OpenHost unbound(3);
        EXPECT_EQ(cpus_of_threads(unbound, 3), std::vector<int>(3, CPU_COUNT(&before)));
        const OpenHost bound(3, true);
        EXPECT_EQ(cpus_of_threads(bound, 3), (std::vector<int>{CPU_COUNT(&before), 1, 1}));
        cpu_set_t after;
        ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
        EXPECT_TRUE(CPU_EQUAL(&before, &after));
    }).join();
}

TEST(HostDevice, CopiesAndZeroesLargeArrays) {
    OpenHost host(3);
    for (const std::size_t bytes :
         {std::size_t{1} << 20, (std::size_t{5} << 20) + 4097, (std::size_t{1} << 20) + 1}) {
        std::vector<unsigned char> source(bytes);
        for (std::size_t i = 0; i < bytes; ++i) {
            source[i] = static_cast<unsigned char>(i * 131 + i / 4096);
        }
        std::vector<unsigned char> destination(bytes + 1, 0xa5);
        ASSERT_TRUE(host.device()
                        .copy(host.queue(), destination.data(), source.data(), bytes,
                              CopyKind::host_to_device)
                        .ok());
        EXPECT_EQ(std::memcmp(destination.data(), source.data(), bytes), 0);
        EXPECT_EQ(destination[bytes], 0xa5);
        ASSERT_TRUE(host.device().zero(host.queue(), destination.data(), bytes).ok());
        EXPECT_EQ(destination, [&] {
            std::vector<unsigned char> expected(bytes + 1, 0);
            expected[bytes] = 0xa5;
            return expected;
        }());
    }
}

} // namespace
} // namespace mp::test
