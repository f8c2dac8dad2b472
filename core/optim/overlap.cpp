// SPDX-License-Identifier: Apache-2.0
#include "optim/overlap.hpp"

#include <algorithm>
#include <vector>

#include "dtype/format_id.hpp"
#include "tensor/memory_ranges.hpp"

namespace mp::optim {
namespace {

using Use = MemoryRanges::Use;
using Segments = std::span<const UpdateSegment>;

// An array of all segments, and the scales of those that have some.
template <typename ArrayOf>
void add_arrays(MemoryRanges& ranges, Segments segments, const char* name, Use use, Use scale_use,
                const ArrayOf& array_of) {
    ranges.begin(name, use);
    bool have_scales = false;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const StepArray& a = array_of(segments[i]);
        ranges.add(a.data, code_bytes(a.coding, a.dtype, segments[i].count), i);
        have_scales = have_scales || a.scale_inv != nullptr;
    }
    if (!have_scales) {
        return;
    }
    ranges.begin(name, scale_use, ".scale_inv");
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const StepArray& a = array_of(segments[i]);
        if (a.scale_inv != nullptr) {
            ranges.add(a.scale_inv, scale_bytes(a.format(), segments[i].count), i);
        }
    }
}

// Single numbers in device memory that the kernels read, or count in.
void add_controls(MemoryRanges& ranges, const StepControls& controls,
                  const numerics::RuleInfo& rule) {
    const auto add = [&ranges](const char* name, Use use, const void* data, std::size_t bytes) {
        ranges.add(name, use, data, static_cast<int64_t>(bytes));
    };
    add("args.lr_pointer", Use::read, controls.lr, sizeof(float));
    add("args.hyper_pointer", Use::read, controls.hyper_values,
        static_cast<std::size_t>(rule.hyper_count) * sizeof(double));
    add("args.grad_scale_pointer", Use::read, controls.grad_scale, sizeof(float));
    add("args.grad_mul_pointer", Use::read, controls.grad_mul, sizeof(float));
    add("args.step_pointer", Use::written, controls.step, sizeof(int64_t));
    add("the scaler", Use::read, controls.scaler, sizeof(numerics::LossScaleState));
    // Slots may share one, as the slices of a parameter do; each is aligned.
    std::vector<const void*> amaxes(controls.amaxes.begin(), controls.amaxes.end());
    std::sort(amaxes.begin(), amaxes.end());
    amaxes.erase(std::unique(amaxes.begin(), amaxes.end()), amaxes.end());
    ranges.begin("param.amax", Use::written);
    for (const void* const amax : amaxes) {
        ranges.add(amax, sizeof(float));
    }
}

} // namespace

void check_no_overlap(Segments segments, numerics::RuleId rule, bool zero_grad,
                      const StepControls& controls) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    MemoryRanges ranges(segments.size() * (4 + static_cast<std::size_t>(info.state_count)) +
                        controls.amaxes.size() + 6);
    const auto add = [&](const char* name, Use use, Use scale_use, const auto& array_of) {
        add_arrays(ranges, segments, name, use, scale_use, array_of);
    };
    using Segment = UpdateSegment;
    add("param", Use::written, Use::written,
        [](const Segment& s) -> const StepArray& { return s.param; });
    add("grad", zero_grad ? Use::written : Use::read, Use::read,
        [](const Segment& s) -> const StepArray& { return s.grad; });
    for (int k = 0; k < info.state_count; ++k) {
        add(info.state(k).name, Use::written, Use::written,
            [k](const Segment& s) -> const StepArray& { return s.states[k]; });
    }
    add("compensation", Use::written, Use::written,
        [](const Segment& s) -> const StepArray& { return s.compensation; });
    add("master", Use::written, Use::written,
        [](const Segment& s) -> const StepArray& { return s.master; });
    add_controls(ranges, controls, info);
    ranges.check("step", "slot");
}

} // namespace mp::optim
