// SPDX-License-Identifier: Apache-2.0
#include "frozen_weight.hpp"

#include "program.hpp"

namespace command {
namespace {

constexpr int32_t kCodes[] = {MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2, MP_DTYPE_FP4_E2M1,
                              MP_DTYPE_FP16};

// The type and shape of its scales; null: it has none.
const Json* scales_of(const Manifest& manifest, const std::string& name) {
    for (const Json& tensor : manifest.json.at("tensors")) {
        if (tensor.at("state") == "param_scale_inv" && tensor.at("name") == name) {
            return &tensor;
        }
    }
    return nullptr;
}

// Two scalings that give scales of one type and shape mean the same by them, so the first that does will do.
int32_t scaling_of(const Json& scales, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) {
        count *= extent;
    }
    const int64_t columns = shape.empty() ? 1 : shape.back();
    const int64_t rows = columns == 0 ? 0 : count / columns;
    const auto wanted = scales.at("shape").get<std::vector<int64_t>>();
    for (int32_t scaling = MP_SCALING_ROW; scaling <= MP_SCALING_NVFP4; ++scaling) {
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = scaling;
        int64_t across = 0, down = 0;
        int32_t dtype = MP_DTYPE_NONE;
        train::check(mp_tensor_get_scale_grid(&quant, rows, columns, &down, &across, &dtype),
                     "mp_tensor_get_scale_grid");
        if (scales.at("format") == mp_dtype_name(dtype) &&
            wanted == std::vector<int64_t>{down, across}) {
            return scaling;
        }
    }
    return 0;
}

} // namespace

mixedprec::Tensor frozen_weight(const mixedprec::Context& context, const Manifest& manifest,
                                const std::string& name, const std::string& type,
                                const std::vector<int64_t>& shape) {
    const Json* const scales = scales_of(manifest, name);
    mixedprec::QuantOptions quant;
    for (const int32_t dtype : kCodes) {
        const bool is_one = type == std::string(mp_dtype_name(dtype)) + "_scaled";
        if (scales == nullptr || (!is_one && type != mp_dtype_name(dtype))) {
            continue;
        }
        quant.scaling = is_one ? MP_SCALING_TENSOR : scaling_of(*scales, shape);
        quant.rule = dtype == MP_DTYPE_FP16 ? MP_SCALE_RULE_MSAMP : 0;
        must<Failure>(quant.scaling != 0, "the scales of '", name, "' lie as no scaling has them");
        return mixedprec::Tensor::create_quantized(context, dtype, shape, quant);
    }
    for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16}) {
        if (scales == nullptr && type == mp_dtype_name(dtype)) {
            return mixedprec::Tensor::create(context, dtype, shape);
        }
    }
    throw Failure(join("'", name, "' is frozen, in ", type,
                       ", which this command does not read; load it where it was made"));
}

} // namespace command
