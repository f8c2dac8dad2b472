// SPDX-License-Identifier: Apache-2.0
// dequantize and delayed_update as Kokkos kernels.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::kernels {

struct DequantizeElements {
    DequantizeDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        const ScaledRef& from = op.source;
        float scale = 1.0F;
        if (from.grid.exists()) {
            const int64_t index = from.grid.index(i / from.columns, i % from.columns, from.columns);
            scale = numerics::load_as_float(from.grid.dtype, from.scale_inv, index);
        }
        if (from.grid.dtype == DType::fp8_e4m3) {
            scale *= numerics::nvfp4_decode(*from.tensor_amax);
        }
        const float code = numerics::load_as_float(from.codes.dtype, from.codes.data, i);
        store_element(op.destination.dtype, op.destination.data, i,
                      numerics::dequantize_element(code, scale));
    }
};

template <class Exec> void dequantize(const Exec& exec, const DequantizeDesc& op) {
    for_each(exec, "mp::dequantize", op.destination.count, DequantizeElements{op});
}

struct DelayedUpdates {
    DelayedUpdateDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        numerics::update_delayed(op.slots[i], op.histories + i * op.rule.history_len, op.rule);
    }
};

template <class Exec> void delayed_update(const Exec& exec, const DelayedUpdateDesc& op) {
    for_each(exec, "mp::delayed_update", op.slot_count, DelayedUpdates{op});
}

} // namespace mp::kernels
