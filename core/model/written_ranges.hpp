// SPDX-License-Identifier: Apache-2.0
// WrittenRanges: which bytes of something have been written, in pieces of any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace mp::model {

class WrittenRanges {
  public:
    void add(int64_t begin, int64_t end) {
        if (begin >= end) {
            return;
        }
        auto next = ranges_.upper_bound(begin); // the first that begins behind
        if (next != ranges_.begin() && std::prev(next)->second >= begin) {
            --next;
            begin = next->first;
        }
        while (next != ranges_.end() && next->first <= end) {
            end = std::max(end, next->second);
            bytes_ -= next->second - next->first;
            next = ranges_.erase(next);
        }
        ranges_.emplace_hint(next, begin, end);
        bytes_ += end - begin;
    }
    [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }
    // The first byte that is missing.
    [[nodiscard]] int64_t first_gap() const noexcept {
        return ranges_.empty() || ranges_.begin()->first > 0 ? 0 : ranges_.begin()->second;
    }

  private:
    std::map<int64_t, int64_t> ranges_; // begin and end; none touches another
    int64_t bytes_ = 0;
};

} // namespace mp::model
