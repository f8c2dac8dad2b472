// SPDX-License-Identifier: Apache-2.0
// Moments kept as 8-bit or 4-bit codes in blocks of the flattened tensor, each block with an fp32
// scale: value = map[code] * scale. The codes are those of torchao's low-bit optimizers, which takes
// its 8-bit maps from bitsandbytes, with one difference: a second moment that is not zero never
// becomes code 0, for a zero under a first moment that is not zero makes the next step huge.
//   block     fp8 E4M3, blocks of 256: scale = max(amax, 1e-12) / 448
//   dynamic8  256 values of a dynamic map, blocks of 256: scale = max(amax, 1e-12)
//   dynamic4  16 values, blocks of 128, two codes a byte, the even element in the high nibble; first
//             moments by a dynamic map, second moments linear: (code + 1) / 16, which has no zero
#pragma once

#include <cstdint>

#include "dtype/state_format.hpp"
#include "numerics/bits.hpp"
#include "numerics/fp8.hpp"

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

// A NaN stays one, and so does infinity: then the block's values show it, whatever its codes are.
MP_HD_INLINE constexpr float moment_scale(Coding coding, float amax) {
    const float limited = amax < 1e-12F ? 1e-12F : amax;
    return coding == Coding::block ? limited / kE4m3Max : limited;
}

// x / scale for E4M3, kept from rounding to zero where x is a second moment that is not zero.
MP_HD_INLINE constexpr float e4m3_quotient(bool is_signed, float x, float scale) {
    const float quotient = x / scale;
    return !is_signed && x > 0.0F && quotient < 0x1p-9F ? 0x1p-9F : quotient;
}

MP_HD_INLINE constexpr int32_t dynamic_code(Coding coding, bool is_signed, float x, float scale) {
    const float quotient = x / scale;
    if (coding == Coding::dynamic4) {
        return is_signed ? nearest_code(kSigned4Map, quotient)
                         : nearest_code(kLinear4Map, quotient);
    }
    if (is_signed) {
        return nearest_code(kSigned8Map, quotient);
    }
    const int32_t code = nearest_code(kUnsigned8Map, quotient);
    return code == 0 && x > 0.0F ? 1 : code;
}

MP_HD_INLINE constexpr float dynamic_value(Coding coding, bool is_signed, int32_t code,
                                           float scale) {
    if (coding == Coding::dynamic4) {
        return (is_signed ? kSigned4Map.value[code] : kLinear4Map.value[code]) * scale;
    }
    return (is_signed ? kSigned8Map.value[code] : kUnsigned8Map.value[code]) * scale;
}

} // namespace mp::numerics
