// SPDX-License-Identifier: Apache-2.0
// Which arrays lie where, where each byte belongs to one of them at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace mp {

// Arrays of which none shares memory with another, and whose each is. O(log n) in their number for each call.
template <typename Owner> class DisjointArrays {
  public:
    // One that has some of these bytes, or null.
    [[nodiscard]] const Owner* find(const void* data, std::size_t bytes) const {
        const auto begin = reinterpret_cast<uintptr_t>(data);
        const auto behind = arrays_.lower_bound(begin + bytes);
        if (data == nullptr || bytes == 0 || behind == arrays_.begin()) {
            return nullptr;
        }
        const Array& last = std::prev(behind)->second; // of those that begin before the end
        return last.end > begin ? &last.owner : nullptr;
    }
    // find() has found none.
    void add(const void* data, std::size_t bytes, const Owner& owner) {
        if (data != nullptr && bytes > 0) {
            const auto begin = reinterpret_cast<uintptr_t>(data);
            arrays_.emplace(begin, Array{begin + bytes, owner});
        }
    }
    void remove(const void* data, std::size_t bytes) noexcept {
        if (data != nullptr && bytes > 0) {
            arrays_.erase(reinterpret_cast<uintptr_t>(data));
        }
    }

  private:
    struct Array {
        uintptr_t end;
        Owner owner;
    };
    std::map<uintptr_t, Array> arrays_; // by beginning
};

} // namespace mp
