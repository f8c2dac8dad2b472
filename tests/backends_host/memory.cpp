// SPDX-License-Identifier: Apache-2.0
// Memory of the host device and its pool of scratch blocks: everything by the hooks, and everything back.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "host/resources/memory.hpp"
#include "host_device.hpp"

namespace mp::test {
namespace {

using backends::host::kHugePage;
using backends::host::kScratchRounding;
using backends::host::ScratchPool;

TEST(HostMemory, ComesFromTheHooksAndGoesBackTheSame) {
    OpenHost host(1);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{100000},
                                    kHugePage - 1, kHugePage, 3 * kHugePage + 5}) {
        void* pointer = nullptr;
        ASSERT_TRUE(host.device().allocate(bytes, &pointer).ok());
        const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % alignment, 0U);
        std::memset(pointer, 1, bytes);
        host.device().release(pointer, bytes);
    }
    EXPECT_EQ(host.memory().outstanding(), 0U);
}

TEST(HostMemory, AsksForNothingForZeroBytes) {
    OpenHost host(1);
    void* pointer = &host;
    ASSERT_TRUE(host.device().allocate(0, &pointer).ok());
    EXPECT_EQ(pointer, nullptr);
    host.device().release(nullptr, 0);
    EXPECT_EQ(host.memory().allocations(), 0);
}

TEST(ScratchPool, LendsABlockAgain) {
    CheckedMemory memory;
    ScratchPool pool(memory.table());
    void* first = nullptr;
    {
        ScratchPool::Lease lease;
        ASSERT_TRUE(pool.take(1000, lease).ok());
        first = lease.data();
        ASSERT_NE(first, nullptr);
    }
    ScratchPool::Lease again;
    ASSERT_TRUE(pool.take(kScratchRounding, again).ok());
    EXPECT_EQ(again.data(), first);
    ScratchPool::Lease other;
    ASSERT_TRUE(pool.take(10, other).ok());
    EXPECT_NE(other.data(), first);
    EXPECT_EQ(memory.allocations(), 2);
    EXPECT_EQ(pool.bytes(), 2 * kScratchRounding);
}

TEST(ScratchPool, TakesTheSmallestBlockThatFits) {
    CheckedMemory memory;
    ScratchPool pool(memory.table());
    void* large = nullptr;
    {
        ScratchPool::Lease a;
        ScratchPool::Lease b;
        ASSERT_TRUE(pool.take(8 * kScratchRounding, a).ok());
        ASSERT_TRUE(pool.take(kScratchRounding, b).ok());
        large = a.data();
    }
    ScratchPool::Lease small;
    ASSERT_TRUE(pool.take(1, small).ok());
    EXPECT_NE(small.data(), large);
    ScratchPool::Lease rest;
    ASSERT_TRUE(pool.take(2 * kScratchRounding, rest).ok());
    EXPECT_EQ(rest.data(), large);
    EXPECT_EQ(memory.allocations(), 2);
}

// Requests that grow step by step leave one block behind, not one for each step.
TEST(ScratchPool, ReplacesBlocksThatBecameTooSmall) {
    CheckedMemory memory;
    ScratchPool pool(memory.table());
    for (std::size_t step = 1; step <= 20; ++step) {
        ScratchPool::Lease lease;
        ASSERT_TRUE(pool.take(step * kScratchRounding, lease).ok());
    }
    EXPECT_EQ(pool.bytes(), 20 * kScratchRounding);
    EXPECT_EQ(memory.outstanding(), 1U);
}

TEST(ScratchPool, NothingIsNeverABlock) {
    CheckedMemory memory;
    ScratchPool pool(memory.table());
    ScratchPool::Lease lease;
    ASSERT_TRUE(pool.take(0, lease).ok());
    EXPECT_EQ(lease.data(), nullptr);
    EXPECT_EQ(memory.allocations(), 0);
}

TEST(ScratchPool, SaysWhenThereIsNoMemory) {
    CheckedMemory memory;
    ScratchPool pool(memory.table());
    ScratchPool::Lease kept;
    ASSERT_TRUE(pool.take(1, kept).ok());
    memory.exhaust();
    ScratchPool::Lease lease;
    const Status status = pool.take(12345, lease);
    EXPECT_EQ(status.code(), Code::out_of_memory);
    EXPECT_NE(std::string(status.text()).find("12345"), std::string::npos);
    EXPECT_EQ(lease.data(), nullptr);
    EXPECT_EQ(pool.take(std::size_t{0} - 1, lease).code(), Code::out_of_memory);
}

// Each holder has its block for itself.
TEST(ScratchPool, ServesManyThreads) {
    CheckedMemory memory;
    ScratchPool pool(memory.table());
    std::atomic<int> mixed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&pool, &mixed, t] {
            for (std::size_t i = 0; i < 2000; ++i) {
                ScratchPool::Lease lease;
                const std::size_t bytes = 1 + i * 37 % 9000;
                if (!pool.take(bytes, lease).ok()) {
                    ++mixed;
                    continue;
                }
                auto* data = static_cast<unsigned char*>(lease.data());
                std::memset(data, t, bytes);
                std::this_thread::yield();
                for (std::size_t j = 0; j < bytes; ++j) {
                    mixed += data[j] == t ? 0 : 1;
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(mixed.load(), 0);
    EXPECT_LE(memory.outstanding(), 4U);
}

} // namespace
} // namespace mp::test
