// SPDX-License-Identifier: Apache-2.0
// What a call reads and what it writes, in any order and on many threads: so nothing that it writes may lie in two of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "tensor/tensor.hpp"

namespace mp {

class MemoryRanges {
  public:
    explicit MemoryRanges(std::size_t most = kFewRanges) {
        ranges_.reserve(most);
        names_.reserve(kFewNames);
    }

    enum class Use : uint8_t { read, written };
    static constexpr std::size_t kNoItem = UINT32_MAX;
    // Those that are added from here on, until the next name. The suffix is "" or says which part of it.
    void begin(const char* name, Use use, const char* suffix = "");
    // `item`: which of those with the name, for the message.
    void add(const void* data, int64_t bytes, std::size_t item = kNoItem);

    // One range, or the elements, scales and amax of a tensor; nothing where it is null.
    void add(const char* name, Use use, const void* data, int64_t bytes);
    void add(const char* name, Use use, const Tensor* tensor);
    // Scratch memory of the caller's (mp_queue_set_workspace).
    void add_workspace(const Stream& stream);

    // Throws invalid_argument where a written range meets another one. `call` begins the message, which names both; items are
    // "slot 7" where `item_name` is "slot". O(n log n), and nearly no work where ranges come in order.
    void check(const char* call, const char* item_name = "");

  private:
    struct Name {
        const char* text;
        const char* suffix;
    };
    // Small, as there are several of them for every tensor of every step.
    struct Range {
        uintptr_t begin;
        uintptr_t end;
        uint32_t item;
        uint16_t name; // of all names
        bool is_written;
    };

    void merge();
    [[noreturn]] void refuse(const char* call, const char* item_name, const Range& a,
                             const Range& b) const;

    // Those of a call with a few tensors: they need no memory from the heap.
    static constexpr std::size_t kFewRanges = 24;
    static constexpr std::size_t kFewNames = 20; // a step of plain arrays has 13
    static constexpr std::size_t kFewBytes = kFewRanges * sizeof(Range) + kFewNames * sizeof(Name);
    alignas(Range) std::array<std::byte, kFewBytes> few_;
    std::pmr::monotonic_buffer_resource memory_{few_.data(), few_.size()};
    std::pmr::vector<Range> ranges_{&memory_};
    std::pmr::vector<Name> names_{&memory_};
    std::size_t sorted_ = 0;
    bool are_written_ = false;
};

} // namespace mp
