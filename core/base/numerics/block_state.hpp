// SPDX-License-Identifier: Apache-2.0
// States kept as 8-bit or 4-bit codes in blocks of the flattened tensor, each block with a scale; how they lie:
// dtype/formats.def. States with a sign and those without (second moments) have maps of their own. A second moment
// that is not zero never becomes code 0: a zero under a first moment that is not zero makes the next step huge.
//   block, block128  fp8 E4M3: value = code * scale, scale = amax / 448. Blocks of 256 as in torchao's low-bit optimizers,
//                    of 128 as in LLMQ's
//   dynamic8  value = map[code] * scale, scale = amax; 256 values of a dynamic map (torchao, which has it from bitsandbytes)
//   dynamic4  the same with 16 values, two codes a byte, the even element in the high nibble; second moments linear:
//             (code + 1) / 16, which has no zero: a block of zeros has the scale 0
//   companded8  of a first moment y = 2x / (1 + |x|), x = m / amax: 127 y, halves up, as two's complement (softsign); of a
//             second moment 255 x, x = sqrt(v) / sqrt(amax). The scale, 16 bits (BlockScale16), is amax or its root.
//             FlashOptim's codes, and its scales where it has them: it has fp16 alone, which above 65504 is infinite
// Scales begin at 2^-126, below fp32's normal numbers: no state depends on the unit that gradients are in. torchao's begin
// at 1e-12; so large is the scale of a block of zeros, as there, where it is worth nothing.
#pragma once

#include <cmath>
#include <cstdint>

#include "dtype/format_id.hpp"
#include "numerics/bf16.hpp"
#include "numerics/bits.hpp"
#include "numerics/codec.hpp"

namespace mp::numerics {

// Values in ascending order, and for each code but the first the smallest number that gets it.
template <int kCount> struct DynamicMap {
    float value[kCount];
    float threshold[kCount];
};

namespace detail {

// torchao's rule: from value[i] the next code begins where x - value[i] >= (value[i + 1] - value[i]) / 2,
// computed in fp32.
constexpr bool takes_next(float x, float here, float next) {
    return x - here >= (next - here) * 0.5F;
}

// fp32 numbers as integers in the same order, and back.
constexpr int32_t ordered(float x) {
    const auto u = static_cast<int32_t>(bits_from_float(x) & kFloatMagnitudeMask);
    return x < 0.0F ? -u : u;
}
constexpr float from_ordered(int32_t i) {
    return i < 0 ? -float_from_bits(static_cast<uint32_t>(-i))
                 : float_from_bits(static_cast<uint32_t>(i));
}

// By bisection over all fp32 numbers between the two values: the comparison is monotone in x.
constexpr float next_code_begins(float here, float next) {
    int32_t below = ordered(here);
    int32_t at = ordered(next);
    while (at - below > 1) {
        const int32_t middle = below + (at - below) / 2;
        (takes_next(from_ordered(middle), here, next) ? at : below) = middle;
    }
    return from_ordered(at);
}

template <int kCount> constexpr DynamicMap<kCount> make_map(const float (&values)[kCount]) {
    DynamicMap<kCount> map{};
    for (int i = 0; i < kCount; ++i) {
        map.value[i] = values[i];
        map.threshold[i] = i == 0 ? values[0] : next_code_begins(values[i - 1], values[i]);
    }
    return map;
}

#define MAP(name, ...) inline constexpr float k##name##Values[] = {__VA_ARGS__};
#include "numerics/dynamic_maps.def"
#undef MAP

inline constexpr float kLinear4Values[] = {0x1p-4F, 0x2p-4F, 0x3p-4F, 0x4p-4F, 0x5p-4F, 0x6p-4F,
                                           0x7p-4F, 0x8p-4F, 0x9p-4F, 0xap-4F, 0xbp-4F, 0xcp-4F,
                                           0xdp-4F, 0xep-4F, 0xfp-4F, 0x1p0F};

} // namespace detail

inline constexpr DynamicMap<256> kSigned8Map = detail::make_map(detail::kSigned8Values);
inline constexpr DynamicMap<256> kUnsigned8Map = detail::make_map(detail::kUnsigned8Values);
inline constexpr DynamicMap<16> kSigned4Map = detail::make_map(detail::kSigned4Values);
inline constexpr DynamicMap<16> kLinear4Map = detail::make_map(detail::kLinear4Values);

// The maps, for code that runs anywhere.
#if MP_ON_ACCELERATOR
#define MAP_ANYWHERE(function, Map, constant)                                                      \
    MP_HD_INLINE const Map& function() {                                                           \
        static constexpr Map copy = constant;                                                      \
        return copy;                                                                               \
    }
#else
#define MAP_ANYWHERE(function, Map, constant)                                                      \
    MP_HD_INLINE constexpr const Map& function() { return constant; }
#endif
MAP_ANYWHERE(signed8_map, DynamicMap<256>, kSigned8Map)
MAP_ANYWHERE(unsigned8_map, DynamicMap<256>, kUnsigned8Map)
MAP_ANYWHERE(signed4_map, DynamicMap<16>, kSigned4Map)
MAP_ANYWHERE(linear4_map, DynamicMap<16>, kLinear4Map)
#undef MAP_ANYWHERE

// The code of the nearest value, halves up; 0 for NaN. A binary search without branches.
template <int kCount>
MP_HD_INLINE constexpr int32_t nearest_code(const DynamicMap<kCount>& map, float x) {
    int32_t code = 0;
    for (int32_t step = kCount / 2; step > 0; step /= 2) {
        code += x >= map.threshold[code + step] ? step : 0;
    }
    return code;
}

// The same search by a table: between two fp32 numbers with the same upper 16 bits there is one
// threshold at most, so the code of the lower one and one comparison are enough. For |x| <= 1; numbers
// below 2^-23 have the code of 2^-23.
struct CodeTable {
    static constexpr uint32_t kFirst = 0x3400; // 2^-23
    static constexpr uint32_t kLast = 0x3f80;  // 1
    static constexpr int32_t kCount = static_cast<int32_t>(kLast - kFirst) + 1;

    int32_t positive[kCount]; // code of the smallest number with these upper bits
    int32_t negative[kCount];
    float threshold[257]; // of the code after; none after the last
};

namespace detail {

constexpr CodeTable make_table(const DynamicMap<256>& map) {
    CodeTable table{};
    int32_t up = 0;
    int32_t down = 255;
    for (int32_t i = 0; i < CodeTable::kCount; ++i) {
        const uint32_t upper = CodeTable::kFirst + static_cast<uint32_t>(i);
        const float smallest = float_from_bits(upper << 16);
        const float largest = float_from_bits(upper << 16 | 0xffffU);
        while (up < 255 && smallest >= map.threshold[up + 1]) {
            ++up;
        }
        while (down > 0 && -largest < map.threshold[down]) {
            --down;
        }
        table.positive[i] = up;
        table.negative[i] = down;
    }
    for (int32_t i = 0; i < 256; ++i) {
        table.threshold[i] = map.threshold[i];
    }
    table.threshold[256] = float_from_bits(kFloatInfinity);
    return table;
}

} // namespace detail

inline constexpr CodeTable kSigned8Table = detail::make_table(kSigned8Map);
inline constexpr CodeTable kUnsigned8Table = detail::make_table(kUnsigned8Map);

// nearest_code() of the table's map, for |x| <= 1 or NaN.
template <bool kSigned>
MP_HD_INLINE constexpr int32_t nearest_code_by_table(const CodeTable& table, float x) {
    const uint32_t u = bits_from_float(x);
    const uint32_t upper = (u & kFloatMagnitudeMask) >> 16;
    const uint32_t low = upper < CodeTable::kFirst ? CodeTable::kFirst : upper;
    const auto i =
        static_cast<int32_t>((low > CodeTable::kLast ? CodeTable::kLast : low) - CodeTable::kFirst);
    const bool is_negative = kSigned && (u & kFloatSignMask) != 0;
    const int32_t code = is_negative ? table.negative[i] : table.positive[i];
    const int32_t found = code + (x >= table.threshold[code + 1] ? 1 : 0);
    return is_nan_bits(u) ? 0 : found;
}

// What a block is stored with: its scale, which store_block_scale rounds to the coding's scale type, and what its values
// are divided by. A NaN stays one, and so does infinity: then the block's values show it, whatever its codes are.
struct MomentScale {
    float stored;
    float divisor;
};

// The least that anything is divided by: the smallest normal number. A NaN stays one.
inline constexpr float kLeastScale = 0x1p-126F;
MP_HD_INLINE constexpr float at_least_normal(float x) { return x < kLeastScale ? kLeastScale : x; }

// What a block of this largest magnitude has for its amax, under scales in fp32.
MP_HD_INLINE constexpr float block_amax(float amax) {
    return amax == 0.0F ? 1e-12F : at_least_normal(amax);
}

// A scale, which has no sign, in 16 bits: fp16 where that is as exact as bf16 at least, from 2^-17 to its end; elsewhere bf16
// with the sign's bit set. So every finite one is kept to 2^-8 of itself, but for the last before infinity.
struct BlockScale16 {
    static constexpr uint32_t kIsBf16 = 0x8000;
    static constexpr float kLeastFp16 = 0x1.FFp-18F; // what bf16 would round to 2^-17
    static constexpr float kEndOfFp16 = 65520.0F;    // becomes infinity

    // Also what is not finite.
    MP_HD_INLINE static constexpr bool is_fp16(float scale) {
        return (scale >= kLeastFp16 && scale < kEndOfFp16) || scale == 0.0F || !is_finite(scale);
    }
    MP_HD_INLINE static constexpr uint16_t encode(float scale) {
        return is_fp16(scale) ? float_to_fp16(scale)
                              : static_cast<uint16_t>(kIsBf16 | float_to_bf16_sat(scale));
    }
    MP_HD_INLINE static constexpr float decode(uint16_t bits) {
        return (bits & kIsBf16) != 0 ? float_from_bits((bits & ~kIsBf16) << 16)
                                     : fp16_to_float(bits);
    }
};

// x / scale for E4M3, kept from rounding to zero where x is a second moment that is not zero.
MP_HD_INLINE constexpr float e4m3_quotient(bool is_signed, float x, float scale) {
    const float quotient = x / scale;
    return !is_signed && x > 0.0F && quotient < 0x1p-9F ? 0x1p-9F : quotient;
}

// The codec of each coding: scales of a block with this largest magnitude, code of x, and value of a code.
template <Coding kCoding> struct BlockCodec;

template <> struct BlockCodec<Coding::block> {
    MP_HD_INLINE static constexpr MomentScale scales(bool /*is_signed*/, float amax) {
        const float scale = at_least_normal(block_amax(amax) / kE4m3Max);
        return {scale, scale};
    }
    MP_HD_INLINE static constexpr int32_t code(bool is_signed, float x, float divisor) {
        return float_to_e4m3(e4m3_quotient(is_signed, x, divisor));
    }
    MP_HD_INLINE static constexpr float value(bool /*is_signed*/, int32_t code, float scale) {
        return e4m3_to_float(static_cast<uint8_t>(code)) * scale;
    }
};
template <> struct BlockCodec<Coding::block128> : BlockCodec<Coding::block> {};

template <> struct BlockCodec<Coding::dynamic8> {
    MP_HD_INLINE static constexpr MomentScale scales(bool /*is_signed*/, float amax) {
        const float scale = block_amax(amax);
        return {scale, scale};
    }
    MP_HD_INLINE static int32_t code(bool is_signed, float x, float divisor) {
        const float quotient = x / divisor;
        if (is_signed) {
            return nearest_code(signed8_map(), quotient);
        }
        const int32_t code = nearest_code(unsigned8_map(), quotient);
        return code == 0 && x > 0.0F ? 1 : code;
    }
    MP_HD_INLINE static float value(bool is_signed, int32_t code, float scale) {
        return (is_signed ? signed8_map().value[code] : unsigned8_map().value[code]) * scale;
    }
};

template <> struct BlockCodec<Coding::dynamic4> {
    MP_HD_INLINE static constexpr MomentScale scales(bool is_signed, float amax) {
        const float scale = block_amax(amax);
        return {!is_signed && amax == 0.0F ? 0.0F : scale, scale};
    }
    MP_HD_INLINE static int32_t code(bool is_signed, float x, float divisor) {
        const float quotient = x / divisor;
        return is_signed ? nearest_code(signed4_map(), quotient)
                         : nearest_code(linear4_map(), quotient);
    }
    MP_HD_INLINE static float value(bool is_signed, int32_t code, float scale) {
        return (is_signed ? signed4_map().value[code] : linear4_map().value[code]) * scale;
    }
};

template <> struct BlockCodec<Coding::companded8> {
    MP_HD_INLINE static MomentScale scales(bool is_signed, float amax) {
        const float divisor = at_least_normal(is_signed ? amax : sqrtf(amax));
        // The last root whose square is a number, rounded: that of the largest rounds to 2^64.
        const bool is_last = !is_signed && divisor > 0x1.fep63F && divisor < 0x1p64F;
        return {amax == 0.0F ? 0.0F : is_last ? 0x1.fep63F : divisor, divisor};
    }
    // x + 1/2 to the integer below; 0 for NaN. Without branches, so that loops of it become vectors.
    MP_HD_INLINE static int32_t round_half_up(float x) {
        const uint32_t up = bits_from_float(x + 0.5F);
        const float number = float_from_bits(select_u32(is_nan_bits(up), 0, up));
        const auto cut = static_cast<int32_t>(number);
        return cut - static_cast<int32_t>(static_cast<float>(cut) > number);
    }
    MP_HD_INLINE static int32_t code(bool is_signed, float x, float divisor) {
        if (is_signed) {
            const float normal = x / divisor;
            return round_half_up(2.0F * normal / (1.0F + fabsf(normal)) * 127.0F) & 0xff;
        }
        const int32_t code = round_half_up(sqrtf(x) / divisor * 255.0F);
        return code + static_cast<int32_t>(static_cast<uint32_t>(code == 0) &
                                           static_cast<uint32_t>(x > 0.0F));
    }
    MP_HD_INLINE static float value(bool is_signed, int32_t code, float scale) {
        if (is_signed) {
            const float y = static_cast<float>(code < 128 ? code : code - 256) / 127.0F;
            return y / (2.0F - fabsf(y)) * scale;
        }
        const float root = static_cast<float>(code) / 255.0F * scale;
        return root * root;
    }
};

// body(BlockCodec<...>{}) for a coding that has blocks.
template <class Body> MP_HD_INLINE auto with_block_codec(Coding coding, Body&& body) {
    switch (coding) {
#define BLOCKS(number, id, name, dtype, bits, elements, scale, roles)                              \
    case Coding::id:                                                                               \
        return body(BlockCodec<Coding::id>{});
#include "dtype/formats.def"
    default:
        __builtin_unreachable(); // has_blocks() is asked first
    }
}

// One element of codes in blocks, where speed does not matter. Two codes of a byte: the even element in its upper half.
MP_HD_INLINE int32_t load_block_code(Coding coding, const void* codes, int64_t i) {
    if (block_layout(coding).bits == 4) {
        return detail::load_element<uint8_t>(codes, i / 2) >> (i % 2 == 0 ? 4 : 0) & 0xf;
    }
    return detail::load_element<uint8_t>(codes, i);
}
// In the order of the elements: an even one clears the half byte after it.
MP_HD_INLINE void store_block_code(Coding coding, void* codes, int64_t i, int32_t code) {
    if (block_layout(coding).bits == 4) {
        const int32_t even = i % 2 == 0 ? 0 : detail::load_element<uint8_t>(codes, i / 2);
        detail::store_element(codes, i / 2,
                              static_cast<uint8_t>(even | code << (i % 2 == 0 ? 4 : 0)));
    } else {
        detail::store_element(codes, i, static_cast<uint8_t>(code));
    }
}
MP_HD_INLINE float load_block_scale(Coding coding, const void* scales, int64_t block) {
    return block_layout(coding).scales.dtype == DType::fp16
               ? BlockScale16::decode(detail::load_element<uint16_t>(scales, block))
               : detail::load_element<float>(scales, block);
}
MP_HD_INLINE void store_block_scale(Coding coding, void* scales, int64_t block, float stored) {
    if (block_layout(coding).scales.dtype == DType::fp16) {
        detail::store_element(scales, block, BlockScale16::encode(stored));
    } else {
        detail::store_element(scales, block, stored);
    }
}
MP_HD_INLINE float load_block_value(Coding coding, bool is_signed, const void* codes,
                                    const void* scales, int64_t i) {
    const float scale = load_block_scale(coding, scales, i / block_size(coding));
    const int32_t code = load_block_code(coding, codes, i);
    return with_block_codec(
        coding, [&](auto codec) { return decltype(codec)::value(is_signed, code, scale); });
}

} // namespace mp::numerics
