// SPDX-License-Identifier: Apache-2.0
// adamw: one fused step, one element at a time. The arithmetic is numerics/adamw_update.hpp, or
// adamw_eager.hpp where eager_compat asks for it; here is which array is read and written, and how
// each is rounded.
#include <initializer_list>

#include "numerics/adamw_eager.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

using numerics::load_as_float;
using numerics::Purpose;

bool is_16_or_32_bit_float(DType dtype) {
    return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

bool supports_segment(const AdamwSegment& s, Reason& reason) {
    for (const DType dtype : {s.param_dtype, s.grad_dtype, s.exp_avg_dtype, s.exp_avg_sq_dtype}) {
        if (!is_16_or_32_bit_float(dtype)) {
            reason.set("parameter, gradient and moments are fp32, fp16 or bf16, not %s",
                       dtype_name(dtype));
            return false;
        }
    }
    if (s.compensation_dtype != DType::none && !is_16_or_32_bit_float(s.compensation_dtype)) {
        reason.set("the compensation is fp32, fp16, bf16 or none, not %s",
                   dtype_name(s.compensation_dtype));
        return false;
    }
    if (s.master_dtype != DType::none &&
        (s.master_dtype != DType::fp32 || s.compensation_dtype != DType::none)) {
        reason.set("a master weight is fp32 and excludes a compensation");
        return false;
    }
    return true;
}

bool supports(const Device& /*device*/, const OpDesc& desc, Reason& reason) noexcept {
    const auto& op = static_cast<const AdamwDesc&>(desc);
    if (op.eager_compat &&
        (op.stochastic_param || op.stochastic_exp_avg || op.stochastic_exp_avg_sq)) {
        reason.set("the eager order of roundings has no stochastic rounding");
        return false;
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        const AdamwSegment& segment = op.table.host_segments[i];
        if (!supports_segment(segment, reason)) {
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

    [[nodiscard]] float load(DType dtype, const void* data) const {
        return load_as_float(dtype, data, i_);
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

void update_element(const AdamwDesc& op, const AdamwSegment& s, int64_t i) {
    const Element element(op, s, i);
    const numerics::AdamwScalars& scalars = op.scalars[s.group];
    const bool has_master = s.master_dtype != DType::none;
    const bool has_compensation = s.compensation_dtype != DType::none;

    const float grad = element.load(s.grad_dtype, s.grad);
    const float weight =
        has_master ? element.load(s.master_dtype, s.master) : element.load(s.param_dtype, s.param);
    float m = element.load(s.exp_avg_dtype, s.exp_avg);
    float v = element.load(s.exp_avg_sq_dtype, s.exp_avg_sq);
    const float delta = numerics::adamw_delta(scalars, weight, grad, m, v);

    // Stores the parameter and returns what it now is.
    const auto store_param = [&](float x) {
        element.store(s.param_dtype, s.param, x, op.stochastic_param, Purpose::param);
        return element.load(s.param_dtype, s.param);
    };
    if (has_compensation) {
        float carry = element.load(s.compensation_dtype, s.compensation);
        numerics::compensated_add(weight, delta, carry, store_param);
        element.store(s.compensation_dtype, s.compensation, carry);
    } else {
        const float updated = weight + delta;
        if (has_master) {
            element.store(s.master_dtype, s.master, updated);
        }
        store_param(updated);
    }
    element.store(s.exp_avg_dtype, s.exp_avg, m, op.stochastic_exp_avg, Purpose::exp_avg);
    element.store(s.exp_avg_sq_dtype, s.exp_avg_sq, v, op.stochastic_exp_avg_sq,
                  Purpose::exp_avg_sq);
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

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const AdamwDesc&>(desc);
    if (op.state->skip != 0) {
        return {};
    }
    for (int64_t chunk = 0; chunk < op.table.chunk_count; ++chunk) {
        const int64_t start = op.table.chunks[chunk].start;
        const AdamwSegment& segment = op.table.segments[op.table.chunks[chunk].segment];
        for (int64_t i = start; i < start + kChunkElements && i < segment.count; ++i) {
            if (op.eager_compat) {
                update_element_eager(op, segment, i);
            } else {
                update_element(op, segment, i);
            }
        }
    }
    return {};
}

} // namespace

const Candidate kAdamw = {kName, supports, run, nullptr, nullptr};

} // namespace mp::backends::reference
