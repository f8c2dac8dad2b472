// SPDX-License-Identifier: Apache-2.0
// Casts to and from fp8 by byte look-ups, 64 at a time and to where they belong; bit-equal to numerics/codec.hpp.
#pragma once

#include "host/kernels/jobs.hpp"
#include "host/kernels/lookup_encode.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(MP_ISA_LOOKUP)

// What is larger than all codes becomes the largest, or else the pattern that follows it: NaN or infinity.
template <DType kFp8> constexpr uint8_t largest_code(bool saturate) {
    return static_cast<uint8_t>(Fp8Shape<kFp8>::kMaxFinite + (saturate ? 0 : 1));
}

MP_ISA_INLINE __m512i pair_numbers(int first) {
    alignas(64) uint8_t numbers[64];
    for (int i = 0; i < 32; ++i) {
        numbers[2 * i] = static_cast<uint8_t>(first + i);
        numbers[2 * i + 1] = static_cast<uint8_t>(64 + first + i);
    }
    return _mm512_load_si512(numbers);
}

// 64 elements of any type by way of words.
template <DType kFrom, DType kTo> class EncodeWide {
    static constexpr auto kSize = static_cast<int>(dtype_size(kFrom));
    using Encode = EncodeBytes<kTo>;

    Encode encode_;
    MultiplyWords<kFrom> words_;
    __m512i base_ = held_bytes(Encode::kBase);

    MP_ISA_INLINE __m512i words_at(const char* from, __mmask32 lanes) const {
        const WideWords x = words_.load(from, lanes);
        return kFrom == DType::bf16 ? x.codes : words_.join(x.first, x.second);
    }

  public:
    explicit MP_ISA_INLINE EncodeWide(bool saturate) : encode_(largest_code<kTo>(saturate)) {}

    MP_ISA_INLINE __m512i codes_at(const char* from, __mmask64 lanes) const {
        const WordPair x = {words_at(from, static_cast<__mmask32>(lanes)),
                            words_at(from + 32 * kSize, static_cast<__mmask32>(lanes >> 32))};
        return encode_.codes_of_any(encode_.parts_of(x), base_);
    }
};

template <DType kFrom, DType kTo>
MP_ISA_FUNCTION void encode_lookup(const void* source, int64_t n, void* codes, bool saturate,
                                   bool stream) {
    const EncodeWide<kFrom, kTo> encode(saturate);
    const auto codes_at = [&](const char* from, __mmask64 lanes)
                              MP_INLINED { return encode.codes_at(from, lanes); };
    encode_each_64<static_cast<int>(dtype_size(kFrom))>(source, n, codes, stream, codes_at);
}

// fp16 has E5M2's exponents, and so E4M3's but for a constant: codes are upper bytes, rounded to nearest even. Vectors
// with a NaN or a code below E4M3's normal numbers take the way of the others.
template <DType kTo>
MP_ISA_FUNCTION void encode_fp16_lookup(const void* source, int64_t n, void* codes, bool saturate,
                                        bool stream) {
    constexpr bool kIsE4m3 = kTo == DType::fp8_e4m3;
    const EncodeWide<DType::fp16, kTo> others(saturate);
    const __m512i largest = held_bytes(largest_code<kTo>(saturate));
    const __m512i magnitude = held_words(0x7fff);
    const __m512i infinity = held_words(numerics::kFp16Infinity << (kIsE4m3 ? 1 : 0));
    const __m512i odd = held_words(0x100);
    const __m512i below_half = held_words(0x7f);
    const __m512i one = held_words(1);
    const __m512i sign = held_bytes(0x80);
    const __m512i upper = held(byte_numbers(1, 2));
    const __m512i rebias = held_bytes(8 << 3);
    const __m512i tiny = held_bytes(5 << 3); // half the smallest code
    const __m512i normal = held_bytes(4 << 3);
    const auto above = [&](__m512i x) MP_INLINED {
        return kIsE4m3 ? _mm512_add_epi16(x, x) : _mm512_and_si512(x, magnitude);
    };
    const auto rounded = [&](__m512i y) MP_INLINED {
        const __m512i bumped = _mm512_add_epi16(y, below_half);
        return _mm512_mask_add_epi16(bumped, _mm512_test_epi16_mask(y, odd), bumped, one);
    };
    const auto codes_at = [&](const char* from, __mmask64 lanes) MP_INLINED {
        const __m512i a = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(lanes), from);
        const __m512i b = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(lanes >> 32), from + 64);
        const __m512i above_a = above(a);
        const __m512i above_b = above(b);
        __m512i code = _mm512_permutex2var_epi8(rounded(above_a), upper, rounded(above_b));
        __mmask64 others_too = _mm512_kunpackd(_mm512_cmpgt_epu16_mask(above_b, infinity),
                                               _mm512_cmpgt_epu16_mask(above_a, infinity));
        if constexpr (kIsE4m3) {
            others_too |= _mm512_cmplt_epu8_mask(_mm512_sub_epi8(code, tiny), normal);
            code = _mm512_subs_epu8(code, rebias);
        }
        if (__builtin_expect(others_too != 0, 0)) {
            return others.codes_at(from, lanes);
        }
        // the smaller of code and largest | (the sign in its place)
        return _mm512_ternarylogic_epi32(_mm512_min_epu8(code, largest),
                                         _mm512_permutex2var_epi8(a, upper, b), sign, 0xF8);
    };
    encode_each_64<2>(source, n, codes, stream, codes_at);
}

// fp8 to the other fp8: a table of the codes without sign.
template <DType kFrom, bool kSaturate> constexpr uint8_t other_fp8(int code) {
    const auto from = static_cast<uint8_t>(code);
    if constexpr (kFrom == DType::fp8_e4m3) {
        return numerics::float_to_e5m2(numerics::e4m3_to_float(from)); // none is too large
    } else {
        const float x = numerics::e5m2_to_float(from);
        return kSaturate ? numerics::float_to_e4m3_sat(x) : numerics::float_to_e4m3(x);
    }
}
template <DType kFrom, bool kSaturate>
MP_ISA_FUNCTION void recode_lookup(const void* source, int64_t n, void* codes, bool stream) {
    static constexpr auto kCodes = make_128<uint8_t>(other_fp8<kFrom, kSaturate>);
    const ByteTable table = load_table(kCodes.values);
    const __m512i sign = held_bytes(0x80);
    const auto codes_at = [&](const char* from, __mmask64 lanes) MP_INLINED {
        prefetch_ahead(from, 64);
        const __m512i x = _mm512_maskz_loadu_epi8(lanes, from);
        return _mm512_ternarylogic_epi32(look_up(table, x), x, sign,
                                         0xF8); // magnitude | (x & 0x80)
    };
    encode_each_64<1>(source, n, codes, stream, codes_at);
}

// fp8 to bf16 or fp16: tables of both bytes of the numbers without sign.
template <DType kFrom, DType kTo, bool kSaturate> constexpr uint16_t widened_fp8(int code) {
    const float x = numerics::Codec<kFrom>::load(static_cast<uint8_t>(code));
    return kSaturate ? numerics::Codec<kTo>::store_sat(x) : numerics::Codec<kTo>::store_nonsat(x);
}
template <DType kFrom, DType kTo, bool kSaturate>
MP_ISA_FUNCTION void widen_lookup(const void* source, int64_t n, void* numbers, bool stream) {
    static constexpr auto kLower = make_128<uint8_t>(
        [](int i) { return static_cast<uint8_t>(widened_fp8<kFrom, kTo, kSaturate>(i)); });
    static constexpr auto kUpper = make_128<uint8_t>(
        [](int i) { return static_cast<uint8_t>(widened_fp8<kFrom, kTo, kSaturate>(i) >> 8); });
    const ByteTable lower = load_table(kLower.values);
    const ByteTable upper = load_table(kUpper.values);
    const __m512i sign = held_bytes(0x80);
    const __m512i joined = held(pair_numbers(0)); // lower and upper bytes of numbers 0 to 31
    const __m512i joined_rest = held(pair_numbers(32));
    const char* from = static_cast<const char*>(source);
    char* to = static_cast<char*>(numbers);
    const bool around = stream && bytes_to_line(to) == 0;
    for (int64_t i = 0; i < n; i += 64) {
        prefetch_ahead(from + i, 64);
        const __mmask64 lanes = n - i >= 64 ? kAllBytes : (__mmask64{1} << (n - i)) - 1U;
        const __m512i x = _mm512_maskz_loadu_epi8(lanes, from + i);
        const __m512i low = look_up(lower, x);
        const __m512i high = _mm512_ternarylogic_epi32(look_up(upper, x), x, sign, 0xF8);
        const __m512i first = _mm512_permutex2var_epi8(low, joined, high);
        const __m512i second = _mm512_permutex2var_epi8(low, joined_rest, high);
        if (lanes != kAllBytes) {
            _mm512_mask_storeu_epi16(to + 2 * i, static_cast<__mmask32>(lanes), first);
            _mm512_mask_storeu_epi16(to + 2 * i + 64, static_cast<__mmask32>(lanes >> 32), second);
        } else if (around) {
            _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 2 * i), first);
            _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 2 * i + 64), second);
        } else {
            _mm512_storeu_si512(to + 2 * i, first);
            _mm512_storeu_si512(to + 2 * i + 64, second);
        }
    }
}
template <DType kTo>
MP_ISA_INLINE bool widen_lookup_to(DType from, const void* source, int64_t n, void* numbers,
                                   bool saturate, bool stream) {
    if (from == DType::fp8_e4m3) { // none is too large
        widen_lookup<DType::fp8_e4m3, kTo, true>(source, n, numbers, stream);
    } else if (from == DType::fp8_e5m2 && saturate) {
        widen_lookup<DType::fp8_e5m2, kTo, true>(source, n, numbers, stream);
    } else if (from == DType::fp8_e5m2) {
        widen_lookup<DType::fp8_e5m2, kTo, false>(source, n, numbers, stream);
    } else {
        return false;
    }
    return true;
}

template <DType kTo>
MP_ISA_INLINE bool cast_lookup_to(DType from, const void* source, int64_t n, void* codes,
                                  bool saturate, bool stream) {
    constexpr DType kOther = kTo == DType::fp8_e4m3 ? DType::fp8_e5m2 : DType::fp8_e4m3;
    switch (from) {
    case DType::fp32:
        encode_lookup<DType::fp32, kTo>(source, n, codes, saturate, stream);
        return true;
    case DType::bf16:
        encode_lookup<DType::bf16, kTo>(source, n, codes, saturate, stream);
        return true;
    case DType::fp16:
        encode_fp16_lookup<kTo>(source, n, codes, saturate, stream);
        return true;
    case kOther:
        if (saturate) {
            recode_lookup<kOther, true>(source, n, codes, stream);
        } else {
            recode_lookup<kOther, false>(source, n, codes, stream);
        }
        return true;
    default:
        return false;
    }
}

// False where another way is to be taken.
MP_ISA_INLINE bool cast_lookup(const CastJob& job, bool stream) {
    const CastDesc& op = *job.op;
    const DType from = op.source.dtype;
    const DType to = op.destination.dtype;
    const void* source = element_address(op.source.data, from, job.start);
    void* into = element_address(op.destination.data, to, job.start);
    if (op.rounding.stochastic) {
        return false;
    }
    switch (to) {
    case DType::fp8_e4m3:
        return cast_lookup_to<DType::fp8_e4m3>(from, source, job.count, into, op.saturate, stream);
    case DType::fp8_e5m2:
        return cast_lookup_to<DType::fp8_e5m2>(from, source, job.count, into, op.saturate, stream);
    case DType::bf16:
        return widen_lookup_to<DType::bf16>(from, source, job.count, into, op.saturate, stream);
    case DType::fp16:
        return widen_lookup_to<DType::fp16>(from, source, job.count, into, op.saturate, stream);
    default:
        return false;
    }
}

#else

MP_ISA_INLINE bool cast_lookup(const CastJob&, bool) { return false; }

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
