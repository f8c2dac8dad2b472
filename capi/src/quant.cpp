// SPDX-License-Identifier: Apache-2.0
// quant.h
#include "quant/quantize.hpp"

#include <array>
#include <cmath>

#include "boundary.hpp"
#include "objects.hpp"
#include "quant_form.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

using numerics::QuantStats;
using numerics::ScaleRule;

// By MP_SCALING_* - 1.
constexpr std::array kGrids = {kTensorScale,    kRowScales,         kColumnScales,
                               kRowBlockScales, kColumnBlockScales, kSquareBlockScales,
                               kMxRowScales,    kMxColumnScales,    kNvfp4Scales};
static_assert(kGrids.size() == MP_SCALING_NVFP4);
static_assert(static_cast<int32_t>(ScaleRule::nvfp4) + 1 == MP_SCALE_RULE_NVFP4);
static_assert(static_cast<int32_t>(ScaleRule::mx_rceil) + 1 == MP_SCALE_RULE_MX_RCEIL);

constexpr int32_t kMaxMargin = 20;

int32_t usual_rule(int32_t scaling) {
    if (scaling == MP_SCALING_NVFP4) {
        return MP_SCALE_RULE_NVFP4;
    }
    const bool is_mx = scaling == MP_SCALING_MX_1X32 || scaling == MP_SCALING_MX_32X1;
    return is_mx ? MP_SCALE_RULE_MX_RCEIL : MP_SCALE_RULE_CURRENT;
}

MatrixForm form_of(DType dtype, const mp_quant_desc* source) {
    const auto desc = read_optional_struct(source, "quant");
    check_flags(desc.flags, MP_QUANT_POWER_OF_TWO, "quant.flags");
    const int32_t scaling = desc.scaling == 0 ? MP_SCALING_TENSOR : desc.scaling;
    if (scaling < MP_SCALING_TENSOR || scaling > MP_SCALING_NVFP4) {
        fail(Code::invalid_argument, "quant.scaling is %d; it must be one of MP_SCALING_*",
             desc.scaling);
    }
    const int32_t rule = desc.rule == 0 ? usual_rule(scaling) : desc.rule;
    if (rule < MP_SCALE_RULE_CURRENT || rule > MP_SCALE_RULE_NVFP4) {
        fail(Code::invalid_argument, "quant.rule is %d; it must be one of MP_SCALE_RULE_*",
             desc.rule);
    }
    if (desc.margin < 0 || desc.margin > kMaxMargin) {
        fail(Code::invalid_argument, "quant.margin is %d; it must be in 0..%d", desc.margin,
             kMaxMargin);
    }
    if (!(desc.amax_epsilon >= 0.0 && desc.amax_epsilon <= 1e30)) {
        fail(Code::invalid_argument, "quant.amax_epsilon is %g; it must be in 0..1e30",
             desc.amax_epsilon);
    }
    MatrixForm form{};
    form.dtype = dtype;
    form.grid = kGrids[static_cast<std::size_t>(scaling - 1)];
    form.policy = numerics::scale_policy(static_cast<ScaleRule>(rule - 1), dtype, desc.margin);
    form.policy.power_of_two = (desc.flags & MP_QUANT_POWER_OF_TWO) != 0;
    form.policy.epsilon = static_cast<float>(desc.amax_epsilon);
    return form;
}

const TensorScales& scales_of(const mp_tensor* tensor) {
    const Tensor& object = *object_of(tensor, "tensor");
    if (object.scales() == nullptr) {
        fail(Code::invalid_argument,
             "tensor %s of %s has no scales; make it with mp_tensor_create_quantized",
             object.shape().text().c_str(), dtype_name(object.dtype()));
    }
    return *object.scales();
}

mp_quant_stats public_stats(const QuantStats& stats) {
    mp_quant_stats result = MP_QUANT_STATS_INIT;
    result.elements = stats.elements;
    result.saturated = stats.saturated;
    result.underflowed = stats.underflowed;
    result.non_finite = stats.non_finite;
    result.amax = static_cast<double>(numerics::float_from_bits(stats.amax_bits));
    return result;
}

} // namespace

mp_quant_desc mp::capi::desc_of(const MatrixForm& form) {
    mp_quant_desc desc = MP_QUANT_DESC_INIT;
    for (std::size_t i = 0; i < kGrids.size(); ++i) {
        desc.scaling = kGrids[i] == form.grid ? static_cast<int32_t>(i) + 1 : desc.scaling;
    }
    desc.rule = static_cast<int32_t>(form.policy.rule) + 1;
    desc.flags = form.policy.power_of_two ? MP_QUANT_POWER_OF_TWO : 0;
    desc.amax_epsilon = static_cast<double>(form.policy.epsilon);
    desc.margin = std::ilogb(max_finite(form.dtype) / form.policy.max_code);
    return desc;
}

mp_status mp_tensor_create_quantized(mp_context* context, const mp_tensor_desc* desc,
                                     const mp_quant_desc* quant, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const TensorSpec spec = spec_of(*owner, desc);
        *out = make_handle<mp_tensor>(
            std::make_shared<Tensor>(owner, *spec.stream, form_of(spec.dtype, quant), spec.shape));
    });
}

mp_status mp_tensor_get_quant_desc(const mp_tensor* tensor, mp_quant_desc* desc) {
    return boundary([&] { write_struct(desc, desc_of(scales_of(tensor).form), "desc"); });
}

mp_status mp_tensor_get_scales(const mp_tensor* tensor, mp_tensor** out) {
    return boundary([&] {
        output(out);
        *out = make_handle<mp_tensor>(scales_of(tensor).scale_inv);
    });
}

mp_status mp_tensor_get_quantized_amax(const mp_tensor* tensor, mp_tensor** out) {
    return boundary([&] {
        output(out);
        *out = make_handle<mp_tensor>(scales_of(tensor).amax);
    });
}

mp_status mp_tensor_quantize(const mp_tensor* source, mp_queue* queue, mp_tensor* destination,
                             mp_tensor* transposed, mp_quant_stats* stats) {
    return boundary([&] {
        const Tensor& from = *object_of(source, "source");
        Tensor& to = *object_of(destination, "destination");
        Tensor* turned =
            transposed == nullptr ? nullptr : object_of(transposed, "transposed").get();
        Stream& stream = stream_of(queue, to);
        if (stats == nullptr) {
            quant::quantize_tensor(stream, from, to, turned);
            return;
        }
        (void)size_of_struct(stats, "stats");
        const Buffer counters(stream.shared_device(), sizeof(QuantStats));
        check(stream.device().zero(stream.queue(), counters.data(), sizeof(QuantStats)));
        quant::quantize_tensor(stream, from, to, turned, {nullptr, 0, counters.as<QuantStats>()});
        QuantStats counted;
        stream.copy(&counted, counters.data(), sizeof(counted), CopyKind::device_to_host);
        stream.sync();
        write_struct(stats, public_stats(counted), "stats");
    });
}

mp_status mp_tensor_dequantize(const mp_tensor* source, mp_queue* queue, mp_tensor* destination) {
    return boundary([&] {
        const Tensor& from = *object_of(source, "source");
        Tensor& to = *object_of(destination, "destination");
        to.touch();
        quant::dequantize_tensor(stream_of(queue, to), from, to);
    });
}
