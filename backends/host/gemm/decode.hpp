// SPDX-License-Identifier: Apache-2.0
// fp8 codes to bf16 numbers, exactly: for products that read whole operands. Factors are powers of two that leave
// the results normal (may_fold()).
#pragma once

#include "host/gemm/lanes.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// kLanes codes as bf16, each by a factor of its own if there are any.
template <Kind kKind> MP_ISA_INLINE Halves decode_lanes(const void* codes, const float* factors) {
    Words words = load_codes<kKind>(codes);
    if (factors != nullptr) {
        Words factor;
        __builtin_memcpy(&factor, factors, sizeof(factor));
        words = multiply_words(words, factor);
    }
    return __builtin_convertvector(words >> 16, Halves);
}

template <Kind kKind> MP_ISA_FUNCTION void decode_as(const DecodeJob& job) {
    const auto* from = static_cast<const unsigned char*>(job.codes);
    auto* to = static_cast<unsigned char*>(job.out);
    int64_t i = 0;
    for (; i + kLanes <= job.count; i += kLanes) {
        const Halves halves =
            decode_lanes<kKind>(from + i, job.factors == nullptr ? nullptr : job.factors + i);
        __builtin_memcpy(to + 2 * i, &halves, sizeof(halves));
    }
    if (i < job.count) {
        const auto left = static_cast<std::size_t>(job.count - i);
        unsigned char codes[kLanes] = {};
        float factors[kLanes] = {};
        __builtin_memcpy(codes, from + i, left);
        if (job.factors != nullptr) {
            __builtin_memcpy(factors, job.factors + i, left * sizeof(float));
        }
        const Halves halves =
            decode_lanes<kKind>(codes, job.factors == nullptr ? nullptr : factors);
        __builtin_memcpy(to + 2 * i, &halves, 2 * left);
    }
}

MP_ISA_INLINE void decode_codes(const DecodeJob& job) {
    if (job.dtype == DType::fp8_e4m3) {
        decode_as<Kind::e4m3>(job);
    } else {
        decode_as<Kind::e5m2>(job);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
