// SPDX-License-Identifier: Apache-2.0
// dequantize: code times scale, an element after another; or a block after another.
#include "device/supports.hpp"
#include "numerics/block_types.hpp"
#include "numerics/quantize.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

float value_at(const ArrayRef& from, int64_t row, int64_t column) {
    const int64_t i = row * from.columns + column;
    if (is_in_blocks(from.dtype())) {
        const TypeBlock block = type_block(from.dtype());
        const auto* bytes =
            static_cast<const uint8_t*>(from.data) + i / block.elements * block.bytes;
        float value = 0.0F;
        numerics::visit_block_type(from.dtype(), [&](auto type) {
            value = numerics::load_of_block<type.value>(bytes,
                                                        static_cast<int32_t>(i % block.elements));
        });
        return numerics::dequantize_element(value, 1.0F);
    }
    float scale = 1.0F;
    if (from.format.grid.exists()) {
        scale = numerics::load_as_float(from.format.grid.dtype, from.scale_inv,
                                        from.format.grid.index(row, column, from.columns));
    }
    if (from.format.grid.dtype == DType::fp8_e4m3) { // NVFP4
        scale *= numerics::nvfp4_decode(*from.amax);
    }
    return numerics::dequantize_element(numerics::load_as_float(from.dtype(), from.data, i), scale);
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const DequantizeDesc&>(desc);
    const Window& part = op.window;
    for (int64_t row = 0; row < part.rows; ++row) {
        for (int64_t column = 0; column < part.columns; ++column) {
            const float value =
                value_at(op.source, part.first_row + row, part.first_column + column);
            numerics::store_from_float(op.destination.dtype, op.destination.data,
                                       row * part.columns + column, value, false);
        }
    }
    return {};
}

} // namespace

const Candidate kDequantize = {kName, takes_all<DequantizeDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
