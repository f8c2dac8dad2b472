// SPDX-License-Identifier: Apache-2.0
// optimizer_update: one fused step, one element at a time. The arithmetic is numerics/rules.hpp, or
// adamw_eager.hpp where eager_compat asks for it; here is which array is read and written, and how
// each is scaled and rounded.
#include <algorithm>
#include <vector>

#include "kernels/update_layout.hpp"
#include "kernels/update_scaling.hpp"
#include "numerics/adamw_eager.hpp"
#include "numerics/block_state.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"
#include "numerics/remainder.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

using numerics::load_as_float;
using numerics::Purpose;

bool supports(const Device& /*device*/, const OpDesc& desc, Reason& reason) noexcept {
    const auto& op = static_cast<const OptimizerUpdateDesc&>(desc);
    bool is_stochastic = op.stochastic_param;
    for (const bool of_state : op.stochastic_states) {
        is_stochastic = is_stochastic || of_state;
    }
    if (op.eager_compat && is_stochastic) {
        reason.set("the eager order of roundings has no stochastic rounding");
        return false;
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        const UpdateSegment& segment = op.table.host_segments[i];
        if (!kernels::layout_is_supported(segment, reason) ||
            !kernels::scaling_is_supported(op, segment, reason)) {
            return false;
        }
        if (op.eager_compat && segment.master.dtype != DType::none) {
            reason.set("the eager order of roundings has no master weight");
            return false;
        }
    }
    return true;
}

// Element i of one array of the step: where it is and how it is rounded when stored.
class Element {
  public:
    Element(const OptimizerUpdateDesc& op, const UpdateSegment& segment, int64_t i)
        : key_(numerics::make_sr_key(op.seed, segment.uid, static_cast<uint64_t>(op.state->step))),
          i_(i), random_index_(static_cast<uint64_t>(segment.first + i)) {}

    [[nodiscard]] float load(DType dtype, const void* data,
                             const float* scale_inv = nullptr) const {
        return kernels::decoded(load_as_float(dtype, data, i_), scale_inv);
    }
    [[nodiscard]] float load(const StepArray& a) const {
        return load(a.dtype, a.data, a.scale_inv);
    }
    [[nodiscard]] float load_joined(const void* param, const void* remainder) const {
        return numerics::join_master(numerics::detail::load_element<uint16_t>(param, i_),
                                     numerics::detail::load_element<int16_t>(remainder, i_));
    }
    void store_split(void* param, void* remainder, float x) const {
        const numerics::SplitMaster split = numerics::split_master(x);
        numerics::detail::store_element(param, i_, split.param);
        numerics::detail::store_element(remainder, i_, split.remainder);
    }
    [[nodiscard]] float load_state(const StepArray& a, bool is_signed) const {
        if (!has_blocks(a.coding)) {
            return load(a);
        }
        const float scale = a.scale_inv[i_ / block_size(a.coding)];
        if (a.coding == Coding::block) {
            return load(a.dtype, a.data) * scale;
        }
        return numerics::dynamic_value(a.coding, is_signed, load_code(a.data, a.coding), scale);
    }
    // A state under the scale of its block.
    void store_state(const StepArray& a, float x, float scale, bool is_signed, bool stochastic,
                     Purpose purpose) const {
        if (a.coding == Coding::block) {
            const float quotient = numerics::e4m3_quotient(is_signed, x, scale);
            store(a.dtype, a.data, kernels::code_value(a.dtype, quotient, 1.0F), stochastic,
                  purpose);
        } else {
            store_code(a.data, a.coding, numerics::dynamic_code(a.coding, is_signed, x, scale));
        }
    }
    // Returns what the bf16 parameter now is.
    float store_half_away(void* param, float x) const {
        const uint16_t code = numerics::bf16_half_away(x);
        numerics::detail::store_element(param, i_, code);
        return numerics::bf16_to_float(code);
    }
    // To nearest even; overflow becomes infinity, which shows, where saturation would hide it.
    void store(DType dtype, void* data, float x) const {
        numerics::store_from_float(dtype, data, i_, x, false);
    }
    void store(DType dtype, void* data, float x, bool stochastic, Purpose purpose) const {
        if (stochastic) {
            const uint32_t bits = numerics::sr_bits32_at(key_, purpose, random_index_);
            (void)numerics::store_from_float_sr(dtype, data, i_, x, bits);
        } else {
            store(dtype, data, x);
        }
    }

  private:
    [[nodiscard]] int32_t load_code(const void* data, Coding coding) const {
        const auto* bytes = static_cast<const uint8_t*>(data);
        if (coding == Coding::dynamic8) {
            return bytes[i_];
        }
        return i_ % 2 == 0 ? bytes[i_ / 2] >> 4 : bytes[i_ / 2] & 0xf;
    }
    void store_code(void* data, Coding coding, int32_t code) const {
        auto* bytes = static_cast<uint8_t*>(data);
        if (coding == Coding::dynamic8) {
            bytes[i_] = static_cast<uint8_t>(code);
        } else if (i_ % 2 == 0) { // the even element first, and with it a nibble that nobody has
            bytes[i_ / 2] = static_cast<uint8_t>(code << 4);
        } else {
            bytes[i_ / 2] = static_cast<uint8_t>(bytes[i_ / 2] | code);
        }
    }

    numerics::SrKey key_;
    int64_t i_;
    uint64_t random_index_; // in the whole parameter
};

// What one element becomes, before anything is rounded.
struct NewElement {
    float weight; // the old master weight or parameter
    float delta;
    float states[numerics::kMaxStates];
};

NewElement compute(const OptimizerUpdateDesc& op, const UpdateSegment& s, const Element& element) {
    const float grad = element.load(s.grad);
    NewElement e{};
    e.weight = s.has_remainder() ? element.load_joined(s.param.data, s.master.data)
                                 : element.load(s.master.exists() ? s.master : s.param);
    const numerics::GroupScalars& scalars = op.scalars[s.group];
    numerics::with_rule(scalars.rule, [&](auto rule) {
        using Rule = decltype(rule);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            e.states[k] = element.load_state(s.states[k], Rule::kStates[k].is_signed);
        }
    });
    e.delta = numerics::rule_delta(scalars, e.weight, grad, e.states);
    return e;
}

void measure_element(const OptimizerUpdateDesc& op, const UpdateSegment& s, int64_t i,
                     UpdateScaling& scaling) {
    const NewElement e = compute(op, s, Element(op, s, i));
    const auto raise = [](uint32_t& largest, float x) {
        largest = std::max(largest, numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask);
    };
    raise(scaling.weight_amax, e.weight + e.delta);
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        raise(scaling.state_amax[k], e.states[k]);
    }
}

float code_if(const float* scale_inv, DType dtype, float x, const numerics::BlockScale& scale) {
    return scale_inv != nullptr ? kernels::code_value(dtype, x, scale.multiply) : x;
}

// `scaling` is read for those arrays only that have a scale.
void store_weight(const OptimizerUpdateDesc& op, const UpdateSegment& s, const Element& element,
                  const NewElement& e, const UpdateScaling& scaling) {
    // Stores the parameter and returns what it now is, where it has no scale.
    const auto store_param = [&](float x) {
        if (s.param_half_away != 0) {
            return element.store_half_away(s.param.data, x);
        }
        element.store(s.param.dtype, s.param.data,
                      code_if(s.param.scale_inv, s.param.dtype, x, scaling.param),
                      op.stochastic_param, Purpose::param);
        return element.load(s.param.dtype, s.param.data);
    };
    if (s.compensation.dtype != DType::none) {
        float carry = element.load(s.compensation.dtype, s.compensation.data);
        numerics::compensated_add(e.weight, e.delta, carry, store_param);
        element.store(s.compensation.dtype, s.compensation.data, carry);
    } else if (s.has_remainder()) {
        element.store_split(s.param.data, s.master.data, e.weight + e.delta);
    } else if (s.master.dtype != DType::none) {
        element.store(
            s.master.dtype, s.master.data,
            code_if(s.master.scale_inv, s.master.dtype, e.weight + e.delta, scaling.master));
        store_param(
            element.load(s.master.dtype, s.master.data,
                         s.master.scale_inv != nullptr ? &scaling.master.scale_inv : nullptr));
    } else {
        store_param(e.weight + e.delta);
    }
}

// The k-th state of elements first, first + 1, ...: its new values, rounded and stored.
void store_states(const OptimizerUpdateDesc& op, const UpdateSegment& s, int k, bool is_signed,
                  const numerics::BlockScale& tensor_scale, int64_t first,
                  const std::vector<float>& values) {
    const StepArray& a = s.states[k];
    const Purpose purpose = numerics::state_purpose(k);
    const auto size = static_cast<std::size_t>(block_size(a.coding));
    for (std::size_t begin = 0; begin < values.size(); begin += size) {
        const std::size_t end = std::min(begin + size, values.size());
        float scale = 0.0F;
        if (has_blocks(a.coding)) {
            uint32_t amax = 0;
            for (std::size_t i = begin; i < end; ++i) {
                amax = std::max(amax, numerics::bits_from_float(values[i]) &
                                          numerics::kFloatMagnitudeMask);
            }
            const int64_t block = (first + static_cast<int64_t>(begin)) / block_size(a.coding);
            scale = numerics::moment_scale(a.coding, numerics::float_from_bits(amax));
            a.scale_inv[block] = scale;
        }
        for (std::size_t i = begin; i < end; ++i) {
            const Element element(op, s, first + static_cast<int64_t>(i));
            if (has_blocks(a.coding)) {
                element.store_state(a, values[i], scale, is_signed, op.stochastic_states[k],
                                    purpose);
            } else {
                element.store(a.dtype, a.data,
                              code_if(a.scale_inv, a.dtype, values[i], tensor_scale),
                              op.stochastic_states[k], purpose);
            }
        }
    }
}

// Elements of whole blocks of every kind: first ... first + 255, or to the end.
void update_block(const OptimizerUpdateDesc& op, const UpdateSegment& s, int64_t first,
                  const UpdateScaling& scaling) {
    const int64_t end = std::min(first + block_size(Coding::block), s.count);
    std::vector<float> values[numerics::kMaxStates];
    for (int64_t i = first; i < end; ++i) {
        const Element element(op, s, i);
        const NewElement e = compute(op, s, element);
        store_weight(op, s, element, e, scaling);
        for (int k = 0; k < numerics::kMaxStates; ++k) {
            values[k].push_back(e.states[k]);
        }
        if (op.zero_grad) {
            element.store(s.grad.dtype, s.grad.data, 0.0F);
        }
    }
    numerics::with_rule(op.scalars[s.group].rule, [&](auto rule) {
        using Rule = decltype(rule);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            store_states(op, s, k, Rule::kStates[k].is_signed, scaling.states[k], first, values[k]);
        }
    });
}

void update_element_eager(const OptimizerUpdateDesc& op, const UpdateSegment& s, int64_t i) {
    const Element element(op, s, i);
    const numerics::GroupHyper& hyper = op.hyper[s.group];
    const numerics::EagerCorrections corrections(hyper, op.group_steps[s.group]);
    const numerics::EagerDTypes types = {s.param.dtype, s.grad.dtype, s.states[0].dtype,
                                         s.states[1].dtype, s.compensation.dtype};
    numerics::EagerElement e;
    e.p = element.load(s.param.dtype, s.param.data);
    e.m = element.load(s.states[0].dtype, s.states[0].data);
    e.v = element.load(s.states[1].dtype, s.states[1].data);
    if (s.compensation.dtype != DType::none) {
        e.c = element.load(s.compensation.dtype, s.compensation.data);
    }
    // Unscaling and clipping are operations of their own, in the gradient's type.
    const float grad = numerics::round_to(s.grad.dtype, element.load(s.grad.dtype, s.grad.data) *
                                                            op.scalars[s.group].grad_mul);
    numerics::eager_update(hyper, corrections, types, grad, e);
    element.store(s.param.dtype, s.param.data, e.p);
    element.store(s.states[0].dtype, s.states[0].data, e.m);
    element.store(s.states[1].dtype, s.states[1].data, e.v);
    if (s.compensation.dtype != DType::none) {
        element.store(s.compensation.dtype, s.compensation.data, e.c);
    }
    if (op.zero_grad) {
        element.store(s.grad.dtype, s.grad.data, 0.0F);
    }
}

void update_segment(const OptimizerUpdateDesc& op, const UpdateSegment& s, UpdateScaling* scaling) {
    if (op.eager_compat) {
        for (int64_t i = 0; i < s.count; ++i) {
            update_element_eager(op, s, i);
        }
        return;
    }
    UpdateScaling unscaled;
    const bool has_two_passes = scaling != nullptr && s.has_scaled_states();
    UpdateScaling& scales = has_two_passes ? *scaling : unscaled;
    if (has_two_passes) {
        scales = {};
        for (int64_t i = 0; i < s.count; ++i) {
            measure_element(op, s, i, scales);
        }
        kernels::renew_scales(s, scales);
    }
    for (int64_t first = 0; first < s.count; first += block_size(Coding::block)) {
        update_block(op, s, first, scales);
    }
    if (has_two_passes) {
        kernels::store_scales(s, scales);
    }
}

// Chunks are there for those who share the work.
Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const OptimizerUpdateDesc&>(desc);
    if (op.state->skip != 0) {
        return {};
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        update_segment(op, op.table.segments[i], op.scaling != nullptr ? op.scaling + i : nullptr);
    }
    return {};
}

} // namespace

const Candidate kOptimizerUpdate = {kName, supports, run, nullptr, nullptr};

} // namespace mp::backends::reference
