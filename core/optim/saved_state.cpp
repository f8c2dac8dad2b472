// SPDX-License-Identifier: Apache-2.0
#include "optim/saved_state.hpp"

#include "dtype/divide.hpp"

namespace mp::optim {

namespace {

// What of a parameter is in a checkpoint, one array after another.
class Saved {
  public:
    explicit Saved(const StatesPlace& place) : place_(place) {}

    void add(const std::string& state, FormatId format, void* data, void* scales) {
        if (format == FormatId::none) {
            return;
        }
        const bool is_here = place_.count > 0 && data != nullptr;
        SavedTensor tensor = part(state, format, data);
        tensor.shape = place_.shape;
        tensor.start = is_here ? place_.start : 0;
        tensor.count = is_here ? place_.count : 0;
        list_.push_back(tensor);
        if (is_scaled(format)) {
            add_one(state + "_scale_inv", DType::fp32, scales);
        } else if (scale_grid(format).exists()) {
            SavedTensor scale =
                part(state + "_scale_inv", format_id(scale_grid(format).dtype), scales);
            const int64_t block = block_size(format);
            scale.shape = {scale_count(format, place_.whole)};
            scale.start = tensor.start / block;
            scale.count = divide_up(tensor.count, block);
            list_.push_back(std::move(scale));
        }
    }

    // The scales of a weight's blocks, where they lie, and what they are relative to.
    void add_blocks(const ArrayRef& weight) {
        const ScaleGrid& grid = weight.format.grid;
        if (!has_blocks(grid)) {
            return;
        }
        const int64_t columns = place_.shape.empty() ? 1 : place_.shape.back();
        const int64_t rows = columns == 0 ? 0 : place_.whole / columns;
        const bool is_here = place_.count > 0 && weight.scale_inv != nullptr;
        SavedTensor scales = part("param_scale_inv", format_id(grid.dtype), weight.scale_inv);
        scales.shape = {grid.rows(rows), grid.columns(columns)};
        scales.start = is_here && columns > 0 && place_.start > 0
                           ? grid.index(place_.start / columns, place_.start % columns, columns)
                           : 0;
        scales.count = is_here ? weight.scale_count() : 0;
        list_.push_back(std::move(scales));
        if (weight.format.policy.rule == numerics::ScaleRule::nvfp4) {
            add_one("param_amax", DType::fp32, weight.amax);
        }
    }

    [[nodiscard]] std::vector<SavedTensor> take() { return std::move(list_); }

  private:
    [[nodiscard]] SavedTensor part(const std::string& state, FormatId format, void* data) const {
        SavedTensor tensor;
        tensor.state = state;
        tensor.format = format;
        tensor.data = data;
        tensor.stream = place_.stream;
        tensor.is_everywhere = place_.is_everywhere;
        tensor.is_copy = place_.is_copy;
        return tensor;
    }
    // A number of the whole tensor, which goes with each of its slices. Its first one's owner saves it.
    void add_one(const std::string& state, DType dtype, void* data) {
        SavedTensor one = part(state, format_id(dtype), data);
        one.count = place_.count > 0 && data != nullptr ? 1 : 0;
        one.is_copy = one.is_copy || place_.start > 0;
        list_.push_back(std::move(one));
    }

    const StatesPlace& place_;
    std::vector<SavedTensor> list_;
};

} // namespace

std::vector<SavedTensor> saved_tensors(const StatesPlace& place) {
    Saved saved(place);
    UpdateSegment s;
    if (place.states != nullptr) {
        place.states->fill(s);
    }
    saved.add("param", place.weight, place.param.data, place.param.scale_inv);
    saved.add_blocks(place.param);
    const numerics::RuleInfo rule = numerics::rule_info(place.formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        saved.add(rule.state(k).name, place.formats.states[k], s.states[k].data,
                  s.states[k].scale_inv);
    }
    saved.add("compensation", place.formats.compensation, s.compensation.data,
              s.compensation.scale_inv);
    saved.add("master", place.formats.master, s.master.data, s.master.scale_inv);
    return saved.take();
}

} // namespace mp::optim
