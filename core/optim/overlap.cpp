// SPDX-License-Identifier: Apache-2.0
#include "optim/overlap.hpp"

#include <algorithm>
#include <vector>

#include "dtype/state_format.hpp"
#include "status/status.hpp"

namespace mp::optim {
namespace {

// What a range is: an array's name, and of its scales the end of theirs.
struct Name {
    const char* text;
    const char* suffix;
};

struct Range {
    uintptr_t begin;
    uintptr_t end;
    std::size_t segment;
    const Name* name;
    bool is_written;
};

bool begins_before(const Range& a, const Range& b) { return a.begin < b.begin; }

// The ranges of all segments, sorted. Callers mostly have the arrays of one name behind one another, so those of each name
// are merged to the others: nearly no work where they are in order.
class Ranges {
  public:
    void add(std::size_t segment, const Name& name, const void* data, int64_t bytes,
             bool is_written) {
        if (data != nullptr && bytes > 0) {
            const auto begin = reinterpret_cast<uintptr_t>(data);
            ranges_.push_back(
                {begin, begin + static_cast<uintptr_t>(bytes), segment, &name, is_written});
        }
    }
    void merge() {
        const auto added = ranges_.begin() + static_cast<std::ptrdiff_t>(sorted_);
        if (!std::is_sorted(added, ranges_.end(), begins_before)) {
            std::sort(added, ranges_.end(), begins_before);
        }
        if (sorted_ > 0 && added != ranges_.end() && begins_before(*added, *(added - 1))) {
            std::inplace_merge(ranges_.begin(), added, ranges_.end(), begins_before);
        }
        sorted_ = ranges_.size();
    }

    // A range meets an earlier one exactly where one of those ends behind its beginning.
    void check() const {
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
             static_cast<long long>(b.segment), b.name->text, b.name->suffix, a.name->text,
             a.name->suffix, static_cast<long long>(a.segment));
    }

    std::vector<Range> ranges_;
    std::size_t sorted_ = 0;
};

} // namespace

void check_no_overlap(std::span<const UpdateSegment> segments, numerics::RuleId rule,
                      bool zero_grad) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    Ranges ranges;
    const auto add = [&](const Name(&names)[2], bool is_written, bool is_renewed,
                         const auto& array_of) {
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const StepArray& a = array_of(segments[i]);
            ranges.add(i, names[0], a.data, code_bytes(a.coding, a.dtype, segments[i].count),
                       is_written);
        }
        ranges.merge();
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const StepArray& a = array_of(segments[i]);
            if (a.scale_inv != nullptr) {
                const StateFormat format = a.format();
                ranges.add(i, names[1], a.scale_inv,
                           bytes_of(scale_dtype(format), scale_count(format, segments[i].count)),
                           is_renewed);
            }
        }
        ranges.merge();
    };
    using Segment = UpdateSegment;
    constexpr const char* kScale = "_scale_inv";
    const Name param[] = {{"param", ""}, {"param", kScale}};
    const Name grad[] = {{"grad", ""}, {"grad", kScale}};
    const Name compensation[] = {{"compensation", ""}, {"compensation", kScale}};
    const Name master[] = {{"master", ""}, {"master", kScale}};
    Name states[numerics::kMaxStates][2];
    add(param, true, true, [](const Segment& s) -> const StepArray& { return s.param; });
    add(grad, zero_grad, false, [](const Segment& s) -> const StepArray& { return s.grad; });
    add(compensation, true, true,
        [](const Segment& s) -> const StepArray& { return s.compensation; });
    add(master, true, true, [](const Segment& s) -> const StepArray& { return s.master; });
    for (int k = 0; k < info.state_count; ++k) {
        states[k][0] = {info.states[k].name, ""};
        states[k][1] = {info.states[k].name, kScale};
        add(states[k], true, true,
            [k](const Segment& s) -> const StepArray& { return s.states[k]; });
    }
    ranges.check();
}

} // namespace mp::optim
