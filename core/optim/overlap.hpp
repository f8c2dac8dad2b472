// SPDX-License-Identifier: Apache-2.0
// A step works on its arrays in any order and on many threads, so nothing that it writes may lie in two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>

#include "device/ops.hpp"

namespace mp::optim {

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

// Numbers in device memory that a step reads beside its arrays; null where there are none.
struct StepControls {
    const void* lr = nullptr;           // one float
    const void* hyper_values = nullptr; // as numerics::GroupHyper::device_values
    const void* grad_scale = nullptr;   // one float
    const void* grad_mul = nullptr;     // one float
    const void* step = nullptr;         // one int64_t, counted up
    const numerics::LossScaleState* scaler = nullptr;
    std::span<const void* const> amaxes; // written; some may be the same
};

// Throws invalid_argument where an array or number that a step writes shares memory with another of them; the text names both.
// Gradients are written where `zero_grad` is set. O(n log n) in the number of arrays.
void check_no_overlap(std::span<const UpdateSegment> segments, numerics::RuleId rule,
                      bool zero_grad, const StepControls& controls = {});

} // namespace mp::optim
