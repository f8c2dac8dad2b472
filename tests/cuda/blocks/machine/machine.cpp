// SPDX-License-Identifier: Apache-2.0
// What is called from kernels: by their text, and by the instrumentation that the compiler puts into it. -fsanitize=thread calls
// a function of a fixed name at each access; these are ours, and no sanitizer is linked.
#include "machine.hpp"

#include <cstring>
#include <utility>

#include "block.hpp"

namespace mp::blocks {

namespace {

std::vector<Report> reports;

} // namespace

std::vector<Report> take_reports() { return std::exchange(reports, {}); }

bool run_launch(const Launch& launch) {
    Report& report = reports.emplace_back();
    report.kernel =
        short_name(*Image::of_program().function_at(reinterpret_cast<uintptr_t>(launch.kernel)));
    report.blocks = launch.blocks;
    report.threads = launch.threads;
    if (!launch.can_run()) {
        report.findings.push_back(
            {Fault::configuration, 0, 0,
             "cannot run: " + std::to_string(launch.blocks) + " blocks of " +
                 std::to_string(launch.threads) + " threads with " +
                 std::to_string(launch.dynamic_shared_bytes) + " bytes of dynamic shared memory" +
                 (launch.is_one_dimensional ? "" : "; this machine has one dimension")});
        return false;
    }
    Block block(launch, report);
    for (uint32_t i = 0; i < launch.blocks; ++i) {
        if (!block.run(i)) {
            return false;
        }
    }
    return true;
}

int barrier(bool predicate, const Place& place) { return running_block->barrier(predicate, place); }

uint64_t warp(const WarpCall& call, const Place& place) { return running_block->warp(call, place); }

uint64_t atomic(void* address, std::size_t bytes, AtomicNext next, uint64_t operand) {
    running_block->access(Access::atomic, reinterpret_cast<uintptr_t>(address), bytes,
                          reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
    uint64_t old = 0;
    std::memcpy(&old, address, bytes);
    const uint64_t updated = next(old, operand);
    std::memcpy(address, &updated, bytes);
    return old;
}

} // namespace mp::blocks

// ---- the instrumentation -----------------------------------------------------------------------

namespace {

void access(mp::blocks::Access how, const void* address, std::size_t bytes, void* instruction) {
    if (mp::blocks::running_block != nullptr) {
        mp::blocks::running_block->access(how, reinterpret_cast<uintptr_t>(address), bytes,
                                          reinterpret_cast<uintptr_t>(instruction));
    }
}

} // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the compiler's names
#define MP_HOOK(name, how, bytes)                                                                  \
    void name(void* address);                                                                      \
    void name(void* address) {                                                                     \
        access(mp::blocks::Access::how, address, bytes, __builtin_return_address(0));              \
    }
#define MP_HOOKS(bytes)                                                                            \
    MP_HOOK(__tsan_read##bytes, load, bytes)                                                       \
    MP_HOOK(__tsan_write##bytes, store, bytes)                                                     \
    MP_HOOK(__tsan_unaligned_read##bytes, load, bytes)                                             \
    MP_HOOK(__tsan_unaligned_write##bytes, store, bytes)                                           \
    MP_HOOK(__tsan_volatile_read##bytes, load, bytes)                                              \
    MP_HOOK(__tsan_volatile_write##bytes, store, bytes)
#define MP_RANGE_HOOK(name, how)                                                                   \
    void name(void* address, std::size_t bytes);                                                   \
    void name(void* address, std::size_t bytes) {                                                  \
        access(mp::blocks::Access::how, address, bytes, __builtin_return_address(0));              \
    }

extern "C" {
MP_HOOKS(1)
MP_HOOKS(2)
MP_HOOKS(4)
MP_HOOKS(8)
MP_HOOKS(16)
MP_RANGE_HOOK(__tsan_read_range, load)
MP_RANGE_HOOK(__tsan_write_range, store)

// Of the guard of a static variable, in the host's part of these files. Kernels have atomicAdd() and its like.
char __tsan_atomic8_load(const volatile char* address, int order);
char __tsan_atomic8_load(const volatile char* address, int /*order*/) {
    return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}
void __tsan_init();
void __tsan_init() {}
void __tsan_func_entry(void* caller);
void __tsan_func_entry(void* caller) {
    if (mp::blocks::running_block != nullptr) {
        mp::blocks::running_block->enter_function(reinterpret_cast<uintptr_t>(caller));
    }
}
void __tsan_func_exit();
void __tsan_func_exit() {
    if (mp::blocks::running_block != nullptr) {
        mp::blocks::running_block->leave_function();
    }
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
