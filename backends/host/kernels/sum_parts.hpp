// SPDX-License-Identifier: Apache-2.0
// sum_parts of one chunk: a stack of tiles instead of a stack of values. The types are chosen once a tile.
#pragma once

#include "host/kernels/dequantize.hpp"
#include "host/kernels/jobs.hpp"
#include "host/kernels/memory.hpp"
#include "numerics/part_sum.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Elements that are summed together: a stack of them is some 12 KiB.
inline constexpr int kSumTile = kTile / 2;
inline constexpr int kWideSumTile = kTile / 4;

// n <= kTile elements of a part as fp32.
MP_ISA_INLINE void widen_part(const SumPartsDesc& op, const SumPart& part, int64_t start, int n,
                              float* values) {
    widen_tile(part.dtype, element_address(part.codes, part.dtype, start), values, n);
    if (part.scale_inv == nullptr) {
        return;
    }
    const int64_t width = op.grid.block_columns;
    const int64_t into = width == 0 ? 0 : start % width;
    const auto blocks = static_cast<int>(width == 0 ? 1 : (into + n + width - 1) / width);
    float scales[kTile];
    load_scales(op.grid.dtype, part.scale_inv, width == 0 ? 0 : start / width, blocks, scales);
    multiply_tile(values, values, n, scales, width, into);
}

template <class Wide> MP_ISA_INLINE void add_tile(Wide* sum, const Wide* value, int n) {
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        sum[i] = sum[i] + value[i];
    }
}

// sum = sum + part, where that needs no tile between.
template <DType kDType>
MP_ISA_INLINE void add_elements(const SumPart& part, int64_t start, int n, float* sum) {
    using Memory = typename InMemory<kDType>::type;
    const Memory* from = static_cast<const Memory*>(element_address(part.codes, part.dtype, start));
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        sum[i] = sum[i] + numerics::Codec<kDType>::load(from[i]);
    }
}

MP_ISA_FUNCTION inline void add_part(const SumPartsDesc& op, const SumPart& part, int64_t start,
                                     int n, float* sum) {
    if (part.dtype == DType::fp32) {
        return add_elements<DType::fp32>(part, start, n, sum);
    }
    if (part.dtype == DType::bf16) {
        return add_elements<DType::bf16>(part, start, n, sum);
    }
    alignas(64) float value[kTile];
    widen_part(op, part, start, n, value);
    add_tile(sum, value, n);
}

MP_ISA_FUNCTION inline void store_sum(const SumPartsDesc& op, float* values, int64_t start, int n) {
    unify_nan(values, n);
    const DType to = op.destination.dtype;
    narrow_tile<numerics::Narrowing::nearest>(
        to, values, element_address(op.destination.data, to, start), n, nullptr);
}

// Doubles whose rounding is the only one.
MP_ISA_FUNCTION inline void store_wide_sum(const SumPartsDesc& op, const double* values,
                                           int64_t start, int n) {
    alignas(64) float once[kTile];
    if (op.destination.dtype == DType::fp32) {
        for (int i = 0; i < n; ++i) {
            once[i] = static_cast<float>(values[i]);
        }
    } else {
        for (int i = 0; i < n; ++i) {
            once[i] = numerics::to_float_odd(values[i]);
        }
    }
    store_sum(op, once, start, n);
}

// Whether all parts are of the type and added from left to right to fp32, as gradients are that ranks lend.
MP_ISA_INLINE bool is_plain_sum(const SumPartsDesc& op, DType dtype) {
    bool is = op.mode == SumMode::fp32 && op.part_count > 1 && op.destination.dtype == DType::fp32;
    for (int32_t p = 0; p < op.part_count && is; ++p) {
        const SumPart& part = op.host_parts[p];
        is = part.dtype == dtype && part.scale_inv == nullptr && part.merges == (p == 0 ? 0 : 1);
    }
    return is;
}

// The first two parts without a tile between.
template <DType kDType>
MP_ISA_INLINE void add_first(const SumPartsDesc& op, int64_t start, int n, FloatInMemory* sum) {
    using Memory = typename InMemory<kDType>::type;
    const Memory* a =
        static_cast<const Memory*>(element_address(op.host_parts[0].codes, kDType, start));
    const Memory* b =
        static_cast<const Memory*>(element_address(op.host_parts[1].codes, kDType, start));
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        sum[i] = numerics::Codec<kDType>::load(a[i]) + numerics::Codec<kDType>::load(b[i]);
    }
}

template <DType kDType>
MP_ISA_FUNCTION void sum_plain(const SumPartsDesc& op, int64_t start, int64_t end, bool stream) {
    alignas(64) float tile[kTile];
    for (; start < end; start += kTile) {
        const int n = min_int(end - start, kTile);
        void* const destination = element_address(op.destination.data, DType::fp32, start);
        add_first<kDType>(op, start, n, tile);
        for (int32_t p = 2; p < op.part_count; ++p) {
            add_elements<kDType>(op.host_parts[p], start, n, tile);
        }
        unify_nan(tile, n);
        copy_or_stream(destination, tile, n * dtype_size(DType::fp32), stream);
    }
}

MP_ISA_FUNCTION inline void sum_tile(const SumPartsDesc& op, int64_t start, int n, bool stream) {
    alignas(64) float stack[numerics::kSumDepth][kSumTile];
    int depth = 0;
    for (int32_t p = 0; p < op.part_count; ++p) {
        const SumPart& part = op.host_parts[p];
        int32_t merges = part.merges;
        if (merges > 0) {
            add_part(op, part, start, n, stack[depth - 1]);
            --merges;
        } else {
            widen_part(op, part, start, n, stack[depth++]);
        }
        for (; merges > 0; --merges) {
            --depth;
            add_tile(stack[depth - 1], stack[depth], n);
        }
    }
    const DType to = op.destination.dtype;
    void* destination = element_address(op.destination.data, to, start);
    if (to == DType::fp32 && may_stream(stream, destination, n * dtype_size(to))) {
        unify_nan(stack[0], n);
        stream_lines(destination, stack[0], n * dtype_size(to));
    } else {
        store_sum(op, stack[0], start, n);
    }
}

MP_ISA_FUNCTION inline void sum_tile_wide(const SumPartsDesc& op, int64_t start, int n) {
    alignas(64) double stack[numerics::kSumDepth][kWideSumTile];
    int depth = 0;
    for (int32_t p = 0; p < op.part_count; ++p) {
        alignas(64) float value[kTile];
        widen_part(op, op.host_parts[p], start, n, value);
        double* top = stack[depth++];
        for (int i = 0; i < n; ++i) {
            top[i] = static_cast<double>(value[i]);
        }
        for (int32_t merge = 0; merge < op.host_parts[p].merges; ++merge) {
            --depth;
            add_tile(stack[depth - 1], stack[depth], n);
        }
    }
    store_wide_sum(op, stack[0], start, n);
}

// The unit of each element of a tile.
MP_ISA_INLINE int64_t block_of_element(const SumPartsDesc& op, int64_t i) {
    constexpr int64_t kBlock = numerics::kExactBlock;
    return (op.first_element + i) / kBlock - op.first_element / kBlock;
}

// n elements of one block.
MP_ISA_FUNCTION inline void sum_fixed_block(const SumPartsDesc& op, int64_t start, int n) {
    const numerics::FixedPoint fixed =
        numerics::fixed_point(op.block_amax[block_of_element(op, start)], op.fixed_bits);
    uint64_t sum[numerics::kExactBlock] = {};
    bool is_nan[numerics::kExactBlock] = {};
    for (int32_t p = 0; p < op.part_count; ++p) {
        const SumPart& part = op.host_parts[p];
        int64_t units[numerics::kExactBlock];
        if (part.dtype == DType::int64) {
            __builtin_memcpy(units, element_address(part.codes, part.dtype, start),
                             static_cast<std::size_t>(n) * sizeof(units[0]));
        } else {
            alignas(64) float value[kTile];
            widen_part(op, part, start, n, value);
            for (int i = 0; i < n; ++i) {
                units[i] = numerics::to_fixed(fixed, value[i]);
            }
        }
        for (int i = 0; i < n; ++i) {
            is_nan[i] = is_nan[i] || units[i] == numerics::kUnitsNan;
            sum[i] += static_cast<uint64_t>(units[i]);
        }
    }
    double wide[numerics::kExactBlock];
    int64_t result[numerics::kExactBlock];
    for (int i = 0; i < n; ++i) {
        const bool bad = is_nan[i] || !fixed.is_finite;
        result[i] = bad ? numerics::kUnitsNan : static_cast<int64_t>(sum[i]);
        wide[i] = bad ? static_cast<double>(numerics::float_from_bits(numerics::kFloatQuietNan))
                      : numerics::from_units(result[i], fixed.unit);
    }
    if (op.destination.dtype == DType::int64) {
        __builtin_memcpy(element_address(op.destination.data, DType::int64, start), result,
                         static_cast<std::size_t>(n) * sizeof(result[0]));
    } else {
        store_wide_sum(op, wide, start, n);
    }
}

MP_ISA_FUNCTION inline void largest_of_block(const SumPartsDesc& op, int64_t start, int n) {
    uint32_t largest = 0;
    for (int32_t p = 0; p < op.part_count; ++p) {
        alignas(64) float value[kTile];
        widen_part(op, op.host_parts[p], start, n, value);
        unify_nan(value, n);
        for (int i = 0; i < n; ++i) {
            const uint32_t magnitude = numerics::bits_from_float(value[i]) & 0x7fffffffU;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    op.block_amax[block_of_element(op, start)] = largest;
}

inline void sum_chunk_by_tiles(const SumPartsJob& job) {
    const SumPartsDesc& op = *job.op;
    const bool has_blocks = op.mode == SumMode::fixed || op.mode == SumMode::largest;
    const int64_t most = has_blocks                 ? numerics::kExactBlock
                         : op.mode == SumMode::fp64 ? kWideSumTile
                                                    : kSumTile;
    const int64_t end = job.start + job.count;
    for (int64_t start = job.start; start < end;) {
        const int64_t into = has_blocks ? (op.first_element + start) % most : 0;
        const int n = min_int(end - start, most - into);
        switch (op.mode) {
        case SumMode::fp32:
            sum_tile(op, start, n, job.stream);
            break;
        case SumMode::fp64:
            sum_tile_wide(op, start, n);
            break;
        case SumMode::fixed:
            sum_fixed_block(op, start, n);
            break;
        case SumMode::largest:
            largest_of_block(op, start, n);
            break;
        }
        start += n;
    }
}

inline void sum_parts_chunk(const SumPartsJob& job) {
    const int64_t end = job.start + job.count;
    if (is_plain_sum(*job.op, DType::fp32)) {
        sum_plain<DType::fp32>(*job.op, job.start, end, job.stream);
    } else if (is_plain_sum(*job.op, DType::bf16)) {
        sum_plain<DType::bf16>(*job.op, job.start, end, job.stream);
    } else {
        sum_chunk_by_tiles(job);
    }
    if (job.stream) {
        finish_stream();
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
