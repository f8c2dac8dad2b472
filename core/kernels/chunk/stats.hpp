// SPDX-License-Identifier: Apache-2.0
// Sum of the squares of one chunk of gradients, in double, in the order of GradStatsDesc.
#pragma once

#include "interface/ops.hpp"
#include "kernels/chunk/memory.hpp"
#include "kernels/chunk/tile.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// Adds neighbours until one value is left.
template <int kLeaves> MP_CHUNK_INLINE double tree_sum(double* values) {
    for (int leaves = kLeaves; leaves > 1; leaves /= 2) {
        for (int i = 0; i < leaves / 2; ++i) {
            values[i] = values[2 * i] + values[2 * i + 1];
        }
    }
    return values[0];
}

// lanes[l] += squares of elements l, l + kStatsLanes, ... of n values; n is a multiple of the lanes
// except at the end of the gradient. The square of an fp32 number is exact in double.
MP_CHUNK_INLINE void add_squares(const float* values, int n, double* lanes) {
    constexpr int kLanes = static_cast<int>(kStatsLanes);
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        for (int l = 0; l < kLanes; ++l) {
            const auto g = static_cast<double>(values[i + l]);
            lanes[l] += g * g;
        }
    }
    for (int l = 0; i + l < n; ++l) {
        const auto g = static_cast<double>(values[i + l]);
        lanes[l] += g * g;
    }
}

template <DType kDType> MP_CHUNK_INLINE double stats_piece(const void* data, int64_t n) {
    double lanes[kStatsLanes] = {};
    float values[kTile];
    for (int64_t done = 0; done < n; done += kTile) {
        const int tile = min_int(n - done, kTile);
        const void* at = element_address(data, kDType, done);
        prefetch_ahead(at, tile * dtype_size(kDType));
        widen_tile_as<kDType>(at, values, tile);
        add_squares(values, tile, lanes);
    }
    return tree_sum<static_cast<int>(kStatsLanes)>(lanes);
}

template <DType kDType> MP_CHUNK_FUNCTION double stats_as(const void* data, int64_t count) {
    constexpr int kPieces = static_cast<int>(kChunkElements / kStatsPiece);
    double pieces[kPieces] = {};
    for (int64_t done = 0; done < count; done += kStatsPiece) {
        const int64_t left = count - done;
        pieces[done / kStatsPiece] = stats_piece<kDType>(element_address(data, kDType, done),
                                                         left < kStatsPiece ? left : kStatsPiece);
    }
    return tree_sum<kPieces>(pieces);
}

inline double stats_chunk(const void* grad, DType dtype, int64_t start, int64_t count) {
    const void* data = element_address(grad, dtype, start);
    switch (dtype) {
    case DType::fp32:
        return stats_as<DType::fp32>(data, count);
    case DType::fp16:
        return stats_as<DType::fp16>(data, count);
    case DType::bf16:
        return stats_as<DType::bf16>(data, count);
    default:
        return 0.0;
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
