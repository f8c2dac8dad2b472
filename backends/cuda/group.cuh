// SPDX-License-Identifier: Apache-2.0
// Groups of eight consecutive elements, the unit of work of one thread: eight share a block of
// random bits, and eight of 16 bits are one 16-byte access. An element's code is the low bits of a
// uint32_t; formats are those of core/base/numerics. Also compiled for the host, by tests.
#pragma once

#include <cstdint>

#include "device/backend.hpp"
#include "dtype/dtype.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"

namespace mp::backends::cuda {

inline constexpr int kGroup = 8;
static_assert(kGroup == 8, "a block of random bits serves 8 elements");

namespace detail {

struct __attribute__((aligned(16), may_alias)) Word16 {
    uint32_t v[4];
};
struct __attribute__((aligned(8), may_alias)) Word8 {
    uint32_t v[2];
};
template <int kSize> struct Element;
template <> struct Element<1> {
    typedef uint8_t type __attribute__((may_alias));
    using Word = Word8;
};
template <> struct Element<2> {
    typedef uint16_t type __attribute__((may_alias));
    using Word = Word16;
};
template <> struct Element<4> {
    typedef uint32_t type __attribute__((may_alias));
    using Word = Word16;
};

} // namespace detail

// Whether kernels over groups take an array: its type is one that for_floating_type knows, and its elements are aligned.
inline bool takes_elements(const char* what, const void* data, DType dtype,
                           Reason& reason) noexcept {
    if (!is_floating(dtype)) {
        reason.set("%s is %s; this takes floating types", what, dtype_name(dtype));
        return false;
    }
    if (!is_aligned(data, dtype)) {
        reason.set("%s of %s lies at %p, which is no multiple of its element size", what,
                   dtype_name(dtype), data);
        return false;
    }
    return true;
}

// A group's place in an array. `whole`: all eight are there, and aligned for wide accesses.
struct GroupAt {
    int64_t first;
    int count;
    bool whole;
};

// Whether groups of an array can be accessed whole; its elements are aligned in any case.
MP_HD_INLINE bool is_group_aligned(const void* data, int64_t element_size) {
    const uintptr_t access = element_size == 1 ? 8 : 16;
    return reinterpret_cast<uintptr_t>(data) % access == 0;
}

template <int kSize>
MP_HD_INLINE void load_codes(const void* data, const GroupAt& at, uint32_t (&codes)[kGroup]) {
    using Element = typename detail::Element<kSize>::type;
    using Word = typename detail::Element<kSize>::Word;
    const auto* from = static_cast<const Element*>(data) + at.first;
    if (at.whole) {
        constexpr int kInWord = static_cast<int>(sizeof(Word)) / kSize;
        constexpr int kIn32Bits = 4 / kSize;
        Word words[kGroup / kInWord];
        MP_HD_UNROLL
        for (int w = 0; w < kGroup / kInWord; ++w) {
            words[w] = reinterpret_cast<const Word*>(from)[w];
        }
        MP_HD_UNROLL
        for (int j = 0; j < kGroup; ++j) {
            const uint32_t bits = words[j / kInWord].v[j % kInWord / kIn32Bits];
            codes[j] = bits >> (j % kIn32Bits * kSize * 8);
            if constexpr (kSize < 4) {
                codes[j] &= (1U << (kSize * 8)) - 1U;
            }
        }
    } else {
        MP_HD_UNROLL
        for (int j = 0; j < kGroup; ++j) {
            codes[j] = j < at.count ? static_cast<uint32_t>(from[j]) : 0U;
        }
    }
}

template <int kSize>
MP_HD_INLINE void store_codes(void* data, const GroupAt& at, const uint32_t (&codes)[kGroup]) {
    using Element = typename detail::Element<kSize>::type;
    using Word = typename detail::Element<kSize>::Word;
    auto* to = static_cast<Element*>(data) + at.first;
    if (at.whole) {
        constexpr int kInWord = static_cast<int>(sizeof(Word)) / kSize;
        constexpr int kIn32Bits = 4 / kSize;
        Word words[kGroup / kInWord] = {};
        MP_HD_UNROLL
        for (int j = 0; j < kGroup; ++j) {
            words[j / kInWord].v[j % kInWord / kIn32Bits] |= codes[j]
                                                             << (j % kIn32Bits * kSize * 8);
        }
        MP_HD_UNROLL
        for (int w = 0; w < kGroup / kInWord; ++w) {
            reinterpret_cast<Word*>(to)[w] = words[w];
        }
    } else {
        MP_HD_UNROLL
        for (int j = 0; j < kGroup; ++j) {
            if (j < at.count) {
                to[j] = static_cast<Element>(codes[j]);
            }
        }
    }
}

// One element's value and code.
template <DType kDType> struct ElementCodec {
    using Codec = numerics::Codec<kDType>;
    using Storage = typename Codec::storage;
    static constexpr int kSize = static_cast<int>(sizeof(Storage));

    MP_HD_INLINE static float decode(uint32_t code) {
        if constexpr (kDType == DType::fp32) {
            return numerics::float_from_bits(code);
        } else {
            return Codec::load(static_cast<Storage>(code));
        }
    }
    MP_HD_INLINE static uint32_t encode(float x, numerics::Narrowing rounding, uint32_t random) {
        if constexpr (kDType == DType::fp32) {
            return numerics::bits_from_float(x);
        } else {
            switch (rounding) {
            case numerics::Narrowing::stochastic:
                return Codec::store_sr(x, random);
            case numerics::Narrowing::stochastic_nonsat:
                return Codec::store_sr_nonsat(x, random);
            case numerics::Narrowing::saturating:
                return Codec::store_sat(x);
            case numerics::Narrowing::nearest:
                break;
            }
            return Codec::store_nonsat(x);
        }
    }
};

// Thirty-two random bits for each element of a group. `low` is used only by formats that need more
// than 16.
struct GroupBits {
    numerics::Philox4x32 high = {};
    numerics::Philox4x32 low = {};
    [[nodiscard]] MP_HD_INLINE uint32_t of(int j) const {
        return numerics::sr_bits32(high, low, static_cast<uint32_t>(j));
    }
};

MP_HD_INLINE GroupBits group_bits(DType dtype, const numerics::SrKey& key,
                                  numerics::Purpose purpose, int64_t first) {
    GroupBits bits;
    const auto block = static_cast<uint64_t>(first) / kGroup;
    bits.high = numerics::sr_block(key, purpose, block);
    if (dtype != DType::bf16) { // which takes the upper 16
        bits.low = numerics::sr_block_low(key, purpose, block);
    }
    return bits;
}

// All floating types. The switch is the same for all threads of a block, and folds where the type is a constant. Callers
// have checked the type.
template <typename Body> MP_HD_INLINE void for_floating_type(DType dtype, Body&& body) {
    visit_floating(dtype, [&](auto type) { body(ElementCodec<type.value>{}); });
}

template <class C>
MP_HD_INLINE void load_group(C, const void* data, const GroupAt& at, float (&x)[kGroup]) {
    uint32_t codes[kGroup];
    load_codes<C::kSize>(data, at, codes);
    MP_HD_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        x[j] = C::decode(codes[j]);
    }
}

template <class C>
MP_HD_INLINE void store_group(C, void* data, const GroupAt& at, const float (&x)[kGroup],
                              numerics::Narrowing rounding, const GroupBits& bits) {
    uint32_t codes[kGroup];
    MP_HD_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        codes[j] = C::encode(x[j], rounding, bits.of(j));
    }
    store_codes<C::kSize>(data, at, codes);
}

} // namespace mp::backends::cuda
