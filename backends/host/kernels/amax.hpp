// SPDX-License-Identifier: Apache-2.0
// amax of one chunk: the largest bit pattern of |x| as fp32. The codes of the narrow formats are
// ordered as their values are, so the maximum is taken over codes and one of them is widened at the
// end.
#pragma once

#include "array/tensor_ref.hpp"
#include "host/kernels/tile.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Signed types wherever there is room, because SSE2 compares those.
// magnitude(code): ordered as the fp32 pattern of |x| is, NaN included. fp16 and E5M2 become quiet
// when widened, so their signalling NaNs must be made quiet first.
template <DType kDType> struct Magnitude;
template <> struct Magnitude<DType::fp32> {
    using Code = int32_t;
    typedef int32_t Memory __attribute__((aligned(1), may_alias));
    static MP_ISA_INLINE Code of(Code code) { return code & 0x7fffffff; }
};
template <> struct Magnitude<DType::bf16> {
    using Code = int16_t;
    typedef int16_t Memory __attribute__((aligned(1), may_alias));
    static MP_ISA_INLINE Code of(Code code) { return static_cast<Code>(code & 0x7fff); }
};
template <> struct Magnitude<DType::fp16> {
    using Code = int16_t;
    typedef int16_t Memory __attribute__((aligned(1), may_alias));
    static MP_ISA_INLINE Code of(Code code) {
        const auto magnitude = static_cast<Code>(code & 0x7fff);
        const auto quiet = static_cast<Code>(magnitude | 0x0200);
        return magnitude > numerics::kFp16Infinity ? quiet : magnitude;
    }
};
template <> struct Magnitude<DType::fp8_e4m3> {
    using Code = uint8_t;
    using Memory = InMemory<DType::fp8_e4m3>::type;
    static MP_ISA_INLINE Code of(Code code) { return code & 0x7fU; }
};
template <> struct Magnitude<DType::fp8_e5m2> {
    using Code = uint8_t;
    using Memory = InMemory<DType::fp8_e5m2>::type;
    static MP_ISA_INLINE Code of(Code code) {
        const auto magnitude = static_cast<Code>(code & 0x7fU);
        const auto quiet = static_cast<Code>(magnitude | 0x02U);
        return magnitude > numerics::kE5m2Infinity ? quiet : magnitude;
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
    switch (source.dtype) {
    case DType::fp32:
        return amax_as<DType::fp32>(data, count);
    case DType::fp16:
        return amax_as<DType::fp16>(data, count);
    case DType::bf16:
        return amax_as<DType::bf16>(data, count);
    case DType::fp8_e4m3:
        return amax_as<DType::fp8_e4m3>(data, count);
    case DType::fp8_e5m2:
        return amax_as<DType::fp8_e5m2>(data, count);
    default:
        return 0;
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
