// SPDX-License-Identifier: Apache-2.0
// A tile of a state that is kept in blocks (numerics/block_state.hpp) to fp32 and back. A tile has whole blocks, so
// their scales follow from the tile alone.
#pragma once

#include "device/ops.hpp"
#include "device/update_scaling.hpp"
#include "host/kernels/amax.hpp"
#include "host/kernels/block_vector.hpp"
#include "host/kernels/companded_tile.hpp"
#include "host/kernels/dynamic_vector.hpp"
#include "host/kernels/tile.hpp"
#include "numerics/block_state.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

static_assert(kTile % kLargestBlock == 0);

template <Coding kCoding, bool kSigned> struct DynamicVector : Dynamic8Vector<kSigned> {};
template <bool kSigned>
struct DynamicVector<Coding::dynamic4, kSigned> : Dynamic4Vector<kSigned> {};

// What is left of 8-bit codes after whole vectors, as one more of them; false where there are none. Not inlined: beside them
// the loops over whole blocks were a third slower.
inline constexpr int kVectorCodes = 64;
template <bool kSigned>
MP_ISA_FUNCTION bool decode_rest(const uint8_t* codes, float scale, float* values, int n) {
    alignas(64) uint8_t padded[kVectorCodes] = {};
    alignas(64) float wide[kVectorCodes];
    const auto count = static_cast<std::size_t>(n);
    __builtin_memcpy(padded, codes, count);
    if (Dynamic8Vector<kSigned>::decode(padded, scale, wide, kVectorCodes) == 0) {
        return false;
    }
    __builtin_memcpy(values, wide, count * sizeof(float));
    return true;
}
template <bool kSigned>
MP_ISA_FUNCTION bool encode_rest(const float* values, float scale, uint8_t* codes, int n) {
    alignas(64) float padded[kVectorCodes] = {};
    alignas(64) uint8_t found[kVectorCodes];
    const auto count = static_cast<std::size_t>(n);
    __builtin_memcpy(padded, values, count * sizeof(float));
    if (Dynamic8Vector<kSigned>::encode(padded, scale, found, kVectorCodes) == 0) {
        return false;
    }
    __builtin_memcpy(codes, found, count);
    return true;
}

template <Coding kCoding, bool kSigned>
MP_ISA_INLINE void decode_dynamic(const uint8_t* codes, float scale, float* values, int n) {
    int i = DynamicVector<kCoding, kSigned>::decode(codes, scale, values, n);
    if constexpr (kCoding == Coding::dynamic8) {
        if (i < n && n - i <= kVectorCodes &&
            decode_rest<kSigned>(codes + i, scale, values + i, n - i)) {
            return;
        }
    }
    for (; i < n; ++i) {
        const int32_t code = numerics::load_block_code(kCoding, codes, i);
        values[i] = numerics::BlockCodec<kCoding>::value(kSigned, code, scale);
    }
}

// numerics::nearest_code of a map of 16 values: vectors compare faster than they look up.
template <bool kSigned> MP_ISA_INLINE int32_t count_thresholds(float x) {
    const numerics::DynamicMap<16>& map = kSigned ? numerics::kSigned4Map : numerics::kLinear4Map;
    int32_t code = 0;
#pragma GCC unroll 16
    for (int i = 1; i < 16; ++i) {
        code += x >= map.threshold[i] ? 1 : 0;
    }
    return code;
}

// The codes of one block, one a byte at first: the search is the same for all elements.
template <Coding kCoding, bool kSigned>
MP_ISA_INLINE void encode_dynamic(const float* values, float scale, uint8_t* codes, int n) {
    const int done = DynamicVector<kCoding, kSigned>::encode(values, scale, codes, n);
    values += done;
    codes += kCoding == Coding::dynamic8 ? done : done / 2;
    n -= done;
    if constexpr (kCoding == Coding::dynamic8) {
        if (n > 0 && n <= kVectorCodes && encode_rest<kSigned>(values, scale, codes, n)) {
            return;
        }
    }
    int32_t found[kTile];
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        if constexpr (kCoding == Coding::dynamic8) {
            const numerics::CodeTable& table =
                kSigned ? numerics::kSigned8Table : numerics::kUnsigned8Table;
            const float x = values[i];
            const int32_t code = numerics::nearest_code_by_table<kSigned>(table, x / scale);
            found[i] = !kSigned && code == 0 && x > 0.0F ? 1 : code;
        } else {
            found[i] = count_thresholds<kSigned>(values[i] / scale);
        }
    }
    if constexpr (kCoding == Coding::dynamic8) {
        for (int i = 0; i < n; ++i) {
            codes[i] = static_cast<uint8_t>(found[i]);
        }
    } else {
        for (int i = 0; i < n; i += 2) {
            const int32_t low = i + 1 < n ? found[i + 1] : 0;
            codes[i / 2] = static_cast<uint8_t>(found[i] << 4 | low);
        }
    }
}

template <Coding kCoding>
inline constexpr bool kIsFp8 = block_layout(kCoding).codes == DType::fp8_e4m3;

// One block.
template <Coding kCoding, bool kSigned>
MP_ISA_FUNCTION void load_block(const uint8_t* codes, float scale, float* values, int n) {
    if constexpr (kIsFp8<kCoding>) {
        widen_scaled_tile(DType::fp8_e4m3, codes, scale, values, n);
    } else {
        decode_dynamic<kCoding, kSigned>(codes, scale, values, n);
    }
}

// To nearest. Overwrites the values.
template <Coding kCoding, bool kSigned>
MP_ISA_FUNCTION void store_block(float* values, float divisor, uint8_t* codes, int n) {
    if constexpr (kIsFp8<kCoding>) {
        const int done = encode_e4m3_quotients<kSigned>(values, divisor, codes, n);
        MP_ISA_INDEPENDENT
        for (int i = done; i < n; ++i) {
            values[i] = numerics::e4m3_quotient(kSigned, values[i], divisor);
        }
        narrow_tile<numerics::Narrowing::nearest>(DType::fp8_e4m3, values + done, codes + done,
                                                  n - done, nullptr);
    } else {
        encode_dynamic<kCoding, kSigned>(values, divisor, codes, n);
    }
}

// Whose codes in blocks these are.
template <Coding kCoding, bool kSigned> struct BlockTile {
    static constexpr auto kSize = static_cast<int>(block_size(kCoding));
    static constexpr DType kCodes = block_layout(kCoding).codes;

    static MP_ISA_INLINE uint8_t* codes_of(const StepArray& a, int64_t element) {
        return static_cast<uint8_t*>(a.data) + code_bytes(kCoding, kCodes, element);
    }
    static MP_ISA_INLINE numerics::MomentScale renew(const StepArray& a, int64_t element,
                                                     uint32_t amax) {
        const numerics::MomentScale scale =
            numerics::BlockCodec<kCoding>::scales(kSigned, numerics::float_from_bits(amax));
        numerics::store_block_scale(kCoding, a.scale_inv, element / kSize, scale.stored);
        return scale;
    }

    static MP_ISA_INLINE void load(const StepArray& a, int64_t element, float* values, int n) {
        for (int first = 0; first < n; first += kSize) {
            const int64_t at = element + first;
            load_block<kCoding, kSigned>(
                codes_of(a, at), numerics::load_block_scale(kCoding, a.scale_inv, at / kSize),
                values + first, min_int(n - first, kSize));
        }
    }

    // One block, whose largest magnitude is known. Overwrites the values.
    static MP_ISA_INLINE void store_one(const StepArray& a, int64_t element, float* values, int n,
                                        uint32_t amax) {
        const numerics::MomentScale scale = renew(a, element, amax);
        store_block<kCoding, kSigned>(values, scale.divisor, codes_of(a, element), n);
    }

    // Overwrites the values. `bits` null: to nearest; codes of a map have no other way.
    static MP_ISA_INLINE void store(const StepArray& a, int64_t element, float* values, int n,
                                    const TileBits* bits) {
        for (int first = 0; first < n; first += kSize) {
            const int count = min_int(n - first, kSize);
            float* block = values + first;
            const uint32_t amax = amax_as<DType::fp32>(block, count);
            if constexpr (kIsFp8<kCoding>) {
                if (bits != nullptr) {
                    quotients(block, renew(a, element + first, amax).divisor, count);
                    continue;
                }
            }
            store_one(a, element + first, block, count, amax);
        }
        if constexpr (kIsFp8<kCoding>) {
            if (bits != nullptr) { // which are for the whole tile
                narrow_tile<numerics::Narrowing::stochastic>(kCodes, values, codes_of(a, element),
                                                             n, bits);
            }
        }
    }

    static MP_ISA_INLINE void quotients(float* values, float divisor, int n) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            values[i] =
                code_value(kCodes, numerics::e4m3_quotient(kSigned, values[i], divisor), 1.0F);
        }
    }
};

// To nearest only.
template <bool kSigned> struct BlockTile<Coding::companded8, kSigned> {
    static MP_ISA_INLINE void load(const StepArray& a, int64_t element, float* values, int n) {
        CompandedTile<kSigned>::load(a, element, values, n);
    }
    static MP_ISA_INLINE void store(const StepArray& a, int64_t element, float* values, int n,
                                    const TileBits* /*bits*/) {
        CompandedTile<kSigned>::store(a, element, values, n);
    }
};

} // namespace mp::backends::host::MP_ISA_NAMESPACE
