// SPDX-License-Identifier: Apache-2.0
// scale_columns: one element after another, as ScaleColumnsDesc says.
#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "numerics/magnitude.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

float load(const TensorRef& array, int64_t i) {
    return numerics::load_as_float(array.dtype, array.data, i);
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const ScaleColumnsDesc&>(desc);
    for (int64_t i = 0; i < op.rows * op.columns; ++i) {
        const int64_t column = i % op.columns;
        const float norm = numerics::load_as_float(DType::fp32, op.norm, column);
        float value =
            load(op.source, i) * numerics::quotient_or_zero(load(op.magnitude, column), norm);
        if (op.bias.dtype != DType::none) {
            value += load(op.bias, column);
        }
        numerics::store_from_float(op.destination.dtype, op.destination.data, i, value, false);
    }
    return {};
}

} // namespace

const Candidate kScaleColumns = {kName, takes_all<ScaleColumnsDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
