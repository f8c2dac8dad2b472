// SPDX-License-Identifier: Apache-2.0
#include "optim/overlap.hpp"

#include <algorithm>
#include <vector>

#include "dtype/state_format.hpp"
#include "status/status.hpp"

namespace mp {
namespace {

// Two parts, put together for a message only: a step on the caller's pointers makes these each time.
struct Name {
    const char* text;
    const char* suffix = "";
};

struct Range {
    uintptr_t begin;
    uintptr_t end;
    std::size_t segment;
    Name name;
    bool is_written;
};

class Ranges {
  public:
    void add(std::size_t segment, Name name, const void* data, int64_t bytes, bool is_written) {
        if (data != nullptr && bytes > 0) {
            const auto begin = reinterpret_cast<uintptr_t>(data);
            ranges_.push_back(
                {begin, begin + static_cast<uintptr_t>(bytes), segment, name, is_written});
        }
    }

    // Sorted by their beginning, a range meets an earlier one exactly where one of those ends behind its beginning.
    void check() {
        std::sort(ranges_.begin(), ranges_.end(),
                  [](const Range& a, const Range& b) { return a.begin < b.begin; });
        const Range* longest = nullptr;
        const Range* longest_written = nullptr;
        for (const Range& range : ranges_) {
            const Range* other = range.is_written ? longest : longest_written;
            if (other != nullptr && other->end > range.begin) {
                refuse(*other, range);
            }
            const auto extend = [&range](const Range*& to) {
                to = to == nullptr || range.end > to->end ? &range : to;
            };
            extend(longest);
            if (range.is_written) {
                extend(longest_written);
            }
        }
    }

  private:
    [[noreturn]] static void refuse(const Range& a, const Range& b) {
        fail(Code::invalid_argument,
             "slot %lld: %s%s overlaps %s%s of slot %lld in memory; what a step writes needs "
             "memory of "
             "its own",
             static_cast<long long>(b.segment), b.name.text, b.name.suffix, a.name.text,
             a.name.suffix, static_cast<long long>(a.segment));
    }

    std::vector<Range> ranges_;
};

} // namespace

void check_no_overlap(std::span<const UpdateSegment> segments, numerics::RuleId rule,
                      bool zero_grad) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    Ranges ranges;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const UpdateSegment& s = segments[i];
        const auto array = [&](const char* name, const StepArray& a, bool is_written) {
            ranges.add(i, {name}, a.data, code_bytes(a.coding, a.dtype, s.count), is_written);
        };
        array("param", s.param, true);
        array("grad", s.grad, zero_grad);
        array("compensation", s.compensation, true);
        array("master", s.master, true);
        for (int k = 0; k < info.state_count; ++k) {
            const StepArray& a = s.states[k];
            array(info.states[k].name, a, true);
            const int64_t scales =
                has_blocks(a.coding) ? scale_count({a.dtype, a.coding}, s.count) : 1;
            ranges.add(i, {info.states[k].name, "_scale_inv"}, a.scale_inv,
                       scales * int64_t{sizeof(float)}, true);
        }
        ranges.add(i, {"param", "_scale_inv"}, s.param.scale_inv, sizeof(float), true);
        ranges.add(i, {"master", "_scale_inv"}, s.master.scale_inv, sizeof(float), true);
        ranges.add(i, {"grad", "_scale_inv"}, s.grad.scale_inv, sizeof(float), false);
    }
    ranges.check();
}

} // namespace mp
