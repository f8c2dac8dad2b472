// SPDX-License-Identifier: Apache-2.0
// One element at a time, for accelerators: every thread of a warp sees the same dtype, so the
// switch costs little there. Unlike the chunk bodies, this needs arrays aligned to their element
// size.
#pragma once

#include <Kokkos_Core.hpp>

#include "interface/ops.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"

namespace mp::kernels {

template <DType kDType> KOKKOS_INLINE_FUNCTION float load_as(const void* data, int64_t i) {
    using Codec = numerics::Codec<kDType>;
    return Codec::load(static_cast<const typename Codec::storage*>(data)[i]);
}

// NaN for a type that is none of these, so that the mistake shows.
KOKKOS_INLINE_FUNCTION float load_element(DType dtype, const void* data, int64_t i) {
    switch (dtype) {
    case DType::fp32:
        return load_as<DType::fp32>(data, i);
    case DType::fp16:
        return load_as<DType::fp16>(data, i);
    case DType::bf16:
        return load_as<DType::bf16>(data, i);
    case DType::fp8_e4m3:
        return load_as<DType::fp8_e4m3>(data, i);
    case DType::fp8_e5m2:
        return load_as<DType::fp8_e5m2>(data, i);
    default:
        return numerics::float_from_bits(numerics::kFloatQuietNan);
    }
}

// How a value is rounded.
struct ElementRounding {
    bool saturate = false;
    bool stochastic = false;
    bool overflows = false; // stochastic rounding of fp8 does not saturate
    uint32_t bits = 0;
};

template <DType kDType>
KOKKOS_INLINE_FUNCTION void store_as(void* data, int64_t i, float x,
                                     const ElementRounding& rounding) {
    using Codec = numerics::Codec<kDType>;
    auto* to = static_cast<typename Codec::storage*>(data);
    if (rounding.stochastic) {
        to[i] = rounding.overflows ? Codec::store_sr_nonsat(x, rounding.bits)
                                   : Codec::store_sr(x, rounding.bits);
    } else {
        to[i] = rounding.saturate ? Codec::store_sat(x) : Codec::store_nonsat(x);
    }
}

KOKKOS_INLINE_FUNCTION void store_element(DType dtype, void* data, int64_t i, float x,
                                          const ElementRounding& rounding = {}) {
    switch (dtype) {
    case DType::fp32:
        return store_as<DType::fp32>(data, i, x, rounding);
    case DType::fp16:
        return store_as<DType::fp16>(data, i, x, rounding);
    case DType::bf16:
        return store_as<DType::bf16>(data, i, x, rounding);
    case DType::fp8_e4m3:
        return store_as<DType::fp8_e4m3>(data, i, x, rounding);
    case DType::fp8_e5m2:
        return store_as<DType::fp8_e5m2>(data, i, x, rounding);
    default:
        return;
    }
}

// Stochastic where asked for and where anything is rounded.
KOKKOS_INLINE_FUNCTION ElementRounding element_rounding(DType dtype, bool stochastic,
                                                        const numerics::SrKey& key,
                                                        numerics::Purpose purpose, int64_t i) {
    ElementRounding rounding;
    if (stochastic && dtype != DType::fp32) {
        const auto element = static_cast<uint64_t>(i);
        rounding.stochastic = true;
        rounding.bits = dtype == DType::bf16 ? numerics::sr_bits16_at(key, purpose, element) << 16
                                             : numerics::sr_bits32_at(key, purpose, element);
    }
    return rounding;
}

} // namespace mp::kernels
