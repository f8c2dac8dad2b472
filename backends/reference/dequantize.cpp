// SPDX-License-Identifier: Apache-2.0
// dequantize: code times scale, an element after another.
#include "device/supports.hpp"
#include "numerics/quantize.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const DequantizeDesc&>(desc);
    const ArrayRef& from = op.source;
    const bool is_nvfp4 = from.format.grid.dtype == DType::fp8_e4m3;
    for (int64_t row = 0; row < from.rows; ++row) {
        for (int64_t column = 0; column < from.columns; ++column) {
            float scale = 1.0F;
            if (from.format.grid.exists()) {
                scale = numerics::load_as_float(from.format.grid.dtype, from.scale_inv,
                                                from.format.grid.index(row, column, from.columns));
            }
            if (is_nvfp4) {
                scale *= numerics::nvfp4_decode(*from.amax);
            }
            const int64_t i = row * from.columns + column;
            const float code = numerics::load_as_float(from.dtype(), from.data, i);
            numerics::store_from_float(op.destination.dtype, op.destination.data, i,
                                       numerics::dequantize_element(code, scale), false);
        }
    }
    return {};
}

} // namespace

const Candidate kDequantize = {kName, takes_all<DequantizeDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
