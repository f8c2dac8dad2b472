// SPDX-License-Identifier: Apache-2.0
// A tile of a state that is kept in blocks (numerics/block_state.hpp) to fp32 and back. A tile is
// one block of 256 elements or two of 128, so a block's scale follows from the tile alone.
#pragma once

#include "kernels/chunk/amax.hpp"
#include "kernels/chunk/block_vector.hpp"
#include "kernels/chunk/dynamic_vector.hpp"
#include "kernels/chunk/tile.hpp"
#include "kernels/update_scaling.hpp"
#include "numerics/block_state.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

static_assert(kTile % block_size(Coding::block) == 0 && kTile % block_size(Coding::dynamic4) == 0);

// Whose codes these are.
struct StateArray {
    Coding coding;
    bool is_signed;
    DType dtype;
    void* data;
    float* scales;
};

template <Coding kCoding, bool kSigned> struct DynamicVector : Dynamic8Vector<kSigned> {};
template <bool kSigned>
struct DynamicVector<Coding::dynamic4, kSigned> : Dynamic4Vector<kSigned> {};

template <Coding kCoding, bool kSigned>
MP_CHUNK_INLINE void decode_dynamic(const uint8_t* codes, float scale, float* values, int n) {
    for (int i = DynamicVector<kCoding, kSigned>::decode(codes, scale, values, n); i < n; ++i) {
        int32_t code = 0;
        if constexpr (kCoding == Coding::dynamic8) {
            code = codes[i];
        } else {
            code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 0xf;
        }
        values[i] = numerics::dynamic_value(kCoding, kSigned, code, scale);
    }
}

// numerics::nearest_code of a map of 16 values: vectors compare faster than they look up.
template <bool kSigned> MP_CHUNK_INLINE int32_t count_thresholds(float x) {
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
MP_CHUNK_INLINE void encode_dynamic(const float* values, float scale, uint8_t* codes, int n) {
    const int done = DynamicVector<kCoding, kSigned>::encode(values, scale, codes, n);
    values += done;
    codes += kCoding == Coding::dynamic8 ? done : done / 2;
    n -= done;
    int32_t found[kTile];
    MP_CHUNK_INDEPENDENT
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

template <Coding kCoding, bool kSigned>
MP_CHUNK_FUNCTION void load_dynamic_block(const uint8_t* codes, float scale, float* values, int n) {
    decode_dynamic<kCoding, kSigned>(codes, scale, values, n);
}
template <Coding kCoding, bool kSigned>
MP_CHUNK_FUNCTION void store_dynamic_block(const float* values, float scale, uint8_t* codes,
                                           int n) {
    encode_dynamic<kCoding, kSigned>(values, scale, codes, n);
}

// Calls body(first element of the tile, elements, codes, scale) for each block of a tile.
template <class Body>
MP_CHUNK_INLINE void for_each_block(const StateArray& a, int64_t element, int n, const Body& body) {
    const auto size = static_cast<int>(block_size(a.coding));
    unsigned char* bytes =
        static_cast<unsigned char*>(a.data) + code_bytes(a.coding, a.dtype, element);
    float* scales = a.scales + element / size;
    for (int first = 0; first < n; first += size) {
        body(first, min_int(n - first, size), bytes + code_bytes(a.coding, a.dtype, first),
             scales++);
    }
}

MP_CHUNK_INLINE void load_blocks(const StateArray& a, int64_t element, float* values, int n) {
    for_each_block(
        a, element, n, [&](int first, int count, const uint8_t* codes, const float* scale) {
            float* to = values + first;
            if (a.coding == Coding::block) {
                widen_scaled_tile(a.dtype, codes, *scale, to, count);
            } else if (a.coding == Coding::dynamic8) {
                a.is_signed ? load_dynamic_block<Coding::dynamic8, true>(codes, *scale, to, count)
                            : load_dynamic_block<Coding::dynamic8, false>(codes, *scale, to, count);
            } else {
                a.is_signed ? load_dynamic_block<Coding::dynamic4, true>(codes, *scale, to, count)
                            : load_dynamic_block<Coding::dynamic4, false>(codes, *scale, to, count);
            }
        });
}

MP_CHUNK_INLINE void store_e4m3_block(const StateArray& a, float* values, float scale, void* codes,
                                      int n, const TileBits* bits) {
    if (bits == nullptr) {
        const int done = a.is_signed ? encode_e4m3_quotients<true>(values, scale, codes, n)
                                     : encode_e4m3_quotients<false>(values, scale, codes, n);
        values += done;
        codes = static_cast<unsigned char*>(codes) + done;
        n -= done;
    }
    MP_CHUNK_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        values[i] =
            code_value(a.dtype, numerics::e4m3_quotient(a.is_signed, values[i], scale), 1.0F);
    }
    if (bits != nullptr) {
        narrow_tile<Rounding::stochastic>(a.dtype, values, codes, n, bits);
    } else {
        narrow_tile<Rounding::nearest>(a.dtype, values, codes, n, nullptr);
    }
}

// One block, whose largest magnitude is known. Overwrites the values. `bits` null: to nearest; they are for fp8 only,
// whose block is the tile.
MP_CHUNK_INLINE void store_block(const StateArray& a, float* from, uint32_t amax, uint8_t* codes,
                                 float* scale, int count, const TileBits* bits) {
    *scale = numerics::moment_scale(a.coding, numerics::float_from_bits(amax));
    if (a.coding == Coding::block) {
        store_e4m3_block(a, from, *scale, codes, count, bits);
    } else if (a.coding == Coding::dynamic8) {
        a.is_signed ? store_dynamic_block<Coding::dynamic8, true>(from, *scale, codes, count)
                    : store_dynamic_block<Coding::dynamic8, false>(from, *scale, codes, count);
    } else {
        a.is_signed ? store_dynamic_block<Coding::dynamic4, true>(from, *scale, codes, count)
                    : store_dynamic_block<Coding::dynamic4, false>(from, *scale, codes, count);
    }
}

MP_CHUNK_INLINE void store_blocks(const StateArray& a, int64_t element, float* values, int n,
                                  const TileBits* bits) {
    for_each_block(a, element, n, [&](int first, int count, uint8_t* codes, float* scale) {
        float* from = values + first;
        store_block(a, from, amax_as<DType::fp32>(from, count), codes, scale, count, bits);
    });
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
