// SPDX-License-Identifier: Apache-2.0
// Finite fp32, fp16 and bf16 times a factor to fp8 by byte look-ups, 64 at a time and to where the codes belong.
// bit-equal to numerics/quantize.hpp.
#pragma once

#include "host/kernels/lookup_encode.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// What mantissas of bf16 add to codes where they are multiplied, for each of the blocks that some rows share.
inline constexpr int kMaxTables = 64;
struct FactorTables {
    alignas(64) uint8_t bytes[kMaxTables][128];
};

// Columns of one row of a matrix, and the factors of its blocks.
struct LookupRow {
    const void* source;
    int64_t n;
    const float*
        factor; // of the block that holds the first column, of which `before` columns come earlier
    const uint8_t (*table)[128]; // of the same block; null where there are none
    int64_t width;               // of a block; 0: one for all
    int64_t before;
    void* codes;
    bool stream;         // around the caches, where the codes begin at a line
    int64_t ahead_bytes; // what is so far on is read next; 0: nothing to ask for
};

#if defined(MP_ISA_LOOKUP)

inline constexpr bool kHasQuantizeLookup = true;

template <DType kFrom, DType kTo, Gather kGather> class QuantizeBytes {
    static_assert(kGather != Gather::counts);
    using Encode = EncodeBytes<kTo>;
    static constexpr auto kSize = static_cast<int>(dtype_size(kFrom));
    // A table costs as much as so many products.
    static constexpr int64_t kTableRun = 512;
    static constexpr int kPiece = 64; // blocks of 32 elements whose bases fill a vector

    Encode encode_{Encode::Shape::kMaxFinite};
    MultiplyWords<kFrom> multiply_;
    __m512i base_ = held_bytes(Encode::kBase);
    LookupRow row_;
    __m512i largest_ = _mm512_setzero_si512();

    struct Pair {
        WideWords first;
        WideWords second;
    };
    MP_ISA_INLINE Pair load(const char* from, __mmask64 lanes) {
        const Pair x = {multiply_.load(from, static_cast<__mmask32>(lanes)),
                        multiply_.load(from + 32 * kSize, static_cast<__mmask32>(lanes >> 32))};
        if constexpr (kGather == Gather::amax) {
            gather_amax<kFrom>(x.first, largest_);
            gather_amax<kFrom>(x.second, largest_);
        }
        if (row_.ahead_bytes != 0) {
            prefetch_later(from + row_.ahead_bytes, 64 * kSize);
        }
        return x;
    }

    MP_ISA_INLINE __m512i multiplied(const Pair& x, __m512 first, __m512 second) const {
        const WordPair words = {multiply_.words(x.first, first), multiply_.words(x.second, second)};
        return encode_.codes_of(encode_.parts_of(words), base_);
    }

    template <class Codes>
    MP_ISA_INLINE void each(int64_t at, int64_t n, const Codes& codes_at) const {
        encode_each_64<kSize>(static_cast<const char*>(row_.source) + at * kSize, n,
                              static_cast<char*>(row_.codes) + at, row_.stream, codes_at);
    }

    // The products.
    MP_ISA_INLINE void run_products(int64_t at, int64_t n, float factor) {
        const __m512 by = _mm512_set1_ps(factor);
        const auto codes_at = [&](const char* from, __mmask64 lanes)
                                  MP_INLINED { return multiplied(load(from, lanes), by, by); };
        each(at, n, codes_at);
    }

    // bf16 with another exponent.
    MP_ISA_INLINE void run_moved(int64_t at, int64_t n, int base) {
        const __m512i bases = held_bytes(base);
        const auto codes_at = [&](const char* from, __mmask64 lanes) MP_INLINED {
            const Pair x = load(from, lanes);
            return encode_.codes_of(encode_.parts_of({x.first.codes, x.second.codes}), bases);
        };
        each(at, n, codes_at);
    }

    // bf16 by a table for this factor. Where a product is below the normal numbers, they all are computed.
    MP_ISA_INLINE void run_table(int64_t at, int64_t n, float factor, const ByteTable& table) {
        const __m512i base = held_bytes(Encode::base_for(factor));
        const __m512 by = _mm512_set1_ps(factor);
        const auto codes_at = [&](const char* from, __mmask64 lanes) MP_INLINED {
            const Pair x = load(from, lanes);
            const auto parts = encode_.parts_of({x.first.codes, x.second.codes});
            const __m512i number = encode_.number_of(parts, base);
            if (__builtin_expect(encode_.odd_lanes(number) != 0, 0)) {
                return multiplied(x, by, by);
            }
            return encode_.with_sign(encode_.magnitude_of(table, number, parts.mantissa), parts);
        };
        each(at, n, codes_at);
    }

    MP_ISA_INLINE void run(int64_t at, int64_t n, float factor, const uint8_t* table) {
        if constexpr (kFrom == DType::bf16) {
            const int base = Encode::base_for(factor);
            if (base != 0 && Encode::is_power(factor)) {
                return run_moved(at, n, base);
            }
            if (base != 0 && table != nullptr) {
                return run_table(at, n, factor, load_table(table));
            }
            if (base != 0 && n >= kTableRun) {
                return run_table(at, n, factor, encode_.table_for(factor));
            }
        }
        run_products(at, n, factor);
    }

    // Pairs of blocks of 32 elements.
    MP_ISA_INLINE void run_product_pairs(int64_t at, int64_t n, const float* factor) {
        const auto codes_at = [&](const char* from, __mmask64 lanes) MP_INLINED {
            const __m512 first = _mm512_set1_ps(factor[0]);
            const __m512 second = _mm512_set1_ps(factor[1]);
            factor += 2;
            return multiplied(load(from, lanes), first, second);
        };
        each(at, n, codes_at);
    }

    // Of bf16, whose exponents are moved; bases: of each block.
    MP_ISA_INLINE void run_moved_pairs(int64_t at, int64_t n, __m512i bases) {
        const __m512i two = held_bytes(2);
        __m512i place = _mm512_maskz_set1_epi8(kAllBytes << 32, 1); // 0 for the first 32, then 1
        const auto codes_at = [&](const char* from, __mmask64 lanes) MP_INLINED {
            const Pair x = load(from, lanes);
            const __m512i base = _mm512_permutexvar_epi8(place, bases);
            place = _mm512_add_epi8(place, two);
            return encode_.codes_of(encode_.parts_of({x.first.codes, x.second.codes}), base);
        };
        each(at, n, codes_at);
    }

    // False where a factor is no power of two, or one that is too large for it.
    static MP_ISA_INLINE bool find_bases(const float* factor, __m512i& bases) {
        const __m512i fraction = _mm512_set1_epi32(0x007fffff);
        const __m512i exponents = _mm512_set1_epi32(Encode::kBase + 126); // 1 and so on
        const __m512i one = _mm512_set1_epi32(1);
        __mmask16 are_open = 0xffff;
        __m128i quarters[4];
        for (int i = 0; i < 4; ++i) {
            const __m512i bits = _mm512_loadu_si512(factor + 16 * i);
            const __m512i above_one = _mm512_sub_epi32(_mm512_srli_epi32(bits, 23), one);
            are_open = _mm512_mask_testn_epi32_mask(are_open, bits, fraction);
            are_open = _mm512_mask_cmplt_epu32_mask(are_open, above_one, exponents);
            quarters[i] = _mm512_cvtepi32_epi8(_mm512_sub_epi32(exponents, above_one));
        }
        const __m512i half =
            _mm512_inserti32x4(_mm512_castsi128_si512(quarters[0]), quarters[1], 1);
        bases = _mm512_inserti32x4(_mm512_inserti32x4(half, quarters[2], 2), quarters[3], 3);
        return are_open == 0xffff;
    }

    // MX: whole blocks of 32 elements, the last of which may be cut.
    MP_ISA_INLINE void run_pairs() {
        for (int64_t done = 0; done < row_.n; done += 32 * kPiece) {
            const int n = min_int(row_.n - done, 32 * kPiece);
            alignas(64) float factor[kPiece];
            for (int i = 0; i < kPiece; i += 16) {
                _mm512_store_ps(factor + i, _mm512_set1_ps(1.0F)); // for what is not there
            }
            __builtin_memcpy(factor, row_.factor + done / 32,
                             static_cast<std::size_t>((n + 31) / 32) * sizeof(float));
            __m512i bases = {};
            if (kFrom == DType::bf16 && find_bases(factor, bases)) {
                run_moved_pairs(done, n, bases);
            } else {
                run_product_pairs(done, n, factor);
            }
        }
    }

    // Blocks one column wide: each element has a factor of its own.
    MP_ISA_INLINE void run_columns() {
        const float* factor = row_.factor;
        const auto codes_at = [&](const char* from, __mmask64 lanes) MP_INLINED {
            const Pair x = load(from, lanes);
            const auto half = static_cast<__mmask32>(lanes >> 32);
            const WordPair words = {
                multiply_.words_by_each(x.first, factor, static_cast<__mmask32>(lanes)),
                multiply_.words_by_each(x.second, factor + 32, half)};
            factor += 64;
            return encode_.codes_of(encode_.parts_of(words), base_);
        };
        each(0, row_.n, codes_at);
    }

  public:
    explicit MP_ISA_INLINE QuantizeBytes(const LookupRow& row) : row_(row) {}

    MP_ISA_INLINE void blocks() {
        if (row_.width == 1) {
            run_columns();
            return;
        }
        if (row_.width == 32 && row_.before == 0) {
            run_pairs();
            return;
        }
        const float* factor = row_.factor;
        const uint8_t(*table)[128] = row_.table;
        int64_t before = row_.before;
        for (int64_t done = 0; done < row_.n;) {
            const int64_t left = row_.n - done;
            const int64_t in_block = row_.width == 0 ? left : row_.width - before;
            const int64_t here = in_block < left ? in_block : left;
            run(done, here, *factor++, table != nullptr ? *table++ : nullptr);
            done += here;
            before = 0;
        }
    }

    MP_ISA_INLINE uint32_t amax() const { return gathered_amax<kFrom>(largest_); }
};

template <DType kTo>
MP_ISA_FUNCTION void make_tables_as(const float* factor, int blocks, FactorTables& tables) {
    const EncodeBytes<kTo> encode(Fp8Shape<kTo>::kMaxFinite);
    for (int i = 0; i < blocks; ++i) {
        const ByteTable table = encode.table_for(factor[i]);
        _mm512_store_si512(tables.bytes[i], table.lower);
        _mm512_store_si512(tables.bytes[i] + 64, table.upper);
    }
}
// To fp8.
MP_ISA_INLINE void make_tables(DType to, const float* factor, int blocks, FactorTables& tables) {
    if (to == DType::fp8_e4m3) {
        make_tables_as<DType::fp8_e4m3>(factor, blocks, tables);
    } else {
        make_tables_as<DType::fp8_e5m2>(factor, blocks, tables);
    }
}

template <DType kFrom, DType kTo, Gather kGather>
MP_ISA_FUNCTION bool quantize_row_as(const LookupRow& row, uint32_t& amax) {
    QuantizeBytes<kFrom, kTo, kGather> bytes(row);
    bytes.blocks();
    const uint32_t largest = kGather == Gather::amax ? bytes.amax() : 0;
    if (largest >= numerics::kFloatInfinity) {
        return false;
    }
    raise(amax, largest);
    return true;
}

template <DType kFrom, DType kTo>
MP_ISA_INLINE bool quantize_row_gathering(bool gather, const LookupRow& row, uint32_t& amax) {
    return gather ? quantize_row_as<kFrom, kTo, Gather::amax>(row, amax)
                  : quantize_row_as<kFrom, kTo, Gather::nothing>(row, amax);
}

template <DType kFrom>
MP_ISA_INLINE bool quantize_row_from(DType to, bool gather, const LookupRow& row, uint32_t& amax) {
    return to == DType::fp8_e4m3
               ? quantize_row_gathering<kFrom, DType::fp8_e4m3>(gather, row, amax)
               : quantize_row_gathering<kFrom, DType::fp8_e5m2>(gather, row, amax);
}

// False, with nothing gathered, where something was not finite: what was written then means nothing. Who does not
// gather the amax knows that all is finite.
MP_ISA_INLINE bool quantize_lookup(DType from, DType to, bool gather, const LookupRow& row,
                                   uint32_t& amax) {
    switch (from) {
    case DType::bf16:
        return quantize_row_from<DType::bf16>(to, gather, row, amax);
    case DType::fp16:
        return quantize_row_from<DType::fp16>(to, gather, row, amax);
    default:
        return quantize_row_from<DType::fp32>(to, gather, row, amax);
    }
}

#else

inline constexpr bool kHasQuantizeLookup = false;

MP_ISA_INLINE void make_tables(DType, const float*, int, FactorTables&) {}
MP_ISA_INLINE bool quantize_lookup(DType, DType, bool, const LookupRow&, uint32_t&) {
    return false;
}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
