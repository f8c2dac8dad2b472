// SPDX-License-Identifier: Apache-2.0
// optimizer_update: one fused step, one element at a time. The arithmetic is numerics/rules.hpp; here is which array is read and
// written, and how each is scaled and rounded.
#include <algorithm>
#include <vector>

#include "device/update_scaling.hpp"
#include "device/update_supports.hpp"
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
    return update_is_supported<AllFormats>(static_cast<const OptimizerUpdateDesc&>(desc), reason);
}

// Element i of the arrays of a step: where it is and how it is rounded when stored. Every format of the table is loaded and
// stored here, or this does not compile.
class Element {
  public:
    Element(const OptimizerUpdateDesc& op, const UpdateSegment& segment, int64_t i)
        : segment_(segment),
          key_(numerics::make_sr_key(op.seed, segment.uid, static_cast<uint64_t>(op.state->step))),
          i_(i), random_index_(static_cast<uint64_t>(segment.first + i)) {}

    [[nodiscard]] float load(const StepArray& a, bool is_signed = true) const {
        float value = 0.0F;
        AllFormats::visit(a.format(), [&](auto format) {
            using Of = decltype(format);
            if constexpr (Of::kCoding == Coding::remainder) {
                value = numerics::join_master(
                    numerics::detail::load_element<uint16_t>(segment_.param.data, i_),
                    numerics::detail::load_element<int16_t>(a.data, i_));
            } else if constexpr (has_blocks(Of::kCoding)) {
                value = numerics::load_block_value(Of::kCoding, is_signed, a.data, a.scale_inv, i_);
            } else {
                value = decoded(load_as_float(Of::kDType, a.data, i_), a.tensor_scale());
            }
        });
        return value;
    }

    // Numbers and codes under one scale. To nearest even, where nothing else is asked for; overflow becomes infinity, which
    // shows, where saturation would hide it.
    void store(const StepArray& a, float x, const numerics::BlockScale& scale,
               bool stochastic = false, Purpose purpose = Purpose::param) const {
        const float number = a.scale_inv != nullptr ? code_value(a.dtype, x, scale.multiply) : x;
        if (stochastic) {
            (void)numerics::store_from_float_sr(a.dtype, a.data, i_, number, bits(purpose));
        } else {
            numerics::store_from_float(a.dtype, a.data, i_, number, false);
        }
    }
    // A parameter and its remainder.
    void store_split(float x) const {
        const numerics::SplitMaster split = numerics::split_master(x);
        numerics::detail::store_element(segment_.param.data, i_, split.param);
        numerics::detail::store_element(segment_.master.data, i_, split.remainder);
    }
    // A code of a block whose scales are known.
    template <Coding kCoding>
    void store_code(const StepArray& a, float x, float divisor, bool is_signed, bool stochastic,
                    Purpose purpose) const {
        if (stochastic) { // only fp8 codes
            const float quotient = numerics::e4m3_quotient(is_signed, x, divisor);
            (void)numerics::store_from_float_sr(a.dtype, a.data, i_,
                                                code_value(a.dtype, quotient, 1.0F), bits(purpose));
        } else {
            numerics::store_block_code(kCoding, a.data, i_,
                                       numerics::BlockCodec<kCoding>::code(is_signed, x, divisor));
        }
    }
    // Returns what the bf16 parameter now is.
    float store_half_away(void* param, float x) const {
        const uint16_t code = numerics::bf16_half_away(x);
        numerics::detail::store_element(param, i_, code);
        return numerics::bf16_to_float(code);
    }

  private:
    [[nodiscard]] uint32_t bits(Purpose purpose) const {
        return numerics::sr_bits32_at(key_, purpose, random_index_);
    }

    const UpdateSegment& segment_;
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
    e.weight = element.load(s.master.exists() ? s.master : s.param);
    const numerics::GroupScalars& scalars = op.scalars[s.group];
    numerics::with_rule(scalars.rule, [&](auto rule) {
        using Rule = decltype(rule);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            e.states[k] = element.load(s.states[k], numerics::is_signed_state<Rule>(k));
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

// `scaling` is read for those arrays only that have a scale. Returns what a compensation becomes.
float store_weight(const OptimizerUpdateDesc& op, const UpdateSegment& s, const Element& element,
                   const NewElement& e, const UpdateScaling& scaling) {
    // Stores the parameter and returns what it now is, where it has no scale.
    const auto store_param = [&](float x) {
        if (s.param_half_away != 0) {
            return element.store_half_away(s.param.data, x);
        }
        element.store(s.param, x, scaling.param, op.stochastic_param, Purpose::param);
        return element.load(s.param);
    };
    if (s.compensation.exists()) {
        float carry = element.load(s.compensation);
        numerics::compensated_add(e.weight, e.delta, carry, store_param);
        return carry;
    }
    if (s.has_remainder()) {
        element.store_split(e.weight + e.delta);
    } else if (s.master.exists()) {
        element.store(s.master, e.weight + e.delta, scaling.master);
        StepArray stored = s.master; // under the new scale, which is not in memory yet
        float scale_inv = scaling.master.scale_inv;
        stored.scale_inv = s.master.scale_inv != nullptr ? &scale_inv : nullptr;
        store_param(element.load(stored));
    } else {
        store_param(e.weight + e.delta);
    }
    return 0.0F;
}

// How one array of new values is stored.
struct Storing {
    const StepArray& array;
    bool is_signed;
    numerics::BlockScale tensor_scale;
    bool stochastic;
    Purpose purpose;
};

uint32_t amax_bits(const std::vector<float>& values, std::size_t begin, std::size_t end) {
    uint32_t amax = 0;
    for (std::size_t i = begin; i < end; ++i) {
        amax = std::max(amax, numerics::bits_from_float(values[i]) & numerics::kFloatMagnitudeMask);
    }
    return amax;
}

// Elements first, first + 1, ..., which begin with a block.
void store_all(const OptimizerUpdateDesc& op, const UpdateSegment& s, const Storing& to,
               int64_t first, const std::vector<float>& values) {
    const auto element = [&](std::size_t i) {
        return Element(op, s, first + static_cast<int64_t>(i));
    };
    AllFormats::visit(to.array.format(), [&](auto format) {
        constexpr Coding kCoding = decltype(format)::kCoding;
        if constexpr (has_blocks(kCoding)) {
            constexpr auto kSize = static_cast<std::size_t>(block_size(kCoding));
            for (std::size_t begin = 0; begin < values.size(); begin += kSize) {
                const std::size_t end = std::min(begin + kSize, values.size());
                const numerics::MomentScale scale = numerics::BlockCodec<kCoding>::scales(
                    to.is_signed, numerics::float_from_bits(amax_bits(values, begin, end)));
                numerics::store_block_scale(
                    kCoding, to.array.scale_inv,
                    (first + static_cast<int64_t>(begin)) / block_size(kCoding), scale.stored);
                for (std::size_t i = begin; i < end; ++i) {
                    element(i).template store_code<kCoding>(to.array, values[i], scale.divisor,
                                                            to.is_signed, to.stochastic,
                                                            to.purpose);
                }
            }
        } else {
            for (std::size_t i = 0; i < values.size(); ++i) {
                element(i).store(to.array, values[i], to.tensor_scale, to.stochastic, to.purpose);
            }
        }
    });
}

// Elements of whole blocks of every kind: first ... first + kLargestBlock - 1, or to the end.
void update_block(const OptimizerUpdateDesc& op, const UpdateSegment& s, int64_t first,
                  const UpdateScaling& scaling) {
    const int64_t end = std::min(first + kLargestBlock, s.count);
    std::vector<float> values[numerics::kMaxStates];
    std::vector<float> compensation;
    for (int64_t i = first; i < end; ++i) {
        const Element element(op, s, i);
        const NewElement e = compute(op, s, element);
        compensation.push_back(store_weight(op, s, element, e, scaling));
        for (int k = 0; k < numerics::kMaxStates; ++k) {
            values[k].push_back(e.states[k]);
        }
        if (op.zero_grad) {
            numerics::store_from_float(s.grad.dtype, s.grad.data, i, 0.0F, false);
        }
    }
    numerics::with_rule(op.scalars[s.group].rule, [&](auto rule) {
        using Rule = decltype(rule);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            store_all(op, s,
                      {s.states[k], numerics::is_signed_state<Rule>(k), scaling.states[k],
                       op.stochastic_states[k], numerics::state_purpose(k)},
                      first, values[k]);
        }
    });
    if (s.compensation.exists()) {
        store_all(op, s, {s.compensation, true, {}, false, Purpose::compensation}, first,
                  compensation);
    }
}

void update_segment(const OptimizerUpdateDesc& op, const UpdateSegment& s, UpdateScaling* scaling) {
    UpdateScaling unscaled;
    const bool has_two_passes = scaling != nullptr && s.has_scaled_states();
    UpdateScaling& scales = has_two_passes ? *scaling : unscaled;
    if (has_two_passes) {
        scales = {};
        for (int64_t i = 0; i < s.count; ++i) {
            measure_element(op, s, i, scales);
        }
        renew_scales(s, scales);
    }
    for (int64_t first = 0; first < s.count; first += kLargestBlock) {
        update_block(op, s, first, scales);
    }
    if (has_two_passes) {
        store_scales(s, scales);
    }
}

// Of a step that is skipped.
void zero_gradients(const OptimizerUpdateDesc& op) {
    for (int64_t i = 0; op.zero_grad && i < op.table.segment_count; ++i) {
        const UpdateSegment& s = op.table.segments[i];
        for (int64_t j = 0; j < s.count; ++j) {
            numerics::store_from_float(s.grad.dtype, s.grad.data, j, 0.0F, false);
        }
    }
}

// Chunks are there for those who share the work.
Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const OptimizerUpdateDesc&>(desc);
    if (op.state->skip != 0) {
        zero_gradients(op);
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
