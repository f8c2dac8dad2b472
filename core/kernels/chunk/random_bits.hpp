// SPDX-License-Identifier: Apache-2.0
// The random bits of stochastic rounding for a whole tile: Philox over several blocks at once, so
// that it vectorizes. Same bits as numerics::sr_bits16_at / sr_bits32_at.
#pragma once

#include "kernels/chunk/tile.hpp"
#include "numerics/philox.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// One Philox block serves 8 elements: word j holds elements 2j (low half) and 2j + 1 (high half),
// which on a little-endian machine is the order of the elements in memory.
inline constexpr int kBlocksAtOnce = 16;
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
static_assert(kTile % (8 * kBlocksAtOnce) == 0);

template <bool kLow>
MP_CHUNK_INLINE void fill_random(const numerics::SrKey& key, numerics::Purpose purpose,
                                 int64_t first_element, int n, uint16_t* pieces) {
    const auto first_block = static_cast<uint64_t>(first_element) >> 3;
    const int blocks = (n + 7) / 8;
    for (int done = 0; done < blocks; done += kBlocksAtOnce) {
        uint32_t words[4][kBlocksAtOnce];
        for (int b = 0; b < kBlocksAtOnce; ++b) {
            const uint64_t block = first_block + static_cast<uint64_t>(done + b);
            const numerics::Philox4x32 r = kLow ? numerics::sr_block_low(key, purpose, block)
                                                : numerics::sr_block(key, purpose, block);
            words[0][b] = r.v[0];
            words[1][b] = r.v[1];
            words[2][b] = r.v[2];
            words[3][b] = r.v[3];
        }
        for (int b = 0; b < kBlocksAtOnce; ++b) {
            const uint32_t block[4] = {words[0][b], words[1][b], words[2][b], words[3][b]};
            __builtin_memcpy(pieces + 8 * (done + b), block, sizeof(block));
        }
    }
}

// Bits of n <= kTile elements from first_element on, a multiple of 8. `bits` has room for whole
// tiles, so the last blocks may be computed in vain. Types other than bf16 take 32 bits an element.
MP_CHUNK_FUNCTION inline void random_tile(DType dtype, const numerics::SrKey& key,
                                          numerics::Purpose purpose, int64_t first_element, int n,
                                          TileBits& bits) {
    fill_random<false>(key, purpose, first_element, n, bits.high);
    if (dtype != DType::bf16) {
        fill_random<true>(key, purpose, first_element, n, bits.low);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
