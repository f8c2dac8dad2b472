// SPDX-License-Identifier: Apache-2.0
// dequantize and delayed_update as Kokkos kernels.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"
#include "numerics/block_types.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::kernels {

// What a code is multiplied by.
KOKKOS_INLINE_FUNCTION float dequantize_scale(const ArrayRef& from, int64_t row, int64_t column) {
    float scale = 1.0F;
    if (from.format.grid.exists()) {
        const int64_t index = from.format.grid.index(row, column, from.columns);
        scale = numerics::load_as_float(from.format.grid.dtype, from.scale_inv, index);
    }
    if (from.format.grid.dtype == DType::fp8_e4m3) {
        scale *= numerics::nvfp4_decode(*from.amax);
    }
    return scale;
}

// The whole source.
struct DequantizeElements {
    DequantizeDesc op;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION float scale_of(int64_t i) const {
        return dequantize_scale(op.source, i / op.source.columns, i % op.source.columns);
    }

    // Codes may be of any type, packed ones too.
    KOKKOS_INLINE_FUNCTION void load_codes(const RangeTile& tile, float (&x)[kEachOfRange]) const {
        const TensorRef codes = op.source.elements();
        if (is_floating(codes.dtype)) {
            load_tile(codes, tile, x);
        } else {
            tile.for_each([&](int j, int64_t i) {
                x[j] = numerics::load_as_float(codes.dtype, codes.data, i);
            });
        }
    }

    KOKKOS_INLINE_FUNCTION void tile(const RangeTile& tile) const {
        float x[kEachOfRange];
        load_codes(tile, x);
        tile.for_each(
            [&](int j, int64_t i) { x[j] = numerics::dequantize_element(x[j], scale_of(i)); });
        store_tile(op.destination, tile,
                   [&](const auto& to, int j, int64_t i) { to.store(i, x[j]); });
    }
};

// A part of it, or codes in blocks. i counts in the window.
struct DequantizeWindow {
    DequantizeDesc op;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION int64_t row_of(int64_t i) const {
        return op.window.first_row + i / op.window.columns;
    }
    [[nodiscard]] KOKKOS_INLINE_FUNCTION int64_t column_of(int64_t i) const {
        return op.window.first_column + i % op.window.columns;
    }
    [[nodiscard]] KOKKOS_INLINE_FUNCTION int64_t code_of(int64_t i) const {
        return row_of(i) * op.source.columns + column_of(i);
    }

    KOKKOS_INLINE_FUNCTION void load_codes(const RangeTile& tile, float (&x)[kEachOfRange]) const {
        tile.for_each([&](int j, int64_t i) {
            const float code =
                numerics::load_as_float(op.source.dtype(), op.source.data, code_of(i));
            const float scale = dequantize_scale(op.source, row_of(i), column_of(i));
            x[j] = numerics::dequantize_element(code, scale);
        });
    }
    template <DType kDType>
    KOKKOS_INLINE_FUNCTION void load_blocks(const RangeTile& tile, float (&x)[kEachOfRange]) const {
        constexpr TypeBlock kBlock = type_block(kDType);
        const auto* codes = static_cast<const uint8_t*>(op.source.data);
        tile.for_each([&](int j, int64_t i) {
            const int64_t code = code_of(i);
            const float value =
                numerics::load_of_block<kDType>(codes + code / kBlock.elements * kBlock.bytes,
                                                static_cast<int32_t>(code % kBlock.elements));
            x[j] = numerics::dequantize_element(value, 1.0F);
        });
    }

    KOKKOS_INLINE_FUNCTION void tile(const RangeTile& tile) const {
        float x[kEachOfRange];
        if (is_in_blocks(op.source.dtype())) {
            numerics::visit_block_type(
                op.source.dtype(), [&](auto type) MP_INLINED { load_blocks<type.value>(tile, x); });
        } else {
            load_codes(tile, x);
        }
        store_tile(op.destination, tile,
                   [&](const auto& to, int j, int64_t i) { to.store(i, x[j]); });
    }
};

template <class Exec> void dequantize(const Exec& exec, const DequantizeDesc& op) {
    const int64_t count = op.destination.count;
    if (op.window == whole_of(op.source) && !is_in_blocks(op.source.dtype())) {
        for_each_tile(exec, "mp::dequantize", count, DequantizeElements{op});
    } else {
        for_each_tile(exec, "mp::dequantize", count, DequantizeWindow{op});
    }
}

struct DelayedUpdates {
    DelayedUpdateDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        numerics::update_delayed(op.states[i], op.histories + i * op.rule.history_len, op.rule);
    }
};

template <class Exec> void delayed_update(const Exec& exec, const DelayedUpdateDesc& op) {
    for_each(exec, "mp::delayed_update", op.state_count, DelayedUpdates{op});
}

} // namespace mp::kernels
