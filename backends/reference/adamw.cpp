// SPDX-License-Identifier: Apache-2.0
// adamw: one fused step, one element at a time. The arithmetic is numerics/adamw_update.hpp, or
// adamw_eager.hpp where eager_compat asks for it; here is which array is read and written, and how
// each is scaled and rounded.
#include <algorithm>
#include <vector>

#include "kernels/adamw_layout.hpp"
#include "kernels/adamw_scaling.hpp"
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
    const auto& op = static_cast<const AdamwDesc&>(desc);
    if (op.eager_compat &&
        (op.stochastic_param || op.stochastic_exp_avg || op.stochastic_exp_avg_sq)) {
        reason.set("the eager order of roundings has no stochastic rounding");
        return false;
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        const AdamwSegment& segment = op.table.host_segments[i];
        if (!kernels::layout_is_supported(segment, reason) ||
            !kernels::scaling_is_supported(op, segment, reason)) {
            return false;
        }
        if (op.eager_compat && segment.master_dtype != DType::none) {
            reason.set("the eager order of roundings has no master weight");
            return false;
        }
    }
    return true;
}

// Element i of one array of the step: where it is and how it is rounded when stored.
class Element {
  public:
    Element(const AdamwDesc& op, const AdamwSegment& segment, int64_t i)
        : key_(numerics::make_sr_key(op.seed, segment.uid, static_cast<uint64_t>(op.state->step))),
          i_(i), random_index_(static_cast<uint64_t>(segment.first + i)) {}

    [[nodiscard]] float load(DType dtype, const void* data,
                             const float* scale_inv = nullptr) const {
        return kernels::decoded(load_as_float(dtype, data, i_), scale_inv);
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
    [[nodiscard]] float load_moment(DType dtype, const void* data, const float* scales,
                                    Coding coding, bool is_signed) const {
        if (!has_blocks(coding)) {
            return load(dtype, data, scales);
        }
        const float scale = scales[i_ / block_size(coding)];
        if (coding == Coding::block) {
            return load(dtype, data) * scale;
        }
        return numerics::dynamic_value(coding, is_signed, load_code(data, coding), scale);
    }
    // A moment under the scale of its block.
    void store_moment(DType dtype, void* data, float x, float scale, Coding coding, bool is_signed,
                      bool stochastic, Purpose purpose) const {
        if (coding == Coding::block) {
            const float quotient = numerics::e4m3_quotient(is_signed, x, scale);
            store(dtype, data, kernels::code_value(dtype, quotient, 1.0F), stochastic, purpose);
        } else {
            store_code(data, coding, numerics::dynamic_code(coding, is_signed, x, scale));
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
    float m;
    float v;
};

NewElement compute(const AdamwDesc& op, const AdamwSegment& s, const Element& element) {
    const float grad = element.load(s.grad_dtype, s.grad, s.grad_scale_inv);
    NewElement e{};
    e.weight = s.has_remainder() ? element.load_joined(s.param, s.master)
               : s.master_dtype != DType::none
                   ? element.load(s.master_dtype, s.master, s.master_scale_inv)
                   : element.load(s.param_dtype, s.param, s.param_scale_inv);
    e.m = element.load_moment(s.exp_avg_dtype, s.exp_avg, s.exp_avg_scale_inv, s.exp_avg_coding,
                              true);
    e.v = element.load_moment(s.exp_avg_sq_dtype, s.exp_avg_sq, s.exp_avg_sq_scale_inv,
                              s.exp_avg_sq_coding, false);
    e.delta = numerics::rule_delta(op.scalars[s.group], e.weight, grad, e.m, e.v);
    return e;
}

void measure_element(const AdamwDesc& op, const AdamwSegment& s, int64_t i, AdamwScaling& scaling) {
    const NewElement e = compute(op, s, Element(op, s, i));
    const auto raise = [](uint32_t& largest, float x) {
        largest = std::max(largest, numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask);
    };
    raise(scaling.weight_amax, e.weight + e.delta);
    raise(scaling.exp_avg_amax, e.m);
    raise(scaling.exp_avg_sq_amax, e.v);
}

float code_if(const float* scale_inv, DType dtype, float x, const numerics::BlockScale& scale) {
    return scale_inv != nullptr ? kernels::code_value(dtype, x, scale.multiply) : x;
}

// `scaling` is read for those arrays only that have a scale.
void store_weight(const AdamwDesc& op, const AdamwSegment& s, const Element& element,
                  const NewElement& e, const AdamwScaling& scaling) {
    // Stores the parameter and returns what it now is, where it has no scale.
    const auto store_param = [&](float x) {
        if (s.param_half_away != 0) {
            return element.store_half_away(s.param, x);
        }
        element.store(s.param_dtype, s.param,
                      code_if(s.param_scale_inv, s.param_dtype, x, scaling.param),
                      op.stochastic_param, Purpose::param);
        return element.load(s.param_dtype, s.param);
    };
    if (s.compensation_dtype != DType::none) {
        float carry = element.load(s.compensation_dtype, s.compensation);
        numerics::compensated_add(e.weight, e.delta, carry, store_param);
        element.store(s.compensation_dtype, s.compensation, carry);
    } else if (s.has_remainder()) {
        element.store_split(s.param, s.master, e.weight + e.delta);
    } else if (s.master_dtype != DType::none) {
        element.store(
            s.master_dtype, s.master,
            code_if(s.master_scale_inv, s.master_dtype, e.weight + e.delta, scaling.master));
        store_param(
            element.load(s.master_dtype, s.master,
                         s.master_scale_inv != nullptr ? &scaling.master.scale_inv : nullptr));
    } else {
        store_param(e.weight + e.delta);
    }
}

// One moment of a group of elements, `values` its new values.
struct Moment {
    void* data;
    float* scales;
    DType dtype;
    Coding coding;
    bool is_signed;
    bool stochastic;
    Purpose purpose;
    const numerics::BlockScale* scale; // of the whole tensor
};

void store_moments(const AdamwDesc& op, const AdamwSegment& s, const Moment& moment, int64_t first,
                   const std::vector<float>& values) {
    const auto size = static_cast<std::size_t>(block_size(moment.coding));
    for (std::size_t begin = 0; begin < values.size(); begin += size) {
        const std::size_t end = std::min(begin + size, values.size());
        float scale = 0.0F;
        if (has_blocks(moment.coding)) {
            uint32_t amax = 0;
            for (std::size_t k = begin; k < end; ++k) {
                amax = std::max(amax, numerics::bits_from_float(values[k]) &
                                          numerics::kFloatMagnitudeMask);
            }
            const int64_t block = (first + static_cast<int64_t>(begin)) / block_size(moment.coding);
            scale = numerics::moment_scale(moment.coding, numerics::float_from_bits(amax));
            moment.scales[block] = scale;
        }
        for (std::size_t k = begin; k < end; ++k) {
            const Element element(op, s, first + static_cast<int64_t>(k));
            if (has_blocks(moment.coding)) {
                element.store_moment(moment.dtype, moment.data, values[k], scale, moment.coding,
                                     moment.is_signed, moment.stochastic, moment.purpose);
            } else {
                element.store(moment.dtype, moment.data,
                              code_if(moment.scales, moment.dtype, values[k], *moment.scale),
                              moment.stochastic, moment.purpose);
            }
        }
    }
}

// Elements of whole blocks of every kind: first ... first + 255, or to the end.
void update_block(const AdamwDesc& op, const AdamwSegment& s, int64_t first,
                  const AdamwScaling& scaling) {
    const int64_t end = std::min(first + block_size(Coding::block), s.count);
    std::vector<float> m;
    std::vector<float> v;
    for (int64_t i = first; i < end; ++i) {
        const Element element(op, s, i);
        const NewElement e = compute(op, s, element);
        store_weight(op, s, element, e, scaling);
        m.push_back(e.m);
        v.push_back(e.v);
        if (op.zero_grad) {
            element.store(s.grad_dtype, s.grad, 0.0F);
        }
    }
    store_moments(op, s,
                  {s.exp_avg, s.exp_avg_scale_inv, s.exp_avg_dtype, s.exp_avg_coding, true,
                   op.stochastic_exp_avg, Purpose::exp_avg, &scaling.exp_avg},
                  first, m);
    store_moments(op, s,
                  {s.exp_avg_sq, s.exp_avg_sq_scale_inv, s.exp_avg_sq_dtype, s.exp_avg_sq_coding,
                   false, op.stochastic_exp_avg_sq, Purpose::exp_avg_sq, &scaling.exp_avg_sq},
                  first, v);
}

void update_element_eager(const AdamwDesc& op, const AdamwSegment& s, int64_t i) {
    const Element element(op, s, i);
    const numerics::AdamwHyper& hyper = op.hyper[s.group];
    const numerics::EagerCorrections corrections(hyper, op.group_steps[s.group]);
    const numerics::EagerDTypes types = {s.param_dtype, s.grad_dtype, s.exp_avg_dtype,
                                         s.exp_avg_sq_dtype, s.compensation_dtype};
    numerics::EagerElement e;
    e.p = element.load(s.param_dtype, s.param);
    e.m = element.load(s.exp_avg_dtype, s.exp_avg);
    e.v = element.load(s.exp_avg_sq_dtype, s.exp_avg_sq);
    if (s.compensation_dtype != DType::none) {
        e.c = element.load(s.compensation_dtype, s.compensation);
    }
    // Unscaling and clipping are operations of their own, in the gradient's type.
    const float grad = numerics::round_to(s.grad_dtype, element.load(s.grad_dtype, s.grad) *
                                                            op.scalars[s.group].grad_mul);
    numerics::eager_update(hyper, corrections, types, grad, e);
    element.store(s.param_dtype, s.param, e.p);
    element.store(s.exp_avg_dtype, s.exp_avg, e.m);
    element.store(s.exp_avg_sq_dtype, s.exp_avg_sq, e.v);
    if (s.compensation_dtype != DType::none) {
        element.store(s.compensation_dtype, s.compensation, e.c);
    }
    if (op.zero_grad) {
        element.store(s.grad_dtype, s.grad, 0.0F);
    }
}

void update_segment(const AdamwDesc& op, const AdamwSegment& s, AdamwScaling* scaling) {
    if (op.eager_compat) {
        for (int64_t i = 0; i < s.count; ++i) {
            update_element_eager(op, s, i);
        }
        return;
    }
    AdamwScaling unscaled;
    const bool has_two_passes = scaling != nullptr && s.has_scaled_states();
    AdamwScaling& scales = has_two_passes ? *scaling : unscaled;
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
    const auto& op = static_cast<const AdamwDesc&>(desc);
    if (op.state->skip != 0) {
        return {};
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        update_segment(op, op.table.segments[i], op.scaling != nullptr ? op.scaling + i : nullptr);
    }
    return {};
}

} // namespace

const Candidate kAdamw = {kName, supports, run, nullptr, nullptr};

} // namespace mp::backends::reference
