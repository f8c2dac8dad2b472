// SPDX-License-Identifier: Apache-2.0
// sum_parts as a Kokkos kernel. Every element's order of additions is written in the parts, so nothing depends on how
// the elements are cut.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"
#include "numerics/part_sum.hpp"
#include "numerics/quantize.hpp"

namespace mp::kernels {

struct SumPartsElements {
    SumPartsDesc op;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION float value_of(const SumPart& part, int64_t i) const {
        const float code = load_element({const_cast<void*>(part.codes), op.count, part.dtype}, i);
        if (part.scale_inv == nullptr) {
            return code;
        }
        const int64_t width = op.grid.block_columns;
        return code *
               numerics::load_as_float(op.grid.dtype, part.scale_inv, width == 0 ? 0 : i / width);
    }

    template <class Wide> [[nodiscard]] KOKKOS_INLINE_FUNCTION double sum_of(int64_t i) const {
        Wide stack[numerics::kSumDepth];
        int32_t depth = 0;
        for (int32_t p = 0; p < op.part_count; ++p) {
            const SumPart part = op.parts[p];
            stack[depth++] = static_cast<Wide>(value_of(part, i));
            for (int32_t merge = 0; merge < part.merges; ++merge) {
                --depth;
                stack[depth - 1] = stack[depth - 1] + stack[depth];
            }
        }
        return static_cast<double>(stack[0]);
    }

    KOKKOS_INLINE_FUNCTION void store(int64_t i, double sum) const {
        const DType to = op.destination.dtype;
        const float once =
            to == DType::fp32 ? static_cast<float>(sum) : numerics::to_float_odd(sum);
        store_element(op.destination, i,
                      numerics::is_nan(once) ? numerics::float_from_bits(numerics::kFloatQuietNan)
                                             : once);
    }

    KOKKOS_INLINE_FUNCTION void sum_fixed(int64_t i) const {
        constexpr int64_t kBlock = numerics::kExactBlock;
        const int64_t block = (op.first_element + i) / kBlock - op.first_element / kBlock;
        const numerics::FixedPoint fixed =
            numerics::fixed_point(op.block_amax[block], op.fixed_bits);
        uint64_t sum = 0;
        bool is_nan = !fixed.is_finite;
        for (int32_t p = 0; p < op.part_count; ++p) {
            const SumPart part = op.parts[p];
            const int64_t units = part.dtype == DType::int64
                                      ? static_cast<const int64_t*>(part.codes)[i]
                                      : numerics::to_fixed(fixed, value_of(part, i));
            is_nan = is_nan || units == numerics::kUnitsNan;
            sum += static_cast<uint64_t>(units);
        }
        const int64_t units = is_nan ? numerics::kUnitsNan : static_cast<int64_t>(sum);
        if (op.destination.dtype == DType::int64) {
            static_cast<int64_t*>(op.destination.data)[i] = units;
        } else if (is_nan) {
            store(i, static_cast<double>(numerics::float_from_bits(numerics::kFloatQuietNan)));
        } else {
            store(i, numerics::from_units(units, fixed.unit));
        }
    }

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        if (op.mode == SumMode::fixed) {
            sum_fixed(i);
        } else {
            store(i, op.mode == SumMode::fp64 ? sum_of<double>(i) : sum_of<float>(i));
        }
    }
};

// One thread a block.
struct LargestOfParts {
    SumPartsElements elements;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t block) const {
        const SumPartsDesc& op = elements.op;
        constexpr int64_t kBlock = numerics::kExactBlock;
        const int64_t begin = block * kBlock - op.first_element % kBlock;
        const int64_t end = begin + kBlock < op.count ? begin + kBlock : op.count;
        uint32_t largest = 0;
        for (int64_t i = begin < 0 ? 0 : begin; i < end; ++i) {
            for (int32_t p = 0; p < op.part_count; ++p) {
                const float x = elements.value_of(op.parts[p], i);
                const uint32_t magnitude = (numerics::is_nan(x) ? numerics::kFloatQuietNan
                                                                : numerics::bits_from_float(x)) &
                                           numerics::kFloatMagnitudeMask;
                largest = magnitude > largest ? magnitude : largest;
            }
        }
        op.block_amax[block] = largest;
    }
};

template <class Exec> void sum_parts(const Exec& exec, const SumPartsDesc& op) {
    if (op.count == 0) {
        return;
    }
    if (op.mode == SumMode::largest) {
        const int64_t into = op.first_element % numerics::kExactBlock;
        for_each(exec, "mp::largest_of_parts", divide_up(into + op.count, numerics::kExactBlock),
                 LargestOfParts{{op}});
    } else {
        for_each(exec, "mp::sum_parts", op.count, SumPartsElements{op});
    }
}

} // namespace mp::kernels
