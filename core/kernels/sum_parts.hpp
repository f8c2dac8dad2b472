// SPDX-License-Identifier: Apache-2.0
// sum_parts as Kokkos kernels: from left to right, by merges, in fixed point. Every element's order of additions is
// written in the parts, so nothing depends on how the elements are cut.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"
#include "numerics/part_sum.hpp"
#include "numerics/quantize.hpp"

namespace mp::kernels {

// The values of a part's elements.
template <class Elements>
KOKKOS_FORCEINLINE_FUNCTION void for_each_value(const SumPartsDesc& op, const SumPart& part,
                                                const Elements& elements) {
    const int64_t width = op.grid.block_columns;
    visit_array(part.dtype, part.codes, op.count, [&](const auto& array) MP_INLINED {
        if (part.scale_inv == nullptr) {
            elements([&](int64_t i) MP_INLINED { return array(i); });
            return;
        }
        visit_dtype(op.grid.dtype, [&](auto type) MP_INLINED {
            if constexpr (type.value == DType::fp32 || type.value == DType::e8m0) {
                using Scale = numerics::Codec<type.value>;
                const auto* scales = static_cast<const typename Scale::storage*>(part.scale_inv);
                elements([&](int64_t i) MP_INLINED {
                    return array(i) * Scale::load(scales[width == 0 ? 0 : i / width]);
                });
            }
        });
    });
}

// The parts as a launch takes them along. Kokkos gives what is larger to the device by memory that the next launch waits for.
struct LaunchedSum {
    explicit LaunchedSum(const SumPartsDesc& desc) : op(desc) {
        static_assert(sizeof(LaunchedSum) <= 400);
        for (int32_t p = 0; desc.parts == nullptr && p < desc.part_count; ++p) {
            few[p] = desc.host_parts[p];
        }
    }
    [[nodiscard]] KOKKOS_FORCEINLINE_FUNCTION const SumPart& part(int32_t p) const {
        return op.parts != nullptr ? op.parts[p] : few[p];
    }

    SumPartsDesc op;
    SumPart few[kPartsOfLaunch];
};

// What the sums have in common: kEach elements of a thread.
template <int kEach> struct PartValues {
    using Elements = Tile<kEach>;
    LaunchedSum sum;

    KOKKOS_INLINE_FUNCTION void load(const SumPart& part, const Elements& tile,
                                     float (&x)[kEach]) const {
        for_each_value(sum.op, part, [&](const auto& value) MP_INLINED {
            tile.for_each([&](int j, int64_t i) MP_INLINED { x[j] = value(i); });
        });
    }
    KOKKOS_INLINE_FUNCTION void store(const Elements& tile, const double (&sums)[kEach]) const {
        const bool is_fp32 = sum.op.destination.dtype == DType::fp32;
        store_tile<kEach>(
            sum.op.destination, tile, [&](const auto& array, int j, int64_t i) MP_INLINED {
                const float once =
                    is_fp32 ? static_cast<float>(sums[j]) : numerics::to_float_odd(sums[j]);
                array.store(i, numerics::is_nan(once)
                                   ? numerics::float_from_bits(numerics::kFloatQuietNan)
                                   : once);
            });
    }
};

// From left to right.
template <class Wide> struct SumInOrder {
    static constexpr int kEach = kEachOfRange;
    PartValues<kEach> values;

    KOKKOS_INLINE_FUNCTION void tile(const RangeTile& tile) const {
        Wide sums[kEach] = {};
        for (int32_t p = 0; p < values.sum.op.part_count; ++p) {
            float x[kEach] = {};
            values.load(values.sum.part(p), tile, x);
            for (int j = 0; j < kEach; ++j) {
                const auto more = static_cast<Wide>(x[j]);
                sums[j] = p == 0 ? more : sums[j] + more;
            }
        }
        double wide[kEach];
        for (int j = 0; j < kEach; ++j) {
            wide[j] = static_cast<double>(sums[j]);
        }
        values.store(tile, wide);
    }
};

// In the order that the merges say.
template <class Wide> struct SumByMerges {
    PartValues<1> values;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        const SumPartsDesc& op = values.sum.op;
        const Tile<1> tile{i, 1, op.count};
        Wide stack[numerics::kSumDepth];
        int32_t depth = 0;
        for (int32_t p = 0; p < op.part_count; ++p) {
            const SumPart part = values.sum.part(p);
            float x[1] = {};
            values.load(part, tile, x);
            stack[depth++] = static_cast<Wide>(x[0]);
            for (int32_t merge = 0; merge < part.merges; ++merge) {
                --depth;
                stack[depth - 1] = stack[depth - 1] + stack[depth];
            }
        }
        values.store(tile, {static_cast<double>(stack[0])});
    }
};

// In fixed point, which has no order.
struct SumFixed {
    static constexpr int kEach = kEachOfRange;
    PartValues<kEach> values;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION numerics::FixedPoint fixed_of(int64_t i) const {
        constexpr int64_t kBlock = numerics::kExactBlock;
        const SumPartsDesc& op = values.sum.op;
        const int64_t block = (op.first_element + i) / kBlock - op.first_element / kBlock;
        return numerics::fixed_point(op.block_amax[block], op.fixed_bits);
    }

    KOKKOS_INLINE_FUNCTION void tile(const RangeTile& tile) const {
        const SumPartsDesc& op = values.sum.op;
        numerics::FixedPoint fixed[kEach];
        uint64_t units[kEach] = {};
        bool is_nan[kEach] = {};
        tile.for_each([&](int j, int64_t i) MP_INLINED {
            fixed[j] = fixed_of(i);
            is_nan[j] = !fixed[j].is_finite;
        });
        const auto add = [&](int j, int64_t more) MP_INLINED {
            is_nan[j] = is_nan[j] || more == numerics::kUnitsNan;
            units[j] += static_cast<uint64_t>(more);
        };
        for (int32_t p = 0; p < op.part_count; ++p) {
            const SumPart part = values.sum.part(p);
            if (part.dtype == DType::int64) {
                const auto* whole = static_cast<const int64_t*>(part.codes);
                tile.for_each([&](int j, int64_t i) MP_INLINED { add(j, whole[i]); });
                continue;
            }
            float x[kEach] = {};
            values.load(part, tile, x);
            tile.for_each([&](int j, int64_t /*i*/)
                              MP_INLINED { add(j, numerics::to_fixed(fixed[j], x[j])); });
        }
        if (op.destination.dtype == DType::int64) {
            auto* whole = static_cast<int64_t*>(op.destination.data);
            tile.for_each([&](int j, int64_t i) MP_INLINED {
                whole[i] = is_nan[j] ? numerics::kUnitsNan : static_cast<int64_t>(units[j]);
            });
            return;
        }
        double sums[kEach];
        for (int j = 0; j < kEach; ++j) {
            sums[j] = is_nan[j]
                          ? static_cast<double>(numerics::float_from_bits(numerics::kFloatQuietNan))
                          : numerics::from_units(static_cast<int64_t>(units[j]), fixed[j].unit);
        }
        values.store(tile, sums);
    }
};

// One thread a block.
struct LargestOfParts {
    LaunchedSum sum;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t block) const {
        constexpr int64_t kBlock = numerics::kExactBlock;
        const SumPartsDesc& op = sum.op;
        const int64_t begin = block * kBlock - op.first_element % kBlock;
        const int64_t end = begin + kBlock < op.count ? begin + kBlock : op.count;
        uint32_t largest = 0;
        for (int32_t p = 0; p < op.part_count; ++p) {
            for_each_value(op, sum.part(p), [&](const auto& value) MP_INLINED {
                for (int64_t i = begin < 0 ? 0 : begin; i < end; ++i) {
                    const float x = value(i);
                    const uint32_t magnitude =
                        (numerics::is_nan(x) ? numerics::kFloatQuietNan
                                             : numerics::bits_from_float(x)) &
                        numerics::kFloatMagnitudeMask;
                    largest = magnitude > largest ? magnitude : largest;
                }
            });
        }
        op.block_amax[block] = largest;
    }
};

inline bool is_in_order(const SumPartsDesc& op) {
    for (int32_t p = 0; p < op.part_count; ++p) {
        if (op.host_parts[p].merges != (p == 0 ? 0 : 1)) {
            return false;
        }
    }
    return true;
}

template <class Wide, class Exec> void sum_wide(const Exec& exec, const SumPartsDesc& op) {
    if (is_in_order(op)) {
        for_each_tile(exec, "mp::sum_parts", op.count, SumInOrder<Wide>{{LaunchedSum(op)}});
    } else {
        for_each(exec, "mp::sum_tree", op.count, SumByMerges<Wide>{{LaunchedSum(op)}});
    }
}

template <class Exec> void sum_parts(const Exec& exec, const SumPartsDesc& op) {
    if (op.count == 0) {
        return;
    }
    switch (op.mode) {
    case SumMode::largest: {
        const int64_t into = op.first_element % numerics::kExactBlock;
        for_each(exec, "mp::largest_of_parts", divide_up(into + op.count, numerics::kExactBlock),
                 LargestOfParts{LaunchedSum(op)});
        break;
    }
    case SumMode::fixed:
        for_each_tile(exec, "mp::sum_fixed", op.count, SumFixed{{LaunchedSum(op)}});
        break;
    case SumMode::fp64:
        sum_wide<double>(exec, op);
        break;
    case SumMode::fp32:
        sum_wide<float>(exec, op);
        break;
    }
}

} // namespace mp::kernels
