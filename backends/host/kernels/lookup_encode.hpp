// SPDX-License-Identifier: Apache-2.0
// 64 codes of fp8 at a time by AVX-512 VBMI, bit-equal to numerics/fp8.hpp: what an element's mantissa adds to its
// code is read from a table of 128 bytes, one instruction for 64 elements, instead of being computed.
#pragma once

#include "host/kernels/memory.hpp"
#include "host/kernels/wide_words.hpp"

#if defined(__AVX512VBMI__) && defined(MP_ISA_WIDE_WORDS)
#define MP_ISA_LOOKUP 1

namespace mp::backends::host::MP_ISA_NAMESPACE {

// A table of 128 bytes. A look-up reads the lower 7 bits of each index.
struct ByteTable {
    __m512i lower;
    __m512i upper;
};
MP_ISA_INLINE ByteTable load_table(const uint8_t* bytes) {
    return {held(_mm512_loadu_si512(bytes)), held(_mm512_loadu_si512(bytes + 64))};
}
MP_ISA_INLINE __m512i look_up(const ByteTable& table, __m512i index) {
    return _mm512_permutex2var_epi8(table.lower, index, table.upper);
}

MP_ISA_INLINE __m512i held_bytes(int x) { return held(_mm512_set1_epi8(static_cast<char>(x))); }

MP_ISA_INLINE __m512i byte_numbers(int first, int step) {
    alignas(64) uint8_t numbers[64];
    for (int i = 0; i < 64; ++i) {
        numbers[i] = static_cast<uint8_t>(first + i * step);
    }
    return _mm512_load_si512(numbers);
}

template <class Number> struct Numbers128 { alignas(64) Number values[128]; };
template <class Number, class ValueOf>
constexpr Numbers128<Number> make_128(const ValueOf& value_of) {
    Numbers128<Number> numbers{};
    for (int i = 0; i < 128; ++i) {
        numbers.values[i] = value_of(i);
    }
    return numbers;
}

inline constexpr __mmask64 kAllBytes = ~__mmask64{0};

// codes_at(address, lanes): the codes of 64 elements of kSize bytes. stream: around the caches, where `to` begins a line.
template <int kSize, class Codes>
MP_ISA_INLINE void encode_each_64(const void* source, int64_t n, void* codes, bool stream,
                                  const Codes& codes_at) {
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(codes);
    const bool around = stream && bytes_to_line(to) == 0;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i here = codes_at(from + i * kSize, kAllBytes);
        if (around) {
            _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), here);
        } else {
            _mm512_storeu_si512(to + i, here);
        }
    }
    if (i < n) {
        const __mmask64 lanes = (__mmask64{1} << (n - i)) - 1U;
        _mm512_mask_storeu_epi8(to + i, lanes, codes_at(from + i * kSize, lanes));
    }
}

// What a format's codes are computed from.
template <DType kFp8> struct Fp8Shape {
    static constexpr bool kIsE4m3 = kFp8 == DType::fp8_e4m3;
    static constexpr int kMantissa = kIsE4m3 ? 3 : 2;
    static constexpr int kSmallestNormal = 127 + (kIsE4m3 ? -6 : -14); // exponent fields of fp32
    static constexpr int kLargest = 127 + (kIsE4m3 ? 8 : 15);
    static constexpr uint8_t kMaxFinite =
        kIsE4m3 ? numerics::kE4m3MaxFinite : numerics::kE5m2MaxFinite;
    static constexpr uint8_t kOne = (127 - kSmallestNormal + 1) << kMantissa; // the code of 1

    static constexpr uint8_t code_of(float x) {
        return kIsE4m3 ? numerics::float_to_e4m3(x) : numerics::float_to_e5m2(x);
    }
    // What the 7 bits of a mantissa add to the code of their power of two.
    static constexpr uint8_t above_power(int mantissa) {
        const float x = 1.0F + static_cast<float>(mantissa) / 128.0F;
        return static_cast<uint8_t>(code_of(x) - kOne);
    }
    // The codes below the smallest normal number: 2 bits number the binade, from that of half the smallest code on, and
    // 5 are the mantissa, the lowest of which stands for all that are left out.
    static constexpr uint8_t subnormal(int index) {
        const int binade = kSmallestNormal - kMantissa - 1 + (index >> 5);
        return code_of(numerics::float_from_bits((static_cast<uint32_t>(binade) << 23) |
                                                 (static_cast<uint32_t>(index & 31) << 18)));
    }
};

// Elements come as words: the upper halves of fp32 patterns, bf16 for short, with the lowest bit also set where one of
// the lower half was. So rounding them to 5 bits of mantissa or fewer is rounding the whole pattern.
struct WordPair {
    __m512i first;
    __m512i second;
};

// Elements to such words, multiplied or as they are. The constants of it; make one before the loop.
template <DType kFrom> class MultiplyWords {
    Widen<kFrom> widen_;
    __m512i upper_ = held(halves(1));
    __m512i lower_ = held(halves(0));
    __m512i one_ = held_words(1);
    __m512i even_ = every_second(0);
    __m512i odd_ = every_second(1);

    static MP_ISA_INLINE __m512i every_second(int first) {
        return _mm512_add_epi32(
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
            _mm512_set1_epi32(first));
    }

    // Where the halves of 32 elements lie in what Widen gives.
    static MP_ISA_INLINE __m512i halves(int which) {
        alignas(64) uint16_t numbers[32];
        for (int i = 0; i < 32; ++i) {
            const int lane = kFrom == DType::bf16 ? i / 2 + 16 * (i % 2) : i;
            numbers[i] = static_cast<uint16_t>(2 * lane + which);
        }
        return _mm512_load_si512(numbers);
    }

  public:
    // What is not in `lanes` is 0 and touches no memory.
    MP_ISA_INLINE WideWords load(const void* at, __mmask32 lanes) const {
        return widen_.load(static_cast<const char*>(at), lanes);
    }
    MP_ISA_INLINE __m512i join(__m512 first, __m512 second) const {
        const __m512i a = _mm512_castps_si512(first);
        const __m512i b = _mm512_castps_si512(second);
        const __m512i left_out = _mm512_permutex2var_epi16(a, lower_, b);
        return _mm512_or_si512(_mm512_permutex2var_epi16(a, upper_, b),
                               _mm512_min_epu16(left_out, one_));
    }
    MP_ISA_INLINE __m512i words(const WideWords& x, __m512 factor) const {
        return join(_mm512_mul_ps(x.first, factor), _mm512_mul_ps(x.second, factor));
    }
    // Each of 32 by its own factor; those that are not in `lanes` touch no memory.
    MP_ISA_INLINE __m512i words_by_each(const WideWords& x, const float* factors,
                                        __mmask32 lanes) const {
        const __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), factors);
        const __m512 b = _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16), factors + 16);
        if constexpr (kFrom == DType::bf16) { // which is widened by even and odd ones
            return join(_mm512_mul_ps(x.first, _mm512_permutex2var_ps(a, even_, b)),
                        _mm512_mul_ps(x.second, _mm512_permutex2var_ps(a, odd_, b)));
        } else {
            return join(_mm512_mul_ps(x.first, a), _mm512_mul_ps(x.second, b));
        }
    }
};

// The constants of one format; make one before the loop. A binade of elements is numbered from below: 0 has codes of
// 0 alone, 1 ... kOddBinades have codes of subnormal numbers, or what a table cannot know, and the last holds all
// that is too large. So the code is (number << kMantissa) + table[mantissa], less a constant, where it is no odd one.
template <DType kFp8> class EncodeBytes {
  public:
    using Shape = Fp8Shape<kFp8>;
    static constexpr int kOddBinades = Shape::kMantissa + 2;
    // The exponent field of number 0, where nothing is multiplied.
    static constexpr int kBase = Shape::kSmallestNormal - kOddBinades - 1;

    // largest: the code of what is too large.
    explicit MP_ISA_INLINE EncodeBytes(uint8_t largest) : largest_(held_bytes(largest)) {}

    struct FloatParts {
        __m512i exponent;
        __m512i mantissa; // bit 7 is the exponent's lowest
        __m512i sign;     // in bit 7; others are anything
    };
    MP_ISA_INLINE FloatParts parts_of(const WordPair& x) const {
        const __m512i first = _mm512_add_epi16(x.first, x.first);
        const __m512i second = _mm512_add_epi16(x.second, x.second);
        return {_mm512_permutex2var_epi8(first, odd_, second),
                _mm512_permutex2var_epi8(x.first, even_, x.second),
                _mm512_permutex2var_epi8(x.first, odd_, x.second)};
    }

    // base: the exponent field of number 0.
    MP_ISA_INLINE __m512i number_of(const FloatParts& x, __m512i base) const {
        return _mm512_min_epu8(_mm512_subs_epu8(x.exponent, base), last_);
    }

    MP_ISA_INLINE __m512i magnitude_of(const ByteTable& table, __m512i number,
                                       __m512i mantissa) const {
        const __m512i power = _mm512_slli_epi16(number, Shape::kMantissa); // none leaves its byte
        const __m512i above = _mm512_add_epi8(power, look_up(table, mantissa));
        return _mm512_min_epu8(_mm512_subs_epu8(above, below_), largest_);
    }

    MP_ISA_INLINE __mmask64 odd_lanes(__m512i number) const {
        return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(number, one_), odd_binades_);
    }

    // The codes of binades 1 ... kOddBinades; all of binade 1 becomes 0, as a tie with 0 does.
    static MP_ISA_INLINE __m512i odd_magnitudes(__m512i number, __m512i mantissa) {
        const __m512i first = _mm512_set1_epi8(2);
        const __mmask64 has_code = _mm512_cmpge_epu8_mask(number, first);
        const __mmask64 is_between = _mm512_test_epi8_mask(mantissa, _mm512_set1_epi8(3));
        const __m512i binade = _mm512_slli_epi16(_mm512_sub_epi8(number, first), 5);
        // 0x60 ? binade : mantissa >> 2
        const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x60), binade,
                                                        _mm512_srli_epi16(mantissa, 2), 0xCA);
        const __m512i between = _mm512_maskz_mov_epi8(is_between, _mm512_set1_epi8(1));
        const ByteTable codes = load_table(kSubnormals.values);
        return _mm512_maskz_permutex2var_epi8(has_code, codes.lower,
                                              _mm512_or_si512(index, between), codes.upper);
    }

    MP_ISA_INLINE __m512i with_sign(__m512i magnitude, const FloatParts& x) const {
        return _mm512_ternarylogic_epi32(magnitude, x.sign, sign_,
                                         0xF8); // magnitude | (sign & 0x80)
    }

    // The codes of elements that need no more than their exponents moved, and are no NaN.
    MP_ISA_INLINE __m512i codes_of(const FloatParts& x, __m512i base) const {
        const __m512i number = number_of(x, base);
        __m512i magnitude = magnitude_of(powers_, number, x.mantissa);
        const __mmask64 odd = odd_lanes(number);
        if (__builtin_expect(odd != 0, 0)) {
            magnitude = _mm512_mask_mov_epi8(magnitude, odd, odd_magnitudes(number, x.mantissa));
        }
        return with_sign(magnitude, x);
    }

    // The same with NaN among them.
    MP_ISA_INLINE __m512i codes_of_any(const FloatParts& x, __m512i base) const {
        const __m512i codes = codes_of(x, base);
        const __mmask64 is_large =
            _mm512_cmpeq_epi8_mask(x.exponent, _mm512_set1_epi8(static_cast<char>(0xff)));
        if (__builtin_expect(is_large != 0, 0)) {
            const __mmask64 is_nan =
                _mm512_mask_test_epi8_mask(is_large, x.mantissa, _mm512_set1_epi8(0x7f));
            return _mm512_mask_mov_epi8(codes, is_nan, with_sign(nans(x.mantissa), x));
        }
        return codes;
    }

    // The base for elements times a factor; 0 where that way is closed: the factor is no normal number, or so large that
    // subnormal elements have codes of their own.
    static constexpr int base_for(float factor) {
        const auto exponent = static_cast<int>(numerics::bits_from_float(factor) >> 23);
        const bool is_open = exponent > 0 && exponent < kBase + 127;
        return is_open ? kBase + 127 - exponent : 0;
    }
    // Whether a product with it is an element with another exponent.
    static constexpr bool is_power(float factor) {
        return (numerics::bits_from_float(factor) & 0x007fffffU) == 0;
    }

    // bf16 times a factor: what mantissas add to the codes of powers of two then. Products below the normal numbers
    // cannot be had from it: they lie between what 16 bits can tell.
    MP_ISA_INLINE ByteTable table_for(float factor) const {
        static constexpr auto kUnits =
            make_128<uint16_t>([](int i) { return static_cast<uint16_t>(0x3f80 + i); });
        const uint32_t fraction = numerics::bits_from_float(factor) & 0x007fffffU;
        const __m512 by = _mm512_set1_ps(numerics::float_from_bits(0x3f800000U | fraction));
        const MultiplyWords<DType::bf16> multiply;
        const __m512i base = _mm512_set1_epi8(kBase);
        const __m512i one = _mm512_set1_epi8(static_cast<char>(Shape::kOne));
        __m512i codes[2];
        for (int i = 0; i < 2; ++i) {
            const uint16_t* from = kUnits.values + 64 * i;
            const __m512i first = multiply.words(multiply.load(from, kAllLanes), by);
            const __m512i second = multiply.words(multiply.load(from + 32, kAllLanes), by);
            codes[i] = _mm512_sub_epi8(codes_of(parts_of({first, second}), base), one);
        }
        return {codes[0], codes[1]};
    }

  private:
    static constexpr auto kPowers = make_128<uint8_t>(Shape::above_power);
    static constexpr auto kSubnormals = make_128<uint8_t>(Shape::subnormal);
    static constexpr int kLast = Shape::kLargest + 1 - kBase;

    // E5M2 keeps the upper two bits of the payload, of which the first says that it is quiet.
    static MP_ISA_INLINE __m512i nans(__m512i mantissa) {
        if constexpr (kFp8 == DType::fp8_e4m3) {
            return _mm512_set1_epi8(numerics::kE4m3Nan);
        } else {
            // quiet | (mantissa >> 5 & 1)
            return _mm512_ternarylogic_epi32(_mm512_set1_epi8(numerics::kE5m2QuietNan),
                                             _mm512_srli_epi16(mantissa, 5), _mm512_set1_epi8(1),
                                             0xF8);
        }
    }

    __m512i largest_;
    __m512i even_ = held(byte_numbers(0, 2));
    __m512i odd_ = held(byte_numbers(1, 2));
    __m512i last_ = held_bytes(kLast);
    __m512i below_ = held_bytes(kOddBinades << Shape::kMantissa);
    __m512i one_ = held_bytes(1);
    __m512i odd_binades_ = held_bytes(kOddBinades);
    __m512i sign_ = held_bytes(0x80);
    ByteTable powers_ = load_table(kPowers.values);
};

} // namespace mp::backends::host::MP_ISA_NAMESPACE

#endif
