// SPDX-License-Identifier: Apache-2.0
#include "optim/overlap.hpp"

#include <algorithm>
#include <vector>

#include "dtype/state_format.hpp"
#include "status/status.hpp"

namespace mp {
namespace {

struct Range {
    uintptr_t begin;
    uintptr_t end;
    std::size_t segment;
    const char* name;
    bool is_written;
};

class Ranges {
  public:
    void add(std::size_t segment, const char* name, const void* data, int64_t bytes,
             bool is_written) {
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
             "slot %lld: %s overlaps %s of slot %lld in memory; what a step writes needs memory of "
             "its "
             "own",
             static_cast<long long>(b.segment), b.name, a.name, static_cast<long long>(a.segment));
    }

    std::vector<Range> ranges_;
};

} // namespace

void check_no_overlap(std::span<const AdamwSegment> segments, bool zero_grad) {
    Ranges ranges;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const AdamwSegment& s = segments[i];
        const auto moment = [&](const char* name, const char* scale_name, const void* data,
                                DType dtype, Coding coding, const float* scale) {
            ranges.add(i, name, data, code_bytes(coding, dtype, s.count), true);
            const int64_t scales =
                has_blocks(coding) ? (s.count + block_size(coding) - 1) / block_size(coding) : 1;
            ranges.add(i, scale_name, scale, scales * int64_t{sizeof(float)}, true);
        };
        const auto array = [&](const char* name, const void* data, DType dtype, bool is_written) {
            ranges.add(i, name, data, bytes_of(dtype, s.count), is_written);
        };
        array("param", s.param, s.param_dtype, true);
        array("grad", s.grad, s.grad_dtype, zero_grad);
        array("compensation", s.compensation, s.compensation_dtype, true);
        array("master", s.master, s.master_dtype, true);
        moment("exp_avg", "exp_avg_scale_inv", s.exp_avg, s.exp_avg_dtype, s.exp_avg_coding,
               s.exp_avg_scale_inv);
        moment("exp_avg_sq", "exp_avg_sq_scale_inv", s.exp_avg_sq, s.exp_avg_sq_dtype,
               s.exp_avg_sq_coding, s.exp_avg_sq_scale_inv);
        ranges.add(i, "param_scale_inv", s.param_scale_inv, sizeof(float), true);
        ranges.add(i, "master_scale_inv", s.master_scale_inv, sizeof(float), true);
        ranges.add(i, "grad_scale_inv", s.grad_scale_inv, sizeof(float), false);
    }
    ranges.check();
}

} // namespace mp
