// SPDX-License-Identifier: Apache-2.0
// Memory that runs out at each allocation in turn, both of operator new and of a context's allocator.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "allocations.hpp"
#include "support.hpp"

namespace mp_test::running_out {

using mp::test::allocate;
using mp::test::allocations_left;
using mp::test::fails_for_ever;

inline std::atomic<int64_t> live{0}; // of the context's blocks, those that were not given back

inline mp_context_desc context_desc() {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 1;
    desc.allocate = [](std::size_t size, std::size_t alignment, void* /*payload*/) {
        void* memory = allocate(size, alignment);
        live += memory == nullptr ? 0 : 1;
        return memory;
    };
    desc.release = [](void* memory, std::size_t /*size*/, std::size_t /*alignment*/,
                      void* /*payload*/) {
        live -= memory == nullptr ? 0 : 1;
        std::free(memory);
    };
    return desc;
}

inline Context own_context() {
    const mp_context_desc desc = context_desc();
    mp_context* context = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &context)));
    return Context(context);
}

// Runs `call` with the k-th allocation failing. True where one did; then it has said so.
template <typename Call> bool fails_at(int64_t k, bool for_ever, Call&& call) {
    fails_for_ever = for_ever;
    allocations_left = k;
    const mp_status status = call();
    const bool has_failed = allocations_left <= 0;
    allocations_left = -1;
    // What is only wanted, as a cache or a text, may be done without.
    EXPECT_TRUE(status == MP_STATUS_OUT_OF_MEMORY || status == MP_STATUS_OK)
        << "allocation " << k << ": " << mp_status_string(status) << ": "
        << mp_last_error_message();
    EXPECT_TRUE(has_failed || status == MP_STATUS_OK) << mp_last_error_message();
    return has_failed;
}

// Of later ones each seventh fails, unless MP_ALL_ALLOCATIONS is set.
inline constexpr int64_t kEach = 150;
inline bool is_full() {
    static const bool full = std::getenv("MP_ALL_ALLOCATIONS") != nullptr;
    return full;
}

// `attempt(k, for_ever)` until one has seen no failure. All blocks of the context are given back; whether everything else
// is, the leak sanitizer sees when the program ends: shells of destroyed handles are kept on purpose.
template <typename Attempt> void each_allocation(const char* what, Attempt&& attempt) {
    for (const bool for_ever : {false, true}) {
        int64_t tried = -1; // the last attempt fails nowhere
        bool goes_on = true;
        for (int64_t k = 0; goes_on; k += k < kEach || is_full() ? 1 : 7) {
            ++tried;
            SCOPED_TRACE(::testing::Message()
                         << what << ", allocation " << k << (for_ever ? " and all after" : ""));
            const int64_t before = live;
            goes_on = attempt(k, for_ever);
            ASSERT_FALSE(::testing::Test::HasFailure());
            ASSERT_EQ(live, before) << "blocks that were not given back";
        }
        std::printf("%-40.40s %5lld allocations failed in turn, %s\n", what,
                    static_cast<long long>(tried), for_ever ? "and all after" : "once each");
    }
}

} // namespace mp_test::running_out
