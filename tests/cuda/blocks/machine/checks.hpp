// SPDX-License-Identifier: Apache-2.0
// Whether an access is one that a kernel may make, and whether it is ordered with those of other threads.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernel_calls.hpp"
#include "memory.hpp"
#include "report.hpp"
#include "requests.hpp"
#include "warp.hpp"

namespace mp::blocks {

// Who accesses.
struct Accessor {
    uint32_t block = 0;
    uint32_t thread = 0;
    uintptr_t instruction = 0;
    [[nodiscard]] unsigned lane() const { return thread % kWarp; }
    [[nodiscard]] unsigned warp() const { return thread / kWarp; }
};

class Checks {
  public:
    Checks(const Launch& launch, Report& report);

    void begin_block();
    void pass_barrier();
    void sync_warp(unsigned warp, uint32_t mask) { orders_[warp].sync(mask); }

    enum class Space { own, device, shared, forbidden };
    // Where an access lands. forbidden: it was reported, and must not be made.
    Space access(const Accessor& by, Access how, uintptr_t address, std::size_t bytes);

    // Once for an instruction; instruction 0: each time.
    void report(Fault fault, const Accessor& by, const std::string& text);

  private:
    Space find(const Accessor& by, Access how, const Range& range, ByteHistory** bytes);
    ByteHistory* find_shared(const Range& range);
    [[nodiscard]] const Symbol* array_before(uintptr_t address) const;
    void refuse(Fault fault, const Accessor& by, Access how, const Range& range,
                const std::string& why);
    void check_bytes(const Accessor& by, Access how, const Range& range, ByteHistory* bytes);
    // The access that this one is not ordered with, or null.
    const Stamp* find_unordered(const Accessor& by, Access how, const ByteHistory& byte) const;
    [[nodiscard]] bool is_ordered(const Accessor& by, const Stamp& stamp) const;
    [[nodiscard]] bool are_reads_ordered(const Accessor& by, const ByteHistory& byte) const;
    void remember(const Accessor& by, Access how, ByteHistory& byte) const;
    [[nodiscard]] std::string name_of(uintptr_t address) const;

    std::vector<Symbol> arrays_; // the kernel's shared ones
    Report& report_;
    Range parameters_;
    std::vector<ByteHistory> shared_; // of the thread's storage
    std::size_t shared_begin_ = 0;    // what of it was touched by this block
    std::size_t shared_end_ = 0;
    std::vector<WarpOrder> orders_;
    uint32_t launch_first_; // intervals
    uint32_t block_first_;
    std::map<std::pair<Fault, uintptr_t>, std::size_t> found_;
};

} // namespace mp::blocks
