// SPDX-License-Identifier: Apache-2.0
#include "optim/layout.hpp"

#include "recipe/keys.hpp"
#include "status/status.hpp"

namespace mp::optim {
namespace {

// What is kept in high precision has gradients and moments without scales.
FormatId unscaled(FormatId format) { return is_scaled(format) ? FormatId::fp32 : format; }

// What a parameter's gradient is reduced in: `wire`, but in fp32 where that is fp8 and the recipe, whose gradients are
// codes, keeps this one in high precision (MS-AMP's biases and norms).
Format reduce_wire(const Format& wire, const recipe::Recipe& recipe, const StateFormats& formats) {
    const bool is_kept = is_scaled(recipe.grad) && !is_scaled(formats.grad);
    return is_fp8(wire.dtype) && is_kept ? comm::wire_format(DType::fp32) : wire;
}

} // namespace

FormatId format_of(const Tensor& tensor) {
    return format_id(tensor.dtype(),
                     tensor.format().grid == kTensorScale ? Coding::scaled : Coding::plain);
}

LayoutTensor layout_tensor(const Tensor& tensor, numerics::RuleId rule, bool is_frozen) {
    LayoutTensor of = {tensor.count(), format_of(tensor), tensor.shape().ndim < 2, rule, is_frozen};
    if (has_blocks(tensor.format().grid)) {
        of.blocks = tensor.format().grid;
        of.columns = tensor.columns();
    }
    return of;
}

StateFormats state_formats(const recipe::Recipe& recipe, FormatId weight, int64_t count,
                           numerics::RuleId rule) {
    const bool narrow = dtype_of(weight) != DType::fp32; // an fp32 parameter is its own master
    const auto choose = [&](FormatId format) { return narrow ? format : unscaled(format); };
    StateFormats formats;
    formats.grad = choose(recipe.grad);
    formats.rule = rule;
    const numerics::RuleInfo info = numerics::rule_info(rule);
    for (int k = 0; k < info.state_count; ++k) {
        formats.states[k] = state_format(choose(recipe.state(info.states[k]).format), count,
                                         recipe.block_min_elements);
    }
    if (narrow) {
        formats.compensation = state_format(recipe.compensation, count, recipe.block_min_elements);
        formats.master = recipe.master;
        formats.half_away = recipe.master == FormatId::fp32 &&
                            recipe.weight_rounding == recipe::RoundingMode::nearest_away;
    }
    return formats;
}

recipe::Recipe with_formats(const recipe::Recipe& recipe, const FormatsOfGroup& formats,
                            numerics::RuleId rule) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    recipe::Recipe own = recipe;
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        const std::string& format = formats[static_cast<std::size_t>(k)];
        if (format.empty()) {
            continue;
        }
        if (k >= info.state_count) {
            fail(Code::invalid_argument,
                 "optimizer: state_formats[%d] is '%.64s', but %s keeps %d state(s); leave it NULL",
                 k, format.c_str(), info.name, info.state_count);
        }
        const std::string key = std::string("optimizer.") + info.state(k).name + ".dtype";
        recipe::set_key(own, recipe::find_key(key), format);
        recipe::StatePolicy& state = own.state(info.states[k]);
        if (state.format == FormatId::fp32) {
            state.rounding = recipe::RoundingMode::nearest;
        }
    }
    recipe::check_recipe(own);
    return own;
}

DType gather_dtype(const recipe::Recipe& recipe, FormatId weight, bool is_vector) {
    const bool is_narrower = dtype_size(recipe.weight_gather) < dtype_size(dtype_of(weight));
    return is_narrower && !is_vector && weight == recipe.weight && !is_scaled(weight)
               ? recipe.weight_gather
               : dtype_of(weight);
}

int64_t LayoutArray::bytes(int64_t count) const {
    const bool is_here = lifetime == Lifetime::always || count == 0;
    if (!blocks.exists()) {
        return format_bytes(format, is_here ? count : 0);
    }
    const Shape shape = slice_shape(blocks, columns, count);
    return is_here ? bytes_of(dtype_of(format), count) +
                         bytes_of(blocks.dtype, blocks.count(shape.sizes[0], shape.sizes[1]))
                   : 0;
}

FormatId kept_format(const recipe::Recipe& recipe, FormatId memory, const LayoutOptions& options) {
    const bool are_codes =
        options.stage > 0 && recipe.fp8.gather && is_scaled(memory) && memory != recipe.weight;
    return are_codes ? recipe.weight : memory;
}

int64_t Layout::unit() const {
    return slice_unit(dtype_of(weight.format), weight.blocks,
                      weight.columns == 0 ? 1 : count / weight.columns, weight.columns);
}

namespace {

// Everybody has it as it is; in stage 3 its slices, between uses.
Layout frozen_layout(const LayoutTensor& tensor, const LayoutOptions& options) {
    Layout layout;
    layout.is_frozen = true;
    layout.count = tensor.count;
    layout.kept = tensor.memory;
    layout.weight = {tensor.memory, Lifetime::always, Place::device, tensor.blocks, tensor.columns};
    layout.formats.rule = tensor.rule;
    layout.gather = dtype_of(tensor.memory);
    if (options.stage == 3) {
        layout.own_weight = layout.weight;
        layout.weight.lifetime = Lifetime::in_use;
        layout.states = Placement::slice;
    }
    return layout;
}

// What ranks that share it add to it.
void share(Layout& layout, const recipe::Recipe& recipe, const LayoutOptions& options) {
    // Weights that are gathered rounded, or that are given back between uses, are kept exactly by their owner.
    const bool is_apart = options.stage == 3 || layout.is_codes ||
                          (options.stage > 0 && layout.gather != dtype_of(layout.kept));
    layout.own_weight.format = is_apart ? layout.kept : FormatId::none;
    layout.states = options.stage > 0 ? Placement::slice : Placement::whole;
    layout.wire = reduce_wire(options.wire, recipe, layout.formats);
    layout.sum.format = comm::is_shared(layout.wire) ? format_id(layout.wire.dtype, Coding::scaled)
                                                     : FormatId::fp32;
    layout.is_summed_everywhere = options.stage == 0;
}

} // namespace

Layout make_layout(const recipe::Recipe& recipe, const LayoutTensor& tensor,
                   const LayoutOptions& options) {
    if (tensor.is_frozen) {
        return frozen_layout(tensor, options);
    }
    Layout layout;
    layout.count = tensor.count;
    layout.kept = kept_format(recipe, tensor.memory, options);
    layout.is_codes = layout.kept != tensor.memory;
    layout.formats = state_formats(recipe, layout.kept, tensor.count, tensor.rule);
    layout.gather = layout.is_codes ? dtype_of(tensor.memory)
                                    : gather_dtype(recipe, layout.kept, tensor.is_vector);
    layout.weight.format = tensor.memory;
    layout.weight.lifetime = options.stage == 3 ? Lifetime::in_use : Lifetime::always;
    layout.grad.format = options.grads_given ? FormatId::none : layout.formats.grad;
    layout.grad.lifetime =
        options.stage >= 2 && !tensor.grad_stays ? Lifetime::in_use : Lifetime::always;
    if (options.stage >= 0) {
        share(layout, recipe, options);
    }
    if (options.offload) {
        layout.states_place = Place::host;
        layout.host_weight = {layout.stepped(), Lifetime::always, Place::host};
    }
    if (options.offload_grads && options.stage >= 0) {
        layout.sum.place = Place::pinned;
    } else if (options.offload_grads) {
        layout.host_grad = {layout.grad.format, Lifetime::always, Place::pinned};
        layout.grad.lifetime = Lifetime::in_use;
    }
    return layout;
}

} // namespace mp::optim
