// SPDX-License-Identifier: Apache-2.0
// A codec per element type: one element to fp32 and back. Kernels pick the codec outside their
// inner loop; load_as_float and store_from_float switch per element and are for the reference
// backend and for code where speed does not matter.
#pragma once

#include <cstdint>

#include "dtype/dtype.hpp"
#include "numerics/bf16.hpp"
#include "numerics/e8m0.hpp"
#include "numerics/fp16.hpp"
#include "numerics/fp4.hpp"
#include "numerics/fp8.hpp"
#include "numerics/integer.hpp"
#include "numerics/stochastic.hpp"

namespace mp::numerics {

// Members of every codec:
//   load          exact, except int32 and int64, which round to fp32
//   store         round to nearest even by the format's default rule: fp8 and integers saturate,
//                 16-bit floats overflow to infinity
//   store_sat     overflow and infinity become the largest finite value
//   store_nonsat  overflow becomes infinity, or NaN where there is no infinity; integers saturate
//   store_sr      where kHasStochastic: stochastic rounding by 32 random bits, of which bf16 uses
//                 the upper 16
// fp32 is the identity throughout: nothing overflows in a conversion that does not convert.
template <DType kDType> struct Codec;

template <> struct Codec<DType::fp32> {
    using storage = float;
    static constexpr bool kHasStochastic = true;
    MP_HD_INLINE static constexpr float load(storage x) { return x; }
    MP_HD_INLINE static constexpr storage store(float x) { return x; }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return x; }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return x; }
    MP_HD_INLINE static constexpr storage store_sr(float x, uint32_t) { return x; }
    MP_HD_INLINE static constexpr storage store_sr_nonsat(float x, uint32_t) { return x; }
};

template <> struct Codec<DType::fp16> {
    using storage = uint16_t;
    static constexpr bool kHasStochastic = true;
    MP_HD_INLINE static constexpr float load(storage x) { return fp16_to_float(x); }
    MP_HD_INLINE static constexpr storage store(float x) { return float_to_fp16(x); }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return float_to_fp16_sat(x); }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return float_to_fp16(x); }
    MP_HD_INLINE static constexpr storage store_sr(float x, uint32_t r32) {
        return float_to_fp16_sr(x, r32);
    }
    MP_HD_INLINE static constexpr storage store_sr_nonsat(float x, uint32_t r32) {
        return store_sr(x, r32);
    }
};

template <> struct Codec<DType::bf16> {
    using storage = uint16_t;
    static constexpr bool kHasStochastic = true;
    MP_HD_INLINE static constexpr float load(storage x) { return bf16_to_float(x); }
    MP_HD_INLINE static constexpr storage store(float x) { return float_to_bf16(x); }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return float_to_bf16_sat(x); }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return float_to_bf16(x); }
    MP_HD_INLINE static constexpr storage store_sr(float x, uint32_t r32) {
        return float_to_bf16_sr(x, r32 >> 16);
    }
    MP_HD_INLINE static constexpr storage store_sr_nonsat(float x, uint32_t r32) {
        return store_sr(x, r32);
    }
};

template <> struct Codec<DType::fp8_e4m3> {
    using storage = uint8_t;
    static constexpr bool kHasStochastic = true;
    MP_HD_INLINE static constexpr float load(storage x) { return e4m3_to_float(x); }
    MP_HD_INLINE static constexpr storage store(float x) { return float_to_e4m3_sat(x); }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return float_to_e4m3_sat(x); }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return float_to_e4m3(x); }
    MP_HD_INLINE static constexpr storage store_sr(float x, uint32_t r32) {
        return float_to_e4m3_sr(x, r32);
    }
    MP_HD_INLINE static constexpr storage store_sr_nonsat(float x, uint32_t r32) {
        return float_to_e4m3_sr_nonsat(x, r32);
    }
};

template <> struct Codec<DType::fp8_e5m2> {
    using storage = uint8_t;
    static constexpr bool kHasStochastic = true;
    MP_HD_INLINE static constexpr float load(storage x) { return e5m2_to_float(x); }
    MP_HD_INLINE static constexpr storage store(float x) { return float_to_e5m2_sat(x); }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return float_to_e5m2_sat(x); }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return float_to_e5m2(x); }
    MP_HD_INLINE static constexpr storage store_sr(float x, uint32_t r32) {
        return float_to_e5m2_sr(x, r32);
    }
    MP_HD_INLINE static constexpr storage store_sr_nonsat(float x, uint32_t r32) {
        return float_to_e5m2_sr_nonsat(x, r32);
    }
};

// A scale that overflows is an error of the quantizer, so there is no saturation to hide it.
template <> struct Codec<DType::e8m0> {
    using storage = uint8_t;
    static constexpr bool kHasStochastic = false;
    MP_HD_INLINE static constexpr float load(storage x) { return e8m0_to_float(x); }
    MP_HD_INLINE static constexpr storage store(float x) { return float_to_e8m0(x); }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return float_to_e8m0(x); }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return float_to_e8m0(x); }
};

namespace detail {
template <class Int> struct IntegerCodec {
    using storage = Int;
    static constexpr bool kHasStochastic = false;
    MP_HD_INLINE static constexpr float load(storage x) { return static_cast<float>(x); }
    MP_HD_INLINE static constexpr storage store(float x) { return float_to_int_sat<Int>(x); }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return float_to_int_sat<Int>(x); }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return float_to_int_sat<Int>(x); }
};
} // namespace detail

template <> struct Codec<DType::int8> : detail::IntegerCodec<int8_t> {};
template <> struct Codec<DType::int16> : detail::IntegerCodec<int16_t> {};
template <> struct Codec<DType::int32> : detail::IntegerCodec<int32_t> {};
template <> struct Codec<DType::int64> : detail::IntegerCodec<int64_t> {};
template <> struct Codec<DType::uint8> : detail::IntegerCodec<uint8_t> {};

// One element in the low four bits of its storage; in arrays two share a byte.
template <> struct Codec<DType::fp4_e2m1> {
    using storage = uint8_t;
    static constexpr bool kHasStochastic = true;
    MP_HD_INLINE static constexpr float load(storage x) { return e2m1_to_float(x); }
    MP_HD_INLINE static constexpr storage store(float x) { return float_to_e2m1(x); }
    MP_HD_INLINE static constexpr storage store_sat(float x) { return float_to_e2m1(x); }
    MP_HD_INLINE static constexpr storage store_nonsat(float x) { return float_to_e2m1(x); }
    MP_HD_INLINE static constexpr storage store_sr(float x, uint32_t r32) {
        return float_to_e2m1_sr(x, r32);
    }
    MP_HD_INLINE static constexpr storage store_sr_nonsat(float x, uint32_t r32) {
        return store_sr(x, r32);
    }
};

namespace detail {
// Byte copies: a tensor's memory need not hold objects of our storage type, nor be aligned.
template <class Storage> MP_HD_INLINE Storage load_element(const void* data, int64_t i) {
    Storage value;
    __builtin_memcpy(&value, static_cast<const unsigned char*>(data) + i * int64_t{sizeof(value)},
                     sizeof(value));
    return value;
}

template <class Storage> MP_HD_INLINE void store_element(void* data, int64_t i, Storage value) {
    __builtin_memcpy(static_cast<unsigned char*>(data) + i * int64_t{sizeof(value)}, &value,
                     sizeof(value));
}

// The code of element i, where packed types share bytes.
template <DType kDType> MP_HD_INLINE auto load_code(const void* data, int64_t i) {
    using Storage = typename Codec<kDType>::storage;
    if constexpr (is_packed(kDType)) {
        const uint32_t pair = load_element<uint8_t>(data, i / 2);
        return static_cast<Storage>((i & 1) == 0 ? pair & 0xfu : pair >> 4);
    } else {
        return load_element<Storage>(data, i);
    }
}

// Leaves the neighbour in the same byte as it is, so two threads must not store to one byte.
template <DType kDType>
MP_HD_INLINE void store_code(void* data, int64_t i, typename Codec<kDType>::storage code) {
    if constexpr (is_packed(kDType)) {
        const uint32_t pair = load_element<uint8_t>(data, i / 2);
        const uint32_t changed =
            (i & 1) == 0 ? (pair & 0xf0u) | code : (pair & 0x0fu) | (uint32_t{code} << 4);
        store_element(data, i / 2, static_cast<uint8_t>(changed));
    } else {
        store_element(data, i, code);
    }
}

template <DType kDType>
MP_HD_INLINE bool store_stochastic(void* data, int64_t i, float x, uint32_t r32, bool saturate) {
    using C = Codec<kDType>;
    if constexpr (C::kHasStochastic) {
        store_code<kDType>(data, i, saturate ? C::store_sr(x, r32) : C::store_sr_nonsat(x, r32));
    }
    return C::kHasStochastic;
}
} // namespace detail

// Element i of an array. NaN for a dtype that is no type, so that the mistake shows.
MP_HD_INLINE float load_as_float(DType dtype, const void* data, int64_t i) {
    float x = float_from_bits(kFloatQuietNan);
    visit_dtype(dtype, [&](auto type) MP_INLINED {
        x = Codec<type.value>::load(detail::load_code<type.value>(data, i));
    });
    return x;
}

// saturate chooses between store_sat and store_nonsat. Stores nothing for a dtype that is no type.
MP_HD_INLINE void store_from_float(DType dtype, void* data, int64_t i, float x, bool saturate) {
    visit_dtype(dtype, [&](auto type) MP_INLINED {
        using C = Codec<type.value>;
        detail::store_code<type.value>(data, i, saturate ? C::store_sat(x) : C::store_nonsat(x));
    });
}

// Stochastic store; false, with nothing stored, for a type that has none. saturate chooses between store_sr and
// store_sr_nonsat.
MP_HD_INLINE bool store_from_float_sr(DType dtype, void* data, int64_t i, float x, uint32_t r32,
                                      bool saturate = true) {
    bool is_stored = false;
    visit_dtype(dtype, [&](auto type) MP_INLINED {
        is_stored = detail::store_stochastic<type.value>(data, i, x, r32, saturate);
    });
    return is_stored;
}

} // namespace mp::numerics
