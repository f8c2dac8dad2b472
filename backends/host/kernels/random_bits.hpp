// SPDX-License-Identifier: Apache-2.0
// The random bits of stochastic rounding for a whole tile: Philox (numerics/philox.hpp) on several
// blocks at once. Same bits as numerics::sr_bits16_at and sr_bits32_at.
//
// Each block has a 64-bit lane for each of its four words. The multiplication reads only the lower
// half of a lane and fills all of it with the product, so a round needs no shuffles: whatever is in
// an upper half is never looked at.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "host/kernels/tile.hpp"
#include "numerics/philox.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(__AVX512F__)
struct PhiloxLanes {
    using Type = __m512i;
    static constexpr int kBlocks = 8;
    static MP_ISA_INLINE Type all(uint64_t x) {
        return _mm512_set1_epi64(static_cast<long long>(x));
    }
    static MP_ISA_INLINE Type counting(uint64_t first) {
        return _mm512_add_epi64(all(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    }
    static MP_ISA_INLINE Type multiply(Type a, Type b) { return _mm512_mul_epu32(a, b); }
    static MP_ISA_INLINE Type upper(Type x) { return _mm512_srli_epi64(x, 32); }
    static MP_ISA_INLINE Type bits_32_to_55(Type x) {
        return _mm512_srli_epi64(_mm512_slli_epi64(x, 8), 40);
    }
    static MP_ISA_INLINE Type exclusive_or(Type a, Type b, Type c) {
        return _mm512_ternarylogic_epi64(a, b, c, 0x96);
    }
    // Words w0 ... w3 of block 0, then those of block 1, and so on.
    static MP_ISA_INLINE void store(Type w0, Type w1, Type w2, Type w3, uint16_t* to) {
        const Type low = _mm512_mask_blend_epi32(0xAAAA, w0, _mm512_slli_epi64(w1, 32));
        const Type high = _mm512_mask_blend_epi32(0xAAAA, w2, _mm512_slli_epi64(w3, 32));
        const Type first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        const Type second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
        _mm512_storeu_si512(to + 32, _mm512_permutex2var_epi64(low, second, high));
    }
};
#elif defined(__AVX2__)
struct PhiloxLanes {
    using Type = __m256i;
    static constexpr int kBlocks = 4;
    static MP_ISA_INLINE Type all(uint64_t x) {
        return _mm256_set1_epi64x(static_cast<long long>(x));
    }
    static MP_ISA_INLINE Type counting(uint64_t first) {
        return _mm256_add_epi64(all(first), _mm256_setr_epi64x(0, 1, 2, 3));
    }
    static MP_ISA_INLINE Type multiply(Type a, Type b) { return _mm256_mul_epu32(a, b); }
    static MP_ISA_INLINE Type upper(Type x) { return _mm256_srli_epi64(x, 32); }
    static MP_ISA_INLINE Type bits_32_to_55(Type x) {
        return _mm256_srli_epi64(_mm256_slli_epi64(x, 8), 40);
    }
    static MP_ISA_INLINE Type exclusive_or(Type a, Type b, Type c) {
        return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
    }
    static MP_ISA_INLINE void store(Type w0, Type w1, Type w2, Type w3, uint16_t* to) {
        const Type low = _mm256_blend_epi32(w0, _mm256_slli_epi64(w1, 32), 0xAA);
        const Type high = _mm256_blend_epi32(w2, _mm256_slli_epi64(w3, 32), 0xAA);
        const Type even = _mm256_unpacklo_epi64(low, high);
        const Type odd = _mm256_unpackhi_epi64(low, high);
        auto* at = reinterpret_cast<__m256i*>(to);
        _mm256_storeu_si256(at, _mm256_permute2x128_si256(even, odd, 0x20));
        _mm256_storeu_si256(at + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
};
#elif defined(__SSE2__)
struct PhiloxLanes {
    using Type = __m128i;
    static constexpr int kBlocks = 2;
    static MP_ISA_INLINE Type all(uint64_t x) { return _mm_set1_epi64x(static_cast<long long>(x)); }
    static MP_ISA_INLINE Type counting(uint64_t first) {
        return _mm_add_epi64(all(first), _mm_set_epi64x(1, 0));
    }
    static MP_ISA_INLINE Type multiply(Type a, Type b) { return _mm_mul_epu32(a, b); }
    static MP_ISA_INLINE Type upper(Type x) { return _mm_srli_epi64(x, 32); }
    static MP_ISA_INLINE Type bits_32_to_55(Type x) {
        return _mm_srli_epi64(_mm_slli_epi64(x, 8), 40);
    }
    static MP_ISA_INLINE Type exclusive_or(Type a, Type b, Type c) {
        return _mm_xor_si128(_mm_xor_si128(a, b), c);
    }
    static MP_ISA_INLINE void store(Type w0, Type w1, Type w2, Type w3, uint16_t* to) {
        const Type lower_half = all(0xffffffffU);
        const Type low = _mm_or_si128(_mm_and_si128(w0, lower_half), _mm_slli_epi64(w1, 32));
        const Type high = _mm_or_si128(_mm_and_si128(w2, lower_half), _mm_slli_epi64(w3, 32));
        auto* at = reinterpret_cast<__m128i*>(to);
        _mm_storeu_si128(at, _mm_unpacklo_epi64(low, high));
        _mm_storeu_si128(at + 1, _mm_unpackhi_epi64(low, high));
    }
};
#else
struct PhiloxLanes {
    using Type = uint64_t;
    static constexpr int kBlocks = 1;
    static MP_ISA_INLINE Type all(uint64_t x) { return x; }
    static MP_ISA_INLINE Type counting(uint64_t first) { return first; }
    static MP_ISA_INLINE Type multiply(Type a, Type b) {
        return (a & 0xffffffffU) * (b & 0xffffffffU);
    }
    static MP_ISA_INLINE Type upper(Type x) { return x >> 32; }
    static MP_ISA_INLINE Type bits_32_to_55(Type x) { return x << 8 >> 40; }
    static MP_ISA_INLINE Type exclusive_or(Type a, Type b, Type c) { return a ^ b ^ c; }
    static MP_ISA_INLINE void store(Type w0, Type w1, Type w2, Type w3, uint16_t* to) {
        const uint32_t words[4] = {static_cast<uint32_t>(w0), static_cast<uint32_t>(w1),
                                   static_cast<uint32_t>(w2), static_cast<uint32_t>(w3)};
        __builtin_memcpy(to, words, sizeof(words));
    }
};
#endif

// One Philox block serves 8 elements: word j holds elements 2j (low half) and 2j + 1 (high half),
// which on a little-endian machine is the order of the elements in memory.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
// Two vectors of blocks at a time: the rounds of one fill the latencies of the other.
inline constexpr int kBlocksAtOnce = 2 * PhiloxLanes::kBlocks;
static_assert(kTile % (8 * kBlocksAtOnce) == 0);

struct PhiloxState {
    PhiloxLanes::Type c0, c1, c2, c3;
};

// Blocks first, first + 1, ... of the stream `tag`, see numerics::detail::sr_block_tagged.
MP_ISA_INLINE PhiloxState philox_start(const numerics::SrKey& key, uint32_t tag, uint64_t first) {
    using L = PhiloxLanes;
    const L::Type block = L::counting(first);
    // Of each lane its own: the lower half may overflow between two of them.
    return {block,
            L::exclusive_or(L::bits_32_to_55(block), L::all(static_cast<uint64_t>(tag) << 24),
                            L::all(0)),
            L::all(key.step[0]), L::all(key.step[1])};
}

MP_ISA_INLINE void philox_round(PhiloxState& s, uint32_t k0, uint32_t k1) {
    using L = PhiloxLanes;
    const L::Type p0 = L::multiply(s.c0, L::all(0xD2511F53U));
    const L::Type p1 = L::multiply(s.c2, L::all(0xCD9E8D57U));
    s.c0 = L::exclusive_or(L::upper(p1), s.c1, L::all(k0));
    s.c1 = p1;
    s.c2 = L::exclusive_or(L::upper(p0), s.c3, L::all(k1));
    s.c3 = p0;
}

MP_ISA_INLINE void philox_blocks(const numerics::SrKey& key, uint32_t tag, uint64_t first,
                                 uint16_t* pieces) {
    using L = PhiloxLanes;
    PhiloxState a = philox_start(key, tag, first);
    PhiloxState b = philox_start(key, tag, first + L::kBlocks);
    uint32_t k0 = key.key[0];
    uint32_t k1 = key.key[1];
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        philox_round(a, k0, k1);
        philox_round(b, k0, k1);
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    L::store(a.c0, a.c1, a.c2, a.c3, pieces);
    L::store(b.c0, b.c1, b.c2, b.c3, pieces + 8 * L::kBlocks);
}

// Pieces for n elements from first_element on, a multiple of 8.
MP_ISA_INLINE void fill_random(const numerics::SrKey& key, uint32_t tag, int64_t first_element,
                               int n, uint16_t* pieces) {
    const auto first_block = static_cast<uint64_t>(first_element) >> 3;
    for (int done = 0; done < n; done += 8 * kBlocksAtOnce) {
        philox_blocks(key, tag, first_block + static_cast<uint64_t>(done / 8), pieces + done);
    }
}

// Bits of n <= kTile elements from first_element on, a multiple of 8. `bits` has room for whole tiles, so the last blocks may
// be computed in vain. Types other than bf16 take 32 bits an element.
MP_ISA_FUNCTION inline void random_tile(DType dtype, const numerics::SrKey& key,
                                        numerics::Purpose purpose, int64_t first_element, int n,
                                        TileBits& bits) {
    const auto tag = static_cast<uint32_t>(purpose);
    fill_random(key, tag, first_element, n, bits.high);
    if (dtype != DType::bf16) {
        fill_random(key, tag | numerics::detail::kSrLowHalf, first_element, n, bits.low);
    }
}

// The same from any element on.
MP_ISA_FUNCTION inline void random_span(DType dtype, const numerics::SrKey& key,
                                        numerics::Purpose purpose, int64_t first_element, int n,
                                        TileBits& bits) {
    const int64_t start = first_element / kTile * kTile;
    const int into = static_cast<int>(first_element - start);
    if (into == 0) {
        return random_tile(dtype, key, purpose, start, n, bits);
    }
    TileBits whole;
    random_tile(dtype, key, purpose, start, kTile, whole);
    const int here = min_int(n, kTile - into);
    const auto bytes = [](int count) { return static_cast<std::size_t>(count) * sizeof(uint16_t); };
    __builtin_memcpy(bits.high, whole.high + into, bytes(here));
    __builtin_memcpy(bits.low, whole.low + into, bytes(here));
    if (here < n) {
        random_tile(dtype, key, purpose, start + kTile, n - here, whole);
        __builtin_memcpy(bits.high + here, whole.high, bytes(n - here));
        __builtin_memcpy(bits.low + here, whole.low, bytes(n - here));
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
