// SPDX-License-Identifier: Apache-2.0
// The types of block_types.def as fp32 numbers. Every operation is one of fp32, rounded by itself, in the order of ggml's own
// dequantizers (ggml-quants.c): the bits are theirs. A scale that is no number gives numbers that are none.
#pragma once

#include <cstdint>

#include "dtype/dtype.hpp"
#include "numerics/codec.hpp"

namespace mp::numerics {

inline constexpr int64_t kMostBlockElements = 256;

namespace detail {

// Blocks lie at any byte.
MP_HD_INLINE float half_at(const uint8_t* bytes) {
#if defined(__F16C__) && !MP_ON_ACCELERATOR // the same but for the bits of NaN
    typedef int16_t Halves __attribute__((vector_size(16)));
    return __builtin_ia32_vcvtph2ps(Halves{static_cast<int16_t>(bytes[0] | bytes[1] << 8)})[0];
#else
    return fp16_to_float(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
#endif
}
MP_HD_INLINE uint32_t word_at(const uint8_t* bytes) {
    return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
           static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}
MP_HD_INLINE float number(int32_t code) { return static_cast<float>(code); }

// Of MXFP4: twice the numbers are whole, under half the scale; so code 8 is 0, not -0, and 0xFF is 2^128, not NaN.
MP_HD_INLINE float half_of_e8m0(uint32_t e) {
    return float_from_bits(e < 2 ? 0x00200000U << e : (e - 1) << 23);
}
MP_HD_INLINE constexpr int32_t twice_e2m1(int32_t code) {
    const int32_t exponent = code >> 1 & 3;
    const int32_t is_normal = exponent != 0 ? 1 : 0;
    const int32_t twice = (2 * is_normal | (code & 1)) << (exponent - is_normal);
    return (code & 8) != 0 ? -twice : twice;
}

} // namespace detail

// The elements of a block that have one scale: kElements of them, the first at kElements * part.
template <DType kDType> struct BlockPart;

// 32 elements in 16 bytes: the low halves are the first 16. Of five bits, the fifth is in a word of their own.
template <DType kDType> struct BlockHalves {
    static constexpr int32_t kElements = 16;
    static constexpr bool kHasMin = kDType == DType::q4_1 || kDType == DType::q5_1;
    static constexpr bool kHasFive = kDType == DType::q5_0 || kDType == DType::q5_1;
    static constexpr bool kIsMx = kDType == DType::mxfp4_block;
    static constexpr int32_t kHead = kIsMx ? 1 : (kHasMin ? 4 : 2); // bytes of scales

    MP_HD_INLINE BlockHalves(const uint8_t* block, int32_t part)
        : codes(block + kHead + (kHasFive ? 4 : 0)), shift(4 * part) {
        if constexpr (kIsMx) {
            scale = detail::half_of_e8m0(block[0]);
        } else {
            scale = detail::half_at(block);
        }
        if constexpr (kHasMin) {
            min = detail::half_at(block + 2);
        }
        if constexpr (kHasFive) {
            fifth = detail::word_at(block + kHead) >> (16 * part);
        }
    }
    [[nodiscard]] MP_HD_INLINE float operator()(int32_t i) const {
        int32_t code = codes[i] >> shift & 0xF;
        if constexpr (kHasFive) {
            code |= static_cast<int32_t>(fifth >> i & 1U) << 4;
        }
        if constexpr (kHasMin) {
            return scale * detail::number(code) + min;
        } else if constexpr (kIsMx) {
            return scale * detail::number(detail::twice_e2m1(code));
        } else {
            return scale * detail::number(code - (kHasFive ? 16 : 8));
        }
    }

    const uint8_t* codes;
    int32_t shift;
    uint32_t fifth = 0;
    float scale = 0.0F;
    float min = 0.0F;
};
template <> struct BlockPart<DType::q4_0> : BlockHalves<DType::q4_0> {
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) : BlockHalves(block, part) {}
};
template <> struct BlockPart<DType::q4_1> : BlockHalves<DType::q4_1> {
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) : BlockHalves(block, part) {}
};
template <> struct BlockPart<DType::q5_0> : BlockHalves<DType::q5_0> {
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) : BlockHalves(block, part) {}
};
template <> struct BlockPart<DType::q5_1> : BlockHalves<DType::q5_1> {
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) : BlockHalves(block, part) {}
};
template <> struct BlockPart<DType::mxfp4_block> : BlockHalves<DType::mxfp4_block> {
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) : BlockHalves(block, part) {}
};

template <> struct BlockPart<DType::q8_0> {
    static constexpr int32_t kElements = 32;
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t /*part*/)
        : codes(reinterpret_cast<const int8_t*>(block + 2)), scale(detail::half_at(block)) {}
    [[nodiscard]] MP_HD_INLINE float operator()(int32_t i) const {
        return scale * detail::number(codes[i]);
    }
    const int8_t* codes;
    float scale;
};

// 256 elements: eight times 32, two to a byte, each with a scale and a minimum of 6 bits, in 12 bytes. Of five bits, the fifth
// of the i-th 32 is in bit i of 32 bytes.
template <DType kDType> struct BlockOfK {
    static constexpr int32_t kElements = 32;
    static constexpr bool kHasFive = kDType == DType::q5_k;

    MP_HD_INLINE BlockOfK(const uint8_t* block, int32_t part)
        : codes(block + (kHasFive ? 48 : 16) + part / 2 * 32), fifths(block + 16),
          shift(part % 2 * 4), place(part) {
        const uint8_t* packed = block + 4;
        int32_t small = packed[part & 3] & 0x3F;
        int32_t small_min = packed[(part & 3) + 4] & 0x3F;
        if (part >= 4) {
            const int32_t low = packed[part + 4];
            small = (low & 0xF) | (packed[part - 4] >> 6) << 4;
            small_min = low >> 4 | (packed[part] >> 6) << 4;
        }
        scale = detail::half_at(block) * detail::number(small);
        min = detail::half_at(block + 2) * detail::number(small_min);
    }
    [[nodiscard]] MP_HD_INLINE float operator()(int32_t i) const {
        int32_t code = codes[i] >> shift & 0xF;
        if constexpr (kHasFive) {
            code |= (fifths[i] >> place & 1) << 4;
        }
        return scale * detail::number(code) - min;
    }
    const uint8_t* codes;
    const uint8_t* fifths;
    int32_t shift;
    int32_t place;
    float scale;
    float min;
};
template <> struct BlockPart<DType::q4_k> : BlockOfK<DType::q4_k> {
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) : BlockOfK(block, part) {}
};
template <> struct BlockPart<DType::q5_k> : BlockOfK<DType::q5_k> {
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) : BlockOfK(block, part) {}
};

template <> struct BlockPart<DType::q6_k> {
    static constexpr int32_t kElements = 16;
    MP_HD_INLINE BlockPart(const uint8_t* block, int32_t part) {
        const int32_t half = part / 8, quarter = part % 8 / 2, first = part % 2 * 16;
        low = block + half * 64 + quarter % 2 * 32 + first;
        high = block + 128 + half * 32 + first;
        low_shift = quarter / 2 * 4;
        high_shift = quarter * 2;
        scale =
            detail::half_at(block + 208) * detail::number(static_cast<int8_t>(block[192 + part]));
    }
    [[nodiscard]] MP_HD_INLINE float operator()(int32_t i) const {
        const int32_t code = (low[i] >> low_shift & 0xF) | (high[i] >> high_shift & 3) << 4;
        return scale * detail::number(code - 32);
    }
    const uint8_t* low;
    const uint8_t* high;
    int32_t low_shift;
    int32_t high_shift;
    float scale;
};

// body(DTypeConstant<...>{}) for a type of blocks; not called for others.
template <class Body> MP_HD_INLINE constexpr void visit_block_type(DType dtype, const Body& body) {
    switch (dtype) {
#define X(name, NAME, value, elements, bytes)                                                      \
    case DType::name:                                                                              \
        return body(DTypeConstant<DType::name>{});
#include "dtype/block_types.def"
#undef X
    default:
        break;
    }
}

// All elements of one block.
template <DType kDType> MP_HD_INLINE void load_block(const uint8_t* block, float* out) {
    using Part = BlockPart<kDType>;
    for (int32_t p = 0; p < type_block(kDType).elements / Part::kElements; ++p) {
        const Part part(block, p);
        for (int32_t i = 0; i < Part::kElements; ++i) {
            out[p * Part::kElements + i] = part(i);
        }
    }
}
// One of them.
template <DType kDType> MP_HD_INLINE float load_of_block(const uint8_t* block, int32_t i) {
    using Part = BlockPart<kDType>;
    return Part(block, i / Part::kElements)(i % Part::kElements);
}
MP_HD_INLINE void load_block(DType dtype, const void* data, float* out) {
    visit_block_type(dtype, [&](auto type) MP_INLINED {
        load_block<type.value>(static_cast<const uint8_t*>(data), out);
    });
}

// Elements [first, first + count) of an array, of blocks or of elements by themselves.
inline void load_floats(DType dtype, const void* data, int64_t first, int64_t count, float* out) {
    if (!is_in_blocks(dtype)) {
        for (int64_t i = 0; i < count; ++i) {
            out[i] = load_as_float(dtype, data, first + i);
        }
        return;
    }
    const TypeBlock block = type_block(dtype);
    float values[kMostBlockElements];
    for (int64_t done = 0; done < count;) {
        const int64_t at = first + done;
        const int64_t skip = at % block.elements;
        const int64_t n =
            block.elements - skip < count - done ? block.elements - skip : count - done;
        load_block(dtype, static_cast<const uint8_t*>(data) + at / block.elements * block.bytes,
                   values);
        for (int64_t i = 0; i < n; ++i) {
            out[done + i] = values[skip + i];
        }
        done += n;
    }
}

} // namespace mp::numerics
