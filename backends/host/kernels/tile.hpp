// SPDX-License-Identifier: Apache-2.0
// A tile of elements to fp32 and back. The dtype is chosen once a tile, so the loops have none
// inside, and the compiler vectorizes them where convert_vector.hpp has nothing better.
#pragma once

#include "array/tensor_ref.hpp"
#include "host/kernels/base.hpp"
#include "host/kernels/bf16_pair.hpp"
#include "host/kernels/convert_vector.hpp"
#include "host/kernels/fp8_vector.hpp"
#include "numerics/rounding.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Random bits for a tile: `high` alone gives 16 bits an element, both together 32.
struct TileBits {
    alignas(64) uint16_t high[kTile];
    alignas(64) uint16_t low[kTile];
};

template <class Codec, numerics::Narrowing kRounding>
MP_ISA_INLINE typename Codec::storage round_one(float x, uint32_t bits) {
    if constexpr (kRounding == numerics::Narrowing::stochastic) {
        return Codec::store_sr(x, bits);
    } else if constexpr (kRounding == numerics::Narrowing::stochastic_nonsat) {
        return Codec::store_sr_nonsat(x, bits);
    } else if constexpr (kRounding == numerics::Narrowing::saturating) {
        return Codec::store_sat(x);
    } else {
        return Codec::store_nonsat(x);
    }
}

// The lower half is not even read where the format needs 16 bits only.
template <DType kDType> MP_ISA_INLINE uint32_t random_of(const TileBits& bits, int i) {
    const uint32_t high = static_cast<uint32_t>(bits.high[i]) << 16;
    return kDType == DType::bf16 ? high : (high | bits.low[i]);
}

template <DType kDType>
MP_ISA_INLINE int widen_vector(const void* source, FloatInMemory* values, int n) {
    if constexpr (kDType == DType::fp16) {
        return widen_fp16_vector(source, values, n);
    } else if constexpr (kDType == DType::fp8_e4m3) {
        return widen_e4m3_vector(source, 1.0F, values, n);
    } else if constexpr (kDType == DType::fp8_e5m2) {
        return widen_e5m2_vector(source, values, n);
    } else {
        return 0;
    }
}

template <DType kDType, numerics::Narrowing kRounding>
MP_ISA_INLINE int narrow_vector(const FloatInMemory* values, void* destination, int n) {
    constexpr bool kSaturate = kRounding == numerics::Narrowing::saturating;
    if constexpr (numerics::is_stochastic(kRounding)) {
        return 0;
    } else if constexpr (kDType == DType::fp16) {
        return narrow_fp16_vector<kSaturate>(values, destination, n);
    } else if constexpr (kDType == DType::fp8_e4m3 || kDType == DType::fp8_e5m2) {
        return encode_fp8_vector<kDType, kSaturate>(values, destination, n);
    } else {
        return 0;
    }
}

template <DType kDType>
MP_ISA_INLINE void widen_tile_as(const void* source, FloatInMemory* values, int n) {
    using Memory = typename InMemory<kDType>::type;
    const Memory* from = static_cast<const Memory*>(source);
    int i = widen_vector<kDType>(source, values, n);
    MP_ISA_INDEPENDENT
    for (; i < n; ++i) {
        values[i] = numerics::Codec<kDType>::load(from[i]);
    }
}

template <DType kDType, numerics::Narrowing kRounding>
MP_ISA_INLINE void narrow_tile_as(const FloatInMemory* values, void* destination, int n,
                                  const TileBits* bits) {
    using Memory = typename InMemory<kDType>::type;
    Memory* to = static_cast<Memory*>(destination);
    int i = narrow_vector<kDType, kRounding>(values, destination, n);
    MP_ISA_INDEPENDENT
    for (; i < n; ++i) {
        if constexpr (numerics::is_stochastic(kRounding)) {
            to[i] = round_one<numerics::Codec<kDType>, kRounding>(values[i],
                                                                  random_of<kDType>(*bits, i));
        } else if constexpr (kDType == DType::bf16 && kRounding == numerics::Narrowing::nearest) {
            to[i] = static_cast<uint16_t>(bf16_pattern(values[i]) >> 16);
        } else {
            to[i] = round_one<numerics::Codec<kDType>, kRounding>(values[i], 0);
        }
    }
}

// n elements to fp32. Only floating types come here: supports() sees to that.
MP_ISA_FUNCTION inline void widen_tile(DType dtype, const void* source, FloatInMemory* values,
                                       int n) {
    visit_floating(dtype,
                   [&](auto type) MP_INLINED { widen_tile_as<type.value>(source, values, n); });
}

// n elements from `first` on as fp32: where they are, or in `tile`.
MP_ISA_INLINE const FloatInMemory* as_floats(const TensorRef& array, int64_t first, float* tile,
                                             int n) {
    const void* source = element_address(static_cast<const void*>(array.data), array.dtype, first);
    if (array.dtype == DType::fp32) {
        return static_cast<const FloatInMemory*>(source);
    }
    widen_tile(array.dtype, source, tile, n);
    return tile;
}

// n elements to fp32, times a factor.
MP_ISA_INLINE void widen_scaled_tile(DType dtype, const void* source, float factor,
                                     FloatInMemory* values, int n) {
    int i = dtype == DType::fp8_e4m3 ? widen_e4m3_vector(source, factor, values, n) : 0;
    if (i < n) {
        widen_tile(dtype, element_address(source, dtype, i), values + i, n - i);
    }
    MP_ISA_INDEPENDENT
    for (; i < n; ++i) {
        values[i] *= factor;
    }
}

// n elements from fp32; `bits` are read where rounding is stochastic, and then n <= kTile.
template <numerics::Narrowing kRounding>
MP_ISA_FUNCTION inline void narrow_tile(DType dtype, const FloatInMemory* values, void* destination,
                                        int n, const TileBits* bits) {
    visit_floating(dtype, [&](auto type) MP_INLINED {
        narrow_tile_as<type.value, kRounding>(values, destination, n, bits);
    });
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
