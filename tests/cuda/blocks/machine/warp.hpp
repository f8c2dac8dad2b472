// SPDX-License-Identifier: Apache-2.0
// What lanes of a warp do together.
#pragma once

#include <array>
#include <cstdint>

#include "kernel_calls.hpp"

namespace mp::blocks {

inline constexpr uint32_t kWholeWarp = 0xffffffffU;

// Which accesses of other lanes a lane knows to be over, between two barriers of the block. Only __syncwarp() says so:
// shuffles, votes and reductions order no memory.
class WarpOrder {
  public:
    [[nodiscard]] uint32_t time() const { return time_; }
    // Whether `lane` comes after what `other` did at a time.
    [[nodiscard]] bool knows(unsigned lane, unsigned other, uint32_t time) const {
        return known_[lane][other] >= time;
    }
    void sync(uint32_t mask);

  private:
    uint32_t time_ = 1;
    std::array<std::array<uint32_t, kWarp>, kWarp> known_ = {};
};

// What a lane gets; `calls` are of all lanes of the mask. Of a shuffle from a lane that is not in the mask: has_source.
struct WarpResult {
    uint64_t value = 0;
    bool has_source = true;
};
WarpResult warp_result(const std::array<WarpCall, kWarp>& calls, unsigned lane);

} // namespace mp::blocks
