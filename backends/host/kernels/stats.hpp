// SPDX-License-Identifier: Apache-2.0
// Sum of the squares of one chunk of gradients, in double, in the order of GradStatsDesc.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "device/ops.hpp"
#include "host/kernels/bf16_pair.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// As many lanes as a register has.
#if defined(__AVX512F__)
inline constexpr int kDoubles = 8;
#elif defined(__AVX2__)
inline constexpr int kDoubles = 4;
#else
inline constexpr int kDoubles = 2;
#endif
typedef double Doubles __attribute__((vector_size(8 * kDoubles)));
typedef float Floats __attribute__((vector_size(4 * kDoubles)));
typedef uint32_t FloatBits __attribute__((vector_size(4 * kDoubles)));
inline constexpr int kLaneVectors = static_cast<int>(kStatsLanes) / kDoubles;

// sum + g * g. The square of an fp32 number is exact in double, so fusing changes nothing.
MP_ISA_INLINE void add_square(Doubles& sum, Floats g) {
    const Doubles wide = __builtin_convertvector(g, Doubles);
#if defined(__AVX512F__)
    sum = _mm512_fmadd_pd(wide, wide, sum);
#elif defined(__FMA__)
    sum = _mm256_fmadd_pd(wide, wide, sum);
#else
    sum += wide * wide;
#endif
}

// Adds neighbours until one value is left.
template <int kLeaves> MP_ISA_INLINE double tree_sum(double* values) {
    for (int leaves = kLeaves; leaves > 1; leaves /= 2) {
        for (int i = 0; i < leaves / 2; ++i) {
            values[i] = values[2 * i] + values[2 * i + 1];
        }
    }
    return values[0];
}

// Sums of the lanes 0, 1, 2, ... of fp32 elements, or of the lanes 0, 2, 4, ... and 1, 3, 5, ... of
// bf16 pairs.
struct StatsLanes {
    Doubles sums[kLaneVectors];

    MP_ISA_INLINE void add_floats(const char* at) {
#pragma GCC unroll 16
        for (int v = 0; v < kLaneVectors; ++v) {
            Floats g;
            __builtin_memcpy(&g, at + v * static_cast<int>(sizeof(g)), sizeof(g));
            add_square(sums[v], g);
        }
    }

    MP_ISA_INLINE void add_bf16(const char* at) {
#pragma GCC unroll 8
        for (int v = 0; v < kLaneVectors / 2; ++v) {
            FloatBits pairs;
            __builtin_memcpy(&pairs, at + v * static_cast<int>(sizeof(pairs)), sizeof(pairs));
            add_square(sums[v], __builtin_bit_cast(Floats, pairs << 16));
            add_square(sums[kLaneVectors / 2 + v], __builtin_bit_cast(Floats, pairs & kUpperHalf));
        }
    }

    template <DType kDType> MP_ISA_INLINE void store(double* lanes) const {
        double values[kStatsLanes];
        __builtin_memcpy(values, sums, sizeof(values));
        constexpr int kHalf = static_cast<int>(kStatsLanes) / 2;
        for (int l = 0; l < static_cast<int>(kStatsLanes); ++l) {
            lanes[l] = values[kDType == DType::bf16 ? l % 2 * kHalf + l / 2 : l];
        }
    }
};

// Read where they lie: without a scale only.
template <DType kDType>
inline constexpr bool kStatsInPlace = kDType == DType::fp32 || kDType == DType::bf16;

// n elements in memory; other types, and scaled ones, come as a tile of fp32.
template <DType kDType>
MP_ISA_INLINE int64_t add_rows_of_lanes(StatsLanes& lanes, const void* data, int64_t n) {
    const char* from = static_cast<const char*>(data);
    int64_t i = 0;
    for (; i + kStatsLanes <= n; i += kStatsLanes) {
        if constexpr (kDType == DType::bf16) {
            lanes.add_bf16(from + 2 * i);
        } else {
            lanes.add_floats(from + 4 * i);
        }
    }
    return i;
}

template <DType kDType, bool kScaled>
MP_ISA_INLINE double stats_piece(const void* data, float scale_inv, int64_t n) {
    constexpr bool kInPlace = kStatsInPlace<kDType> && !kScaled;
    StatsLanes sums = {};
    int64_t done = 0;
    for (int64_t first = 0; first < n; first += kTile) {
        const int tile = min_int(n - first, kTile);
        const void* at = element_address(data, kDType, first);
        if constexpr (!kInPlace) {
            float values[kTile];
            widen_tile_as<kDType>(at, values, tile);
            for (int i = 0; kScaled && i < tile; ++i) {
                values[i] *= scale_inv;
            }
            done = first + add_rows_of_lanes<DType::fp32>(sums, values, tile);
        } else {
            done = first + add_rows_of_lanes<kDType>(sums, at, tile);
        }
    }
    double lanes[kStatsLanes];
    sums.store<(kInPlace ? kDType : DType::fp32)>(lanes);
    using Memory = typename InMemory<kDType>::type;
    const Memory* elements = static_cast<const Memory*>(data);
    for (int lane = 0; done < n; ++done, ++lane) {
        const float value = numerics::Codec<kDType>::load(elements[done]);
        const auto g = static_cast<double>(kScaled ? value * scale_inv : value);
        lanes[lane] += g * g;
    }
    return tree_sum<static_cast<int>(kStatsLanes)>(lanes);
}

template <DType kDType, bool kScaled>
MP_ISA_FUNCTION double stats_as(const void* data, float scale_inv, int64_t count) {
    constexpr int kBlocks = static_cast<int>(kChunkElements / kStatsBlock);
    double blocks[kBlocks] = {};
    for (int64_t done = 0; done < count; done += kStatsBlock) {
        const int64_t left = count - done;
        blocks[done / kStatsBlock] =
            stats_piece<kDType, kScaled>(element_address(data, kDType, done), scale_inv,
                                         left < kStatsBlock ? left : kStatsBlock);
    }
    return tree_sum<kBlocks>(blocks);
}

template <DType kDType>
MP_ISA_INLINE double stats_of(const void* data, const float* scale_inv, int64_t count) {
    return scale_inv != nullptr ? stats_as<kDType, true>(data, *scale_inv, count)
                                : stats_as<kDType, false>(data, 1.0F, count);
}

inline double stats_chunk(const void* grad, DType dtype, const float* scale_inv, int64_t start,
                          int64_t count) {
    const void* data = element_address(grad, dtype, start);
    double sum = 0.0;
    visit_floating(dtype, [&](auto type)
                              MP_INLINED { sum = stats_of<type.value>(data, scale_inv, count); });
    return sum;
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
