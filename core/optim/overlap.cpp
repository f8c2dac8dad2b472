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

// Small, as there are several of them for every tensor of every step.
struct Range {
    uintptr_t begin;
    uintptr_t end;
    uint32_t segment;
    uint16_t name; // of all names
    bool is_written;
};

bool begins_before(const Range& a, const Range& b) { return a.begin < b.begin; }

// The ranges of all segments, sorted. Callers mostly have the arrays of one name behind one another, so those of each name
// are merged to the others: nearly no work where they are in order.
class Ranges {
  public:
    explicit Ranges(std::size_t most) { ranges_.reserve(most); }

    // Those that are added from here on, until the next name.
    void begin(const Name& name, bool are_written) {
        merge();
        names_.push_back(name);
        are_written_ = are_written;
    }
    void add(std::size_t segment, const void* data, int64_t bytes) {
        if (data != nullptr && bytes > 0) {
            const auto begin = reinterpret_cast<uintptr_t>(data);
            ranges_.push_back({begin, begin + static_cast<uintptr_t>(bytes),
                               static_cast<uint32_t>(segment),
                               static_cast<uint16_t>(names_.size() - 1), are_written_});
        }
    }
    // A range meets an earlier one exactly where one of those ends behind its beginning.
    void check() {
        merge();
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
    [[noreturn]] void refuse(const Range& a, const Range& b) const {
        const Name& first = names_[a.name];
        const Name& second = names_[b.name];
        fail(Code::invalid_argument,
             "slot %u: %s%s overlaps %s%s of slot %u in memory; what a step writes needs memory of "
             "its own",
             b.segment, second.text, second.suffix, first.text, first.suffix, a.segment);
    }

    std::vector<Range> ranges_;
    std::vector<Name> names_;
    std::size_t sorted_ = 0;
    bool are_written_ = false;
};

} // namespace

void check_no_overlap(std::span<const UpdateSegment> segments, numerics::RuleId rule,
                      bool zero_grad) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    Ranges ranges(segments.size() * (4 + numerics::kMaxStates));
    const auto add = [&](const char* name, bool is_written, bool is_renewed, const auto& array_of) {
        ranges.begin({name, ""}, is_written);
        bool have_scales = false;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const StepArray& a = array_of(segments[i]);
            ranges.add(i, a.data, code_bytes(a.coding, a.dtype, segments[i].count));
            have_scales = have_scales || a.scale_inv != nullptr;
        }
        if (!have_scales) {
            return;
        }
        ranges.begin({name, "_scale_inv"}, is_renewed);
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const StepArray& a = array_of(segments[i]);
            if (a.scale_inv != nullptr) {
                const StateFormat format = a.format();
                ranges.add(i, a.scale_inv,
                           bytes_of(scale_dtype(format), scale_count(format, segments[i].count)));
            }
        }
    };
    using Segment = UpdateSegment;
    add("param", true, true, [](const Segment& s) -> const StepArray& { return s.param; });
    add("grad", zero_grad, false, [](const Segment& s) -> const StepArray& { return s.grad; });
    for (int k = 0; k < info.state_count; ++k) {
        add(info.states[k].name, true, true,
            [k](const Segment& s) -> const StepArray& { return s.states[k]; });
    }
    add("compensation", true, true,
        [](const Segment& s) -> const StepArray& { return s.compensation; });
    add("master", true, true, [](const Segment& s) -> const StepArray& { return s.master; });
    ranges.check();
}

} // namespace mp::optim
