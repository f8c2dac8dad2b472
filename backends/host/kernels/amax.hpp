// SPDX-License-Identifier: Apache-2.0
// amax of one chunk: the largest bit pattern of |x| as fp32. The codes of the narrow formats are
// ordered as their values are, so the maximum is taken over codes and one of them is widened at the
// end.
#pragma once

#include "array/tensor_ref.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Codes as integers, signed wherever there is room, because SSE2 compares those.
template <int kBytes> struct MagnitudeCode;
template <> struct MagnitudeCode<4> {
    using Code = int32_t;
    typedef int32_t Memory __attribute__((aligned(1), may_alias));
};
template <> struct MagnitudeCode<2> {
    using Code = int16_t;
    typedef int16_t Memory __attribute__((aligned(1), may_alias));
};
template <> struct MagnitudeCode<1> {
    using Code = uint8_t;
    typedef uint8_t Memory __attribute__((may_alias));
};

// of(code): ordered as the fp32 pattern of |x| is, NaN included. What becomes quiet when it is widened must be made quiet
// first; fp32 and bf16 are widened by moving their bits.
template <DType kDType> struct Magnitude : MagnitudeCode<static_cast<int>(dtype_size(kDType))> {
    using Code = typename MagnitudeCode<static_cast<int>(dtype_size(kDType))>::Code;
    static constexpr bool kBecomesQuiet = kDType != DType::fp32 && kDType != DType::bf16;

    static MP_ISA_INLINE Code of(Code code) {
        const auto magnitude = static_cast<Code>(
            code & static_cast<Code>((uint32_t{1} << (8 * sizeof(Code) - 1)) - 1));
        if constexpr (kBecomesQuiet) {
            using Codec = numerics::Codec<kDType>;
            // Where there is no infinity both are NaN, and nothing lies above them.
            constexpr uint32_t kInfinity =
                Codec::store_nonsat(numerics::float_from_bits(numerics::kFloatInfinity));
            constexpr uint32_t kNan =
                Codec::store_nonsat(numerics::float_from_bits(numerics::kFloatQuietNan));
            const auto quiet = static_cast<Code>(static_cast<uint32_t>(magnitude) | kNan);
            return magnitude > static_cast<Code>(kInfinity) ? quiet : magnitude;
        }
        return magnitude;
    }
};

template <DType kDType> MP_ISA_FUNCTION uint32_t amax_as(const void* data, int64_t count) {
    using M = Magnitude<kDType>;
    using Memory = typename M::Memory;
    using Code = typename M::Code;
    const Memory* from = static_cast<const Memory*>(data);
    Code largest = 0;
    for (int64_t i = 0; i < count; ++i) {
        const Code magnitude = M::of(from[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    if constexpr (kDType == DType::fp32) {
        return static_cast<uint32_t>(largest);
    } else {
        using Codec = numerics::Codec<kDType>;
        const auto code = static_cast<typename Codec::storage>(largest);
        return numerics::bits_from_float(Codec::load(code));
    }
}

inline uint32_t amax_chunk(const TensorRef& source, int64_t start, int64_t count) {
    const void* data = element_address(source.data, source.dtype, start);
    uint32_t largest = 0;
    visit_floating(source.dtype,
                   [&](auto type) MP_INLINED { largest = amax_as<type.value>(data, count); });
    return largest;
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
