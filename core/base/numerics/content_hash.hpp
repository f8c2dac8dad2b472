// SPDX-License-Identifier: Apache-2.0
// A hash of bytes whose value does not depend on the order in which they are met, so that any number of threads may find it: the
// sum, modulo 2^64, of a mix of each 8-byte word with its place. Not for use against an adversary.
#pragma once

#include <cstdint>

#include "dtype/host_device.hpp"

namespace mp::numerics {

// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), at the place of the
// word in its sequence.
MP_HD_INLINE uint64_t mixed_word(uint64_t word, uint64_t place) noexcept {
    uint64_t z = word + (place + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

// Bytes 8 i ... of the array, the first the lowest; zeros behind its end.
MP_HD_INLINE uint64_t word_at(const unsigned char* bytes, int64_t count, int64_t i) noexcept {
    uint64_t word = 0;
    for (int64_t k = 0; k < 8 && 8 * i + k < count; ++k) {
        word |= static_cast<uint64_t>(bytes[8 * i + k]) << (8 * k);
    }
    return word;
}

} // namespace mp::numerics
