// SPDX-License-Identifier: Apache-2.0
// Memory of a test's own: as the library wants what is lent to it, and an allocator that counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "support.hpp"

namespace mp_test {

// 256-aligned.
struct Block {
    std::unique_ptr<unsigned char, decltype(&std::free)> memory{nullptr, &std::free};
    std::size_t bytes = 0;
    Block() = default;
    explicit Block(std::size_t size)
        : memory(static_cast<unsigned char*>(std::aligned_alloc(256, (size + 255) / 256 * 256)),
                 &std::free),
          bytes(size) {}
};

// What a context with these hooks has out, and how often it asked.
struct Counter {
    std::atomic<int64_t> live{0}; // bytes
    std::atomic<int64_t> peak{0}; // of them
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> left{INT64_MAX}; // of what it gives; then nothing
    bool refuse = false;

    static void* allocate(std::size_t size, std::size_t alignment, void* payload) {
        auto* counter = static_cast<Counter*>(payload);
        if (counter->refuse || --counter->left < 0) {
            return nullptr;
        }
        const int64_t now = counter->live += static_cast<int64_t>(size);
        for (int64_t most = counter->peak; now > most;) {
            if (counter->peak.compare_exchange_weak(most, now)) {
                break;
            }
        }
        ++counter->calls;
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    }
    static void release(void* pointer, std::size_t size, std::size_t /*alignment*/, void* payload) {
        static_cast<Counter*>(payload)->live -= static_cast<int64_t>(size);
        std::free(pointer);
    }
};

// Whose memory is the counter's; NULL: the library's.
inline Context make_counted_context(Counter* counter, int32_t num_threads = 1) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = num_threads;
    if (counter != nullptr) {
        desc.allocate = Counter::allocate;
        desc.release = Counter::release;
        desc.allocator_payload = counter;
    }
    mp_context* made = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &made)));
    return Context(made);
}

} // namespace mp_test
