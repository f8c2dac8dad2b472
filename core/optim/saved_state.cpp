// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_state.hpp"

#include "dtype/divide.hpp"

namespace mp::optim {

std::vector<SavedTensor> saved_tensors(const StatesPlace& place) {
    std::vector<SavedTensor> saved;
    const auto add = [&](const std::string& state, FormatId format, void* data, void* scales) {
        if (format == FormatId::none) {
            return;
        }
        const bool is_here = place.count > 0 && data != nullptr;
        SavedTensor tensor = {
            state,        format, place.shape, 0, 0, data, place.stream, place.is_everywhere,
            place.is_copy};
        tensor.start = is_here ? place.start : 0;
        tensor.count = is_here ? place.count : 0;
        saved.push_back(tensor);
        if (!scale_grid(format).exists()) {
            return;
        }
        SavedTensor scale = {state + "_scale_inv",
                             format_id(scale_grid(format).dtype),
                             {},
                             0,
                             0,
                             scales,
                             place.stream,
                             place.is_everywhere,
                             place.is_copy};
        if (is_scaled(format)) { // whole tensors only: one number, with its owner
            scale.count = is_here ? 1 : 0;
        } else {
            const int64_t block = block_size(format);
            scale.shape = {scale_count(format, place.whole)};
            scale.start = tensor.start / block;
            scale.count = divide_up(tensor.count, block);
        }
        saved.push_back(std::move(scale));
    };

    UpdateSegment s;
    if (place.states != nullptr) {
        place.states->fill(s);
    }
    add("param", place.weight, place.param.data, place.param.scale_inv);
    const numerics::RuleInfo rule = numerics::rule_info(place.formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        add(rule.state(k).name, place.formats.states[k], s.states[k].data, s.states[k].scale_inv);
    }
    add("compensation", place.formats.compensation, s.compensation.data, s.compensation.scale_inv);
    add("master", place.formats.master, s.master.data, s.master.scale_inv);
    return saved;
}

} // namespace mp::optim
