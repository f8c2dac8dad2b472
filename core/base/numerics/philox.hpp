// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011) and the stream of random bits for stochastic rounding built on it. There is no state: the
// bits of an element are a function of (seed, parameter uid, step, micro-batch, purpose, logical element
// index), so the thread count, vector width, sharding and device cannot change them.
#pragma once

#include <cstdint>

#include "dtype/host_device.hpp"

namespace mp::numerics {

struct Philox4x32 {
    uint32_t v[4];
};

struct PhiloxKey {
    uint32_t v[2];
};

MP_HD_INLINE constexpr Philox4x32 philox4x32_10(Philox4x32 ctr, PhiloxKey key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * ctr.v[0];
        const uint64_t p1 = uint64_t{0xCD9E8D57u} * ctr.v[2];
        ctr = {{static_cast<uint32_t>(p1 >> 32) ^ ctr.v[1] ^ key.v[0], static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ ctr.v[3] ^ key.v[1], static_cast<uint32_t>(p0)}};
        key.v[0] += 0x9E3779B9u;
        key.v[1] += 0xBB67AE85u;
    }
    return ctr;
}

// Finalizer of Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014.
MP_HD_INLINE constexpr uint64_t splitmix64(uint64_t x) {
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

MP_HD_INLINE constexpr uint32_t hash32(uint64_t uid) {
    return static_cast<uint32_t>(splitmix64(uid) >> 32);
}

// What the bits are for: two roundings of one element in one step must not share them.
// The numbers are part of the stream and never change; new ones stay below 0x80.
enum class Purpose : uint32_t {
    param = 0,
    state0 = 1, // a rule's first state, and its second
    state1 = 2,
    compensation = 3,
    comm = 4,
    init = 5,
    cast = 6,
    state2 = 7,
    state3 = 8,
    dropout = 9,
};

// Of a rule's k-th state.
MP_HD_INLINE constexpr Purpose state_purpose(int k) {
    return static_cast<Purpose>(k < 2 ? k + static_cast<int>(Purpose::state0)
                                      : k - 2 + static_cast<int>(Purpose::state2));
}

struct SrKey {
    uint32_t key[2];
    uint32_t step[2];
};

// The counter's word for time: the step in the lower 48 bits, the micro-batch in the upper 16. Sums over micro-batches that
// are rounded each time need fresh bits each time: with the same ones their errors add up instead of averaging out.
inline constexpr uint64_t kStepEnd = uint64_t{1} << 48;
inline constexpr uint32_t kMicrobatchEnd = 1U << 16;
MP_HD_INLINE constexpr uint64_t sr_time(uint64_t step, uint32_t microbatch) {
    return step | static_cast<uint64_t>(microbatch) << 48;
}

// `step` is sr_time() where there are micro-batches.
MP_HD_INLINE constexpr SrKey make_sr_key(uint64_t seed, uint64_t uid, uint64_t step) {
    return {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) ^ hash32(uid)},
            {static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)}};
}

namespace detail {
// Set in the purpose byte for the block that holds the lower halves of 32-bit draws.
inline constexpr uint32_t kSrLowHalf = 0x80u;

MP_HD_INLINE constexpr Philox4x32 sr_block_tagged(const SrKey& key, uint32_t tag,
                                                  uint64_t element_block) {
    const uint32_t high = static_cast<uint32_t>(element_block >> 32) & 0x00ffffffu;
    return philox4x32_10(
        {{static_cast<uint32_t>(element_block), high | (tag << 24), key.step[0], key.step[1]}},
        {{key.key[0], key.key[1]}});
}
} // namespace detail

// One block serves the 8 elements 8 * element_block ... + 7. element_block < 2^56.
MP_HD_INLINE constexpr Philox4x32 sr_block(const SrKey& key, Purpose purpose,
                                           uint64_t element_block) {
    return detail::sr_block_tagged(key, static_cast<uint32_t>(purpose), element_block);
}

// The companion block with the lower halves, needed only by formats that use 32 random bits.
MP_HD_INLINE constexpr Philox4x32 sr_block_low(const SrKey& key, Purpose purpose,
                                               uint64_t element_block) {
    return detail::sr_block_tagged(key, static_cast<uint32_t>(purpose) | detail::kSrLowHalf,
                                   element_block);
}

// lane = element % 8. Even lanes take the low half of their word, odd lanes the high half. The word is selected: an index
// would put a device's block into memory.
MP_HD_INLINE constexpr uint32_t sr_bits16(const Philox4x32& block, uint32_t lane) {
    const uint32_t first = (lane & 2u) == 0 ? block.v[0] : block.v[1];
    const uint32_t second = (lane & 2u) == 0 ? block.v[2] : block.v[3];
    const uint32_t word = (lane & 4u) == 0 ? first : second;
    return (word >> ((lane & 1u) * 16u)) & 0xffffu;
}

// Upper half: the same 16 bits that sr_bits16 gives, so formats that need 16 and formats that need
// 32 agree on them. Lower half: those of the companion block.
MP_HD_INLINE constexpr uint32_t sr_bits32(const Philox4x32& block, const Philox4x32& low_block,
                                          uint32_t lane) {
    return (sr_bits16(block, lane) << 16) | sr_bits16(low_block, lane);
}

// One element at a time: eight times the work of the block form, same bits.
MP_HD_INLINE constexpr uint32_t sr_bits16_at(const SrKey& key, Purpose purpose, uint64_t element) {
    return sr_bits16(sr_block(key, purpose, element >> 3), static_cast<uint32_t>(element & 7u));
}

MP_HD_INLINE constexpr uint32_t sr_bits32_at(const SrKey& key, Purpose purpose, uint64_t element) {
    return sr_bits32(sr_block(key, purpose, element >> 3), sr_block_low(key, purpose, element >> 3),
                     static_cast<uint32_t>(element & 7u));
}

} // namespace mp::numerics
