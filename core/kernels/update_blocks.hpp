// SPDX-License-Identifier: Apache-2.0
// The arrays of an optimizer step that are kept in blocks: their new values wait in the team's memory until the scale of
// their block is known.
#pragma once

#include "kernels/update_arrays.hpp"

namespace mp::kernels {

// Elements that a team steps at once. A whole number of blocks of every kind: their scales are known when all of them are.
inline constexpr int kUpdateTile = static_cast<int>(kLargestBlock);

// A tile's new values of the arrays that are kept in blocks, and the largest magnitude of each block.
struct BlockValues {
    static constexpr int kCompensation = numerics::kMaxStates; // behind the states
    static constexpr int kArrays = kCompensation + 1;
    static constexpr int kMost = kUpdateTile / 32; // blocks in a tile

    float values[kArrays][kUpdateTile];
    uint32_t largest[kArrays][kMost];

    // Element j of the tile.
    KOKKOS_INLINE_FUNCTION void put(int array, Coding coding, int j, float x) {
        values[array][j] = x;
        Kokkos::atomic_max(&largest[array][j / static_cast<int>(block_size(coding))],
                           numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask);
    }
};

KOKKOS_INLINE_FUNCTION bool has_block_arrays(const UpdateSegment& s) {
    return has_blocks(s.compensation.coding) ||
           numerics::any_state([&](int k) MP_INLINED { return has_blocks(s.states[k].coding); });
}

// One array kept in blocks: its parts, and the elements of a tile of n, from element i on.
struct BlockStore {
    FormatId format;
    void* codes;
    void* scales;
    bool is_signed, stochastic;
    numerics::Purpose purpose;
    int64_t i, element;
    int n;
};
template <Coding kCoding>
KOKKOS_FORCEINLINE_FUNCTION int32_t block_code(const BlockStore& to, float x, float divisor,
                                               const numerics::SrKey& key, int j) {
    if constexpr (!is_map(format_id(block_layout(kCoding).codes, kCoding))) {
        if (to.stochastic) {
            const float quotient = numerics::e4m3_quotient(to.is_signed, x, divisor);
            return numerics::Codec<DType::fp8_e4m3>::store_sr(
                code_value(DType::fp8_e4m3, quotient, 1.0F),
                numerics::sr_bits32_at(key, to.purpose, static_cast<uint64_t>(to.element + j)));
        }
    }
    return numerics::BlockCodec<kCoding>::code(to.is_signed, x, divisor);
}
template <Coding kCoding, class Team>
KOKKOS_FORCEINLINE_FUNCTION void store_blocks(const Team& team, const BlockStore& to,
                                              const float* values, const uint32_t* largest,
                                              const numerics::SrKey& key) {
    constexpr int kSize = static_cast<int>(block_size(kCoding));
    // Two codes of a byte are stored by one thread.
    constexpr int kEach = block_layout(kCoding).bits == 4 ? 2 : 1;
    for_each_in_team(team, (to.n + kEach - 1) / kEach, [&](int pair) {
        const int j = pair * kEach;
        const numerics::MomentScale scale = numerics::BlockCodec<kCoding>::scales(
            to.is_signed, numerics::float_from_bits(largest[j / kSize]));
        if (j % kSize == 0) {
            numerics::store_block_scale(kCoding, to.scales, (to.i + j) / kSize, scale.stored);
        }
        for (int one = j; one < j + kEach && one < to.n; ++one) {
            numerics::store_block_code(
                kCoding, to.codes, to.i + one,
                block_code<kCoding>(to, values[one], scale.divisor, key, one));
        }
    });
}
template <class Team>
KOKKOS_FORCEINLINE_FUNCTION void store_later(const Team& team, const BlockStore& to,
                                             const float* values, const uint32_t* largest,
                                             const numerics::SrKey& key) {
    visit_blocks(to.format, [&](auto of) MP_INLINED {
        store_blocks<decltype(of)::kCoding>(team, to, values, largest, key);
    });
}

} // namespace mp::kernels
