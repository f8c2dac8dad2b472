// SPDX-License-Identifier: Apache-2.0
// How many threads a host device has and why, and that it leaves the caller's own settings alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host_device.hpp"

namespace mp::test {
namespace {

using backends::host::choose_threads;
using backends::host::kMaxThreads;
using backends::host::parse_omp_threads;
using backends::host::ThreadCount;
using backends::host::ThreadLimits;
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
        ASSERT_TRUE(choose_threads(asked, machine(2, 4), {}, threads).ok());
        EXPECT_EQ(threads.count, asked);
        EXPECT_STREQ(threads.reason.c_str(), "as the caller asked");
    }
}

TEST(ThreadCount, IsOneForEachPhysicalCoreOtherwise) {
    ThreadCount threads;
    ASSERT_TRUE(choose_threads(0, machine(6, 12), {}, threads).ok());
    EXPECT_EQ(threads.count, 6);
    EXPECT_NE(std::string(threads.reason.c_str()).find("physical core"), std::string::npos);
    ASSERT_TRUE(choose_threads(0, machine(0, 0), {}, threads).ok());
    EXPECT_EQ(threads.count, 1);
    ASSERT_TRUE(choose_threads(0, machine(4 * kMaxThreads, 8 * kMaxThreads), {}, threads).ok());
    EXPECT_EQ(threads.count, kMaxThreads);
    EXPECT_NE(std::string(threads.reason.c_str()).find("2048"), std::string::npos);
}

// Each limit that there is; a caller who asks is not limited.
TEST(ThreadCount, StaysWithinTheLimits) {
    struct {
        ThreadLimits limits;
        int32_t expected;
        const char* reason;
    } cases[] = {{{0, 0}, 6, "one for each"},    {{2, 0}, 2, "control group"},
                 {{8, 4}, 4, "OMP_NUM_THREADS"}, {{3, 2}, 2, "OMP_NUM_THREADS"},
                 {{1, 2}, 1, "control group"},   {{0, 0, 3}, 3, "no other context"}};
    for (const auto& c : cases) {
        ThreadCount threads;
        ASSERT_TRUE(choose_threads(0, machine(6, 12), c.limits, threads).ok());
        EXPECT_EQ(threads.count, c.expected);
        EXPECT_NE(std::string(threads.reason.c_str()).find(c.reason), std::string::npos)
            << threads.reason.c_str();
        ASSERT_TRUE(choose_threads(5, machine(6, 12), c.limits, threads).ok());
        EXPECT_EQ(threads.count, 5);
    }
}

TEST(ThreadLimits, ReadOmpNumThreads) {
    EXPECT_EQ(parse_omp_threads(nullptr), 0);
    for (const char* none : {"", " ", "many", "-2", "0", "2x", "99999999999999999999"}) {
        EXPECT_EQ(parse_omp_threads(none), 0) << none;
    }
    EXPECT_EQ(parse_omp_threads("3"), 3);
    EXPECT_EQ(parse_omp_threads(" 4 , 2"), 4);
    EXPECT_EQ(parse_omp_threads("4,2,1"), 4);
    EXPECT_EQ(parse_omp_threads("100000"), kMaxThreads);
}

// Folders as the system shows them.
class ControlGroups : public ::testing::Test {
  protected:
    void SetUp() override { std::filesystem::create_directories(root_); }
    void TearDown() override { std::filesystem::remove_all(root_); }

    void write(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = root_ / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    [[nodiscard]] int32_t cpus(const std::string& membership) const {
        write("membership", membership);
        return backends::host::cgroup_cpus(root_ / "membership", root_);
    }

  private:
    std::filesystem::path root_ =
        std::filesystem::temp_directory_path() / ("mp_groups_" + std::to_string(getpid()));
};

TEST_F(ControlGroups, OfVersionTwo) {
    EXPECT_EQ(cpus("0::/a/b\n"), 0);
    write("a/b/cpu.max", "max 100000\n");
    EXPECT_EQ(cpus("0::/a/b\n"), 0);
    write("a/cpu.max", "250000 100000\n"); // the group above has a part of the third
    EXPECT_EQ(cpus("0::/a/b\n"), 3);
    write("a/b/cpu.max", "50000 100000\n");
    EXPECT_EQ(cpus("0::/a/b\n"), 1);
    write("cpu.max", "200000 100000\n"); // a container's own group
    EXPECT_EQ(cpus("0::/\n"), 2);
    EXPECT_EQ(cpus("0::/elsewhere\n"), 2);
}

TEST_F(ControlGroups, OfVersionOne) {
    write("cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
    write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(cpus("5:memory:/job\n4:cpu,cpuacct:/job\n0::/\n"), 4);
    write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(cpus("4:cpu,cpuacct:/job\n"), 0);
}

TEST_F(ControlGroups, WhatCannotBeReadIsNoLimit) {
    for (const char* text : {"", "nonsense", "1:cpu", "::", "0::/x\n", "cpu:/\n:::\n"}) {
        EXPECT_EQ(cpus(text), 0) << text;
    }
    write("cpu.max", "some words");
    EXPECT_EQ(cpus("0::/\n"), 0);
    EXPECT_EQ(backends::host::cgroup_cpus("/no/such/file", "/no/such/folder"), 0);
}

TEST(ThreadCount, RefusesWhatIsAbsurd) {
    for (const int32_t asked : {-1, kMaxThreads + 1, INT32_MAX, INT32_MIN}) {
        ThreadCount threads;
        const Status status = choose_threads(asked, machine(2, 2), {}, threads);
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
    ThreadCount expected;
    ASSERT_TRUE(
        choose_threads(0, topology::detect(), backends::host::thread_limits(), expected).ok());
    EXPECT_EQ(host.device().num_threads(), expected.count);
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
    ASSERT_EQ(host.log().lines.size(), 2U); // the second says which OpenMP is beside us
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
        const auto cores = static_cast<int32_t>(topology::detect().cores.size());
        const OpenHost bound(cores, true);
        std::vector<int> expected(static_cast<std::size_t>(cores), 1);
        expected[0] = CPU_COUNT(&before);
        EXPECT_EQ(cpus_of_threads(bound, cores), expected);
        // Nothing is left for another device.
        const OpenHost second(cores, true);
        EXPECT_EQ(cpus_of_threads(second, cores),
                  std::vector<int>(static_cast<std::size_t>(cores), CPU_COUNT(&before)));
        cpu_set_t after;
        ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
        EXPECT_TRUE(CPU_EQUAL(&before, &after));
    }).join();
}

// Of all pages of an array, those that have memory, or had it until the system wrote them out.
double share_with_memory(void* data, std::size_t bytes) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
    const std::size_t pages = (reinterpret_cast<uintptr_t>(data) + bytes - begin) / page;
    std::vector<uint64_t> entries(pages);
    std::ifstream map("/proc/self/pagemap", std::ios::binary);
    map.seekg(static_cast<std::streamoff>(begin / page * sizeof entries[0]));
    map.read(reinterpret_cast<char*>(entries.data()),
             static_cast<std::streamsize>(pages * sizeof entries[0]));
    EXPECT_TRUE(map.good());
    constexpr uint64_t kPresentOrSwapped = uint64_t{3} << 62;
    const auto there = std::count_if(entries.begin(), entries.end(), [](uint64_t entry) {
        return (entry & kPresentOrSwapped) != 0;
    });
    return static_cast<double>(there) / static_cast<double>(pages);
}

// On a machine of several nodes that write decides where the memory is.
TEST(HostDevice, LeavesTheFirstWriteOfMemoryToItsThreads) {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    OpenHost host(2);
    void* data = nullptr;
    ASSERT_TRUE(host.device().allocate(kBytes, &data).ok());
    EXPECT_LT(share_with_memory(data, kBytes), 0.1); // a huge page may be there
    ASSERT_TRUE(host.device().zero(host.queue(), data, kBytes).ok());
    EXPECT_EQ(share_with_memory(data, kBytes), 1.0);
    host.device().release(data, kBytes);
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
