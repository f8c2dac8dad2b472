// SPDX-License-Identifier: Apache-2.0
// Finite elements times a factor to codes where there are vectors for it: quantize_wide.hpp, quantize_eights.hpp. Other targets
// take the loops of quantize_tile.hpp.
#pragma once

#include "host/kernels/quantize_eights.hpp"
#include "host/kernels/quantize_wide.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

#if defined(MP_ISA_QUANTIZE_VECTOR)

inline constexpr bool kHasQuantizeVector = true;

template <DType kFrom, DType kTo, Gather kGather>
MP_ISA_INLINE bool quantize_as(const char* from, int n, const float* factor, int64_t width,
                               int64_t before, char* to, numerics::QuantStats& stats) {
    VectorStats found = nothing_found();
    quantize_blocks<kFrom, kTo, kGather>(from, n, factor, width, before, to, found);
    if constexpr (kGather != Gather::nothing) {
        const uint32_t largest = amax_of<kFrom>(found);
        if (largest >= numerics::kFloatInfinity) {
            return false;
        }
        raise(stats.amax_bits, largest);
    }
    if constexpr (kGather == Gather::counts) {
        stats.elements += n;
        stats.saturated += saturated_of(found);
        stats.underflowed += underflowed_of(found);
    }
    return true;
}

template <DType kFrom, DType kTo>
MP_ISA_INLINE bool quantize_gathering(Gather gather, const char* from, int n, const float* factor,
                                      int64_t width, int64_t before, char* to,
                                      numerics::QuantStats& stats) {
    switch (gather) {
    case Gather::nothing:
        return quantize_as<kFrom, kTo, Gather::nothing>(from, n, factor, width, before, to, stats);
    case Gather::amax:
        return quantize_as<kFrom, kTo, Gather::amax>(from, n, factor, width, before, to, stats);
    default:
        return quantize_as<kFrom, kTo, Gather::counts>(from, n, factor, width, before, to, stats);
    }
}

template <DType kFrom>
MP_ISA_INLINE bool quantize_from(DType to, Gather gather, const void* source, int n,
                                 const float* factor, int64_t width, int64_t before,
                                 unsigned char* codes, numerics::QuantStats& stats) {
    const char* at = static_cast<const char*>(source);
    char* out = reinterpret_cast<char*>(codes);
    switch (to) {
    case DType::fp8_e4m3:
        return quantize_gathering<kFrom, DType::fp8_e4m3>(gather, at, n, factor, width, before, out,
                                                          stats);
    case DType::fp8_e5m2:
        return quantize_gathering<kFrom, DType::fp8_e5m2>(gather, at, n, factor, width, before, out,
                                                          stats);
    case DType::fp4_e2m1:
        return quantize_gathering<kFrom, DType::fp4_e2m1>(gather, at, n, factor, width, before, out,
                                                          stats);
    default:
        return false;
    }
}

// To E4M3, E5M2 or, a byte each, E2M1. False, with nothing gathered, where something was not finite: what was written then
// means nothing. Who gathers nothing knows that all is finite.
MP_ISA_INLINE bool quantize_vector(DType from, DType to, Gather gather, const void* source, int n,
                                   const float* factor, int64_t width, int64_t before,
                                   unsigned char* codes, numerics::QuantStats& stats) {
    switch (from) {
    case DType::bf16:
        return quantize_from<DType::bf16>(to, gather, source, n, factor, width, before, codes,
                                          stats);
    case DType::fp16:
        return quantize_from<DType::fp16>(to, gather, source, n, factor, width, before, codes,
                                          stats);
    default:
        return quantize_from<DType::fp32>(to, gather, source, n, factor, width, before, codes,
                                          stats);
    }
}

#else

inline constexpr bool kHasQuantizeVector = false;

MP_ISA_INLINE bool quantize_vector(DType, DType, Gather, const void*, int, const float*, int64_t,
                                   int64_t, unsigned char*, numerics::QuantStats&) {
    return false;
}

#endif

#if !defined(MP_ISA_WIDE_WORDS)

MP_ISA_INLINE bool find_moves(DType, const float*, int, uint16_t*) { return false; }
MP_ISA_INLINE void move_columns(DType, const void*, const uint16_t*, int, unsigned char*) {}

#endif

} // namespace mp::backends::host::MP_ISA_NAMESPACE
