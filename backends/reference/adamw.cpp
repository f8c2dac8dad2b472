// SPDX-License-Identifier: Apache-2.0
// adamw: one fused step, one element at a time. The arithmetic is numerics/adamw_update.hpp, or
// adamw_eager.hpp where eager_compat asks for it; here is which array is read and written, and how
// each is scaled and rounded.
#include <algorithm>

#include "kernels/adamw_layout.hpp"
#include "kernels/adamw_scaling.hpp"
#include "numerics/adamw_eager.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"
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
          i_(i) {}

    [[nodiscard]] float load(DType dtype, const void* data,
                             const float* scale_inv = nullptr) const {
        return kernels::decoded(load_as_float(dtype, data, i_), scale_inv);
    }
    // To nearest even; overflow becomes infinity, which shows, where saturation would hide it.
    void store(DType dtype, void* data, float x) const {
        numerics::store_from_float(dtype, data, i_, x, false);
    }
    void store(DType dtype, void* data, float x, bool stochastic, Purpose purpose) const {
        if (stochastic) {
            const uint32_t bits = numerics::sr_bits32_at(key_, purpose, static_cast<uint64_t>(i_));
            (void)numerics::store_from_float_sr(dtype, data, i_, x, bits);
        } else {
            store(dtype, data, x);
        }
    }

  private:
    numerics::SrKey key_;
    int64_t i_;
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
    e.weight = s.master_dtype != DType::none
                   ? element.load(s.master_dtype, s.master, s.master_scale_inv)
                   : element.load(s.param_dtype, s.param, s.param_scale_inv);
    e.m = element.load(s.exp_avg_dtype, s.exp_avg, s.exp_avg_scale_inv);
    e.v = element.load(s.exp_avg_sq_dtype, s.exp_avg_sq, s.exp_avg_sq_scale_inv);
    e.delta = numerics::adamw_delta(op.scalars[s.group], e.weight, grad, e.m, e.v);
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

// `scaling` is read for those arrays only that have a scale.
void update_element(const AdamwDesc& op, const AdamwSegment& s, int64_t i,
                    const AdamwScaling& scaling) {
    const Element element(op, s, i);
    const NewElement e = compute(op, s, element);
    const auto code = [](DType dtype, float x, const float* scale_inv,
                         const numerics::BlockScale& scale) {
        return scale_inv != nullptr ? kernels::code_value(dtype, x, scale.multiply) : x;
    };
    // Stores the parameter and returns what it now is, where it has no scale.
    const auto store_param = [&](float x) {
        element.store(s.param_dtype, s.param,
                      code(s.param_dtype, x, s.param_scale_inv, scaling.param), op.stochastic_param,
                      Purpose::param);
        return element.load(s.param_dtype, s.param);
    };
    if (s.compensation_dtype != DType::none) {
        float carry = element.load(s.compensation_dtype, s.compensation);
        numerics::compensated_add(e.weight, e.delta, carry, store_param);
        element.store(s.compensation_dtype, s.compensation, carry);
    } else if (s.master_dtype != DType::none) {
        element.store(s.master_dtype, s.master,
                      code(s.master_dtype, e.weight + e.delta, s.master_scale_inv, scaling.master));
        store_param(
            element.load(s.master_dtype, s.master,
                         s.master_scale_inv != nullptr ? &scaling.master.scale_inv : nullptr));
    } else {
        store_param(e.weight + e.delta);
    }
    element.store(s.exp_avg_dtype, s.exp_avg,
                  code(s.exp_avg_dtype, e.m, s.exp_avg_scale_inv, scaling.exp_avg),
                  op.stochastic_exp_avg, Purpose::exp_avg);
    element.store(s.exp_avg_sq_dtype, s.exp_avg_sq,
                  code(s.exp_avg_sq_dtype, e.v, s.exp_avg_sq_scale_inv, scaling.exp_avg_sq),
                  op.stochastic_exp_avg_sq, Purpose::exp_avg_sq);
    if (op.zero_grad) {
        element.store(s.grad_dtype, s.grad, 0.0F);
    }
}

void update_element_eager(const AdamwDesc& op, const AdamwSegment& s, int64_t i) {
    const Element element(op, s, i);
    const numerics::AdamwHyper& hyper = op.hyper[s.group];
    const numerics::EagerCorrections corrections(hyper, op.state->step);
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
    for (int64_t i = 0; i < s.count; ++i) {
        update_element(op, s, i, scales);
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
