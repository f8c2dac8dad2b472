// SPDX-License-Identifier: Apache-2.0
// The dtype table, the integer conversions, and the codecs: compile-time against the plain
// functions, run-time against compile-time.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "dtype/dtype.hpp"
#include "edges.hpp"
#include "numerics/codec.hpp"

namespace mp::test {
namespace {

using numerics::Codec;
using numerics::float_to_int_sat;

TEST(DTypeTable, NumbersAreFrozen) {
    EXPECT_EQ(kDTypeCount, 21);
    const std::array<DType, 12> order = {
        DType::fp32, DType::fp16,  DType::bf16,  DType::fp8_e4m3, DType::fp8_e5m2, DType::e8m0,
        DType::int8, DType::int16, DType::int32, DType::int64,    DType::uint8,    DType::fp4_e2m1};
    const std::array<int64_t, 12> sizes = {4, 2, 2, 1, 1, 1, 1, 2, 4, 8, 1, 0};
    for (std::size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(static_cast<int32_t>(order[i]), static_cast<int32_t>(i) + 1);
        EXPECT_EQ(dtype_size(order[i]), sizes[i]);
        EXPECT_EQ(dtype_bits(order[i]), sizes[i] == 0 ? 4 : sizes[i] * 8);
        EXPECT_EQ(bytes_of(order[i], 5), sizes[i] == 0 ? 3 : sizes[i] * 5);
        EXPECT_EQ(bytes_of(order[i], 0), 0);
    }
    EXPECT_EQ(static_cast<int32_t>(DType::none), 0);
}

TEST(DTypeTable, BlocksAreFrozen) {
    const std::array<DType, 9> order = {DType::q4_0, DType::q4_1, DType::q5_0,
                                        DType::q5_1, DType::q8_0, DType::q4_k,
                                        DType::q5_k, DType::q6_k, DType::mxfp4_block};
    const std::array<int64_t, 9> bytes = {18, 20, 22, 24, 34, 144, 176, 210, 17};
    for (std::size_t i = 0; i < order.size(); ++i) {
        const DType dtype = order[i];
        const int64_t elements = i >= 5 && i < 8 ? 256 : 32;
        EXPECT_EQ(static_cast<int32_t>(dtype), static_cast<int32_t>(i) + 13);
        EXPECT_EQ(type_block(dtype).elements, elements);
        EXPECT_EQ(type_block(dtype).bytes, bytes[i]);
        EXPECT_EQ(dtype_kind(dtype), DTypeKind::blocks);
        EXPECT_EQ(dtype_size(dtype), 0);
        EXPECT_EQ(bytes_of(dtype, 0), 0);
        EXPECT_EQ(bytes_of(dtype, 3 * elements), 3 * bytes[i]);
        EXPECT_EQ(bytes_of(dtype, 3 * elements + 1), 4 * bytes[i]); // whole blocks
        EXPECT_EQ(dlpack_type(dtype).bits, 0);
    }
    EXPECT_FALSE(is_in_blocks(DType::fp4_e2m1));
}

TEST(DTypeTable, NamesRoundTripAndAreDistinct) {
    std::set<std::string> names;
    for (int32_t value = 1; value <= kDTypeCount; ++value) {
        const auto dtype = static_cast<DType>(value);
        names.insert(dtype_name(dtype));
        EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
        const DlpackType dl = dlpack_type(dtype);
        EXPECT_EQ(dl.bits, dtype_bits(dtype));
        EXPECT_EQ(dtype_from_dlpack(dl.code, dl.bits), is_in_blocks(dtype) ? DType::none : dtype);
    }
    EXPECT_EQ(names.size(), 21u);
    EXPECT_STREQ(dtype_name(DType::fp8_e4m3), "fp8_e4m3");
    EXPECT_STREQ(dtype_name(DType::none), "none");
    EXPECT_STREQ(dtype_name(static_cast<DType>(99)), "none");
    for (const char* unknown : {"", "none", "fp", "fp321", "BF16", "float32"}) {
        EXPECT_EQ(parse_dtype(unknown), DType::none) << unknown;
    }
    EXPECT_EQ(dtype_from_dlpack(2, 64), DType::none);
}

// DLDataTypeCode of dlpack.h, version 1.1.
TEST(DTypeTable, DlpackCodesAreThoseOfTheStandard) {
    const std::array<uint8_t, 12> codes = {2, 2, 4, 10, 12, 14, 0, 0, 0, 0, 1, 17};
    for (std::size_t i = 0; i < codes.size(); ++i) {
        EXPECT_EQ(dlpack_type(static_cast<DType>(i + 1)).code, codes[i]) << i;
    }
}

TEST(DTypeTable, KindsAndValidity) {
    for (int32_t value = -1; value <= 22; ++value) {
        EXPECT_EQ(is_valid(value), value >= 1 && value <= 21);
        EXPECT_EQ(is_floating(static_cast<DType>(value)), value >= 1 && value <= 5);
    }
    EXPECT_EQ(dtype_kind(DType::e8m0), DTypeKind::scale);
    EXPECT_EQ(dtype_kind(DType::int32), DTypeKind::signed_integer);
    EXPECT_EQ(dtype_kind(DType::uint8), DTypeKind::unsigned_integer);
    EXPECT_EQ(dtype_size(DType::none), 0);
    EXPECT_EQ(dtype_kind(DType::fp4_e2m1), DTypeKind::packed_floating);
    EXPECT_EQ(dtype_size(static_cast<DType>(22)), 0);
    EXPECT_EQ(dtype_bits(static_cast<DType>(22)), 0);
}

TEST(DTypeTable, MaxFiniteIsTheLargestStoredValue) {
    using namespace numerics;
    EXPECT_EQ(max_finite(DType::fp32), std::numeric_limits<float>::max());
    EXPECT_EQ(max_finite(DType::fp16), fp16_to_float(kFp16MaxFinite));
    EXPECT_EQ(max_finite(DType::bf16), bf16_to_float(kBf16MaxFinite));
    EXPECT_EQ(max_finite(DType::fp8_e4m3), e4m3_to_float(kE4m3MaxFinite));
    EXPECT_EQ(max_finite(DType::fp8_e5m2), e5m2_to_float(kE5m2MaxFinite));
    EXPECT_EQ(max_finite(DType::e8m0), e8m0_to_float(254));
    EXPECT_EQ(max_finite(DType::int8), 127.0f);
    EXPECT_EQ(max_finite(DType::int16), 32767.0f);
    EXPECT_EQ(max_finite(DType::int32), std::nextafter(0x1p31f, 0.0f));
    EXPECT_EQ(max_finite(DType::int64), std::nextafter(0x1p63f, 0.0f));
    EXPECT_EQ(max_finite(DType::uint8), 255.0f);
    EXPECT_EQ(max_finite(DType::fp4_e2m1), e2m1_to_float(kE2m1MaxFinite));
    EXPECT_EQ(max_finite(DType::none), 0.0f);
}

// By std::nearbyint in the default rounding mode and a clamp, in long double, which holds every
// 64-bit integer.
template <class Int> Int reference_to_int(float x) {
    if (std::isnan(x)) {
        return 0;
    }
    const long double rounded = std::nearbyint(static_cast<double>(x));
    if (rounded >= static_cast<long double>(std::numeric_limits<Int>::max())) {
        return std::numeric_limits<Int>::max();
    }
    if (rounded <= static_cast<long double>(std::numeric_limits<Int>::min())) {
        return std::numeric_limits<Int>::min();
    }
    return static_cast<Int>(rounded);
}

template <class Int> void check_integer() {
    for (int i = -140000; i <= 140000; ++i) {
        const float x = static_cast<float>(i) * 0.25f;
        ASSERT_EQ(float_to_int_sat<Int>(x), reference_to_int<Int>(x)) << x;
        ASSERT_EQ(float_to_int_sat<Int>(std::nextafter(x, kInf)),
                  reference_to_int<Int>(std::nextafter(x, kInf)));
    }
    for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 65521) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
        ASSERT_EQ(float_to_int_sat<Int>(x), reference_to_int<Int>(x)) << x;
    }
    for (int e = 0; e < 128; ++e) {
        for (const float sign : {1.0f, -1.0f}) {
            const float x = std::ldexp(sign, e);
            for (const float y : {std::nextafter(x, 0.0f), x, std::nextafter(x, sign * kInf)}) {
                ASSERT_EQ(float_to_int_sat<Int>(y), reference_to_int<Int>(y)) << y;
            }
        }
    }
    EXPECT_EQ(float_to_int_sat<Int>(kNan), 0);
    EXPECT_EQ(float_to_int_sat<Int>(kInf), std::numeric_limits<Int>::max());
    EXPECT_EQ(float_to_int_sat<Int>(-kInf), std::numeric_limits<Int>::min());
}

TEST(IntegerConversion, RoundsToEvenAndSaturates) {
    check_integer<int8_t>();
    check_integer<int16_t>();
    check_integer<int32_t>();
    check_integer<int64_t>();
    check_integer<uint8_t>();
}

TEST(Codec, DefaultRules) {
    EXPECT_EQ(Codec<DType::fp16>::store(1e6f), 0x7c00);
    EXPECT_EQ(Codec<DType::fp16>::store_sat(1e6f), 0x7bff);
    EXPECT_EQ(Codec<DType::bf16>::store(3.4e38f), 0x7f80);
    EXPECT_EQ(Codec<DType::bf16>::store_sat(3.4e38f), 0x7f7f);
    EXPECT_EQ(Codec<DType::fp8_e4m3>::store(1e6f), 0x7e);
    EXPECT_EQ(Codec<DType::fp8_e4m3>::store_nonsat(1e6f), 0x7f);
    EXPECT_EQ(Codec<DType::fp8_e5m2>::store(1e6f), 0x7b);
    EXPECT_EQ(Codec<DType::fp8_e5m2>::store_nonsat(1e6f), 0x7c);
    EXPECT_EQ(Codec<DType::fp32>::store_sat(kInf), kInf);
    EXPECT_EQ(Codec<DType::int8>::store(300.0f), 127);
    EXPECT_EQ(Codec<DType::uint8>::store_nonsat(-3.0f), 0);
    EXPECT_EQ(Codec<DType::e8m0>::store_sat(2.0f), 128);
}

// The same float through the run-time functions and through the codec. Buffers are offset by one
// byte: no alignment is required.
template <DType kDType> void check_runtime() {
    using C = Codec<kDType>;
    using S = typename C::storage;
    const auto bits = [](S value) {
        uint64_t u = 0;
        __builtin_memcpy(&u, &value, sizeof(S));
        return u;
    };
    std::array<unsigned char, 64> memory{};
    for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 16777213 / 16) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
        void* data = memory.data() + 1;
        numerics::store_from_float(kDType, data, 0, x, true);
        numerics::store_from_float(kDType, data, 2, x, false);
        const bool has_sr = numerics::store_from_float_sr(kDType, data, 3, x, 0xdeadbeefu);
        EXPECT_EQ(has_sr, is_floating(kDType) || kDType == DType::fp4_e2m1);
        std::array<S, 4> got;
        if constexpr (kDType == DType::fp4_e2m1) { // two to a byte, the first one low
            got = {static_cast<S>(memory[1] & 0xfu), static_cast<S>(memory[1] >> 4),
                   static_cast<S>(memory[2] & 0xfu), static_cast<S>(memory[2] >> 4)};
        } else {
            __builtin_memcpy(got.data(), data, sizeof(got));
        }
        EXPECT_EQ(bits(got[0]), bits(C::store_sat(x)));
        EXPECT_EQ(bits(got[1]), 0u); // not touched
        EXPECT_EQ(bits(got[2]), bits(C::store_nonsat(x)));
        if constexpr (C::kHasStochastic) {
            EXPECT_EQ(bits(got[3]), bits(C::store_sr(x, 0xdeadbeefu)));
        } else {
            EXPECT_EQ(bits(got[3]), 0u);
        }
        EXPECT_EQ(std::bit_cast<uint32_t>(numerics::load_as_float(kDType, data, 2)),
                  std::bit_cast<uint32_t>(C::load(got[2])));
    }
}

TEST(Codec, RuntimeEqualsCompileTime){
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    {                                                                                              \
        SCOPED_TRACE(#name);                                                                       \
        static_assert(sizeof(Codec<DType::name>::storage) == ((bits) + 7) / 8);                    \
        check_runtime<DType::name>();                                                              \
    }
#include "dtype/dtype_list.def"
#undef X
}

TEST(Codec, NoTypeLoadsNanAndStoresNothing) {
    for (const DType dtype : {DType::none, static_cast<DType>(13), static_cast<DType>(-5)}) {
        std::array<unsigned char, 8> memory{};
        EXPECT_TRUE(std::isnan(numerics::load_as_float(dtype, memory.data(), 0)));
        numerics::store_from_float(dtype, memory.data(), 0, -1.0f, true);
        EXPECT_FALSE(numerics::store_from_float_sr(dtype, memory.data(), 0, -1.0f, 0));
        EXPECT_EQ(memory, (std::array<unsigned char, 8>{}));
    }
}

TEST(Codec, Bf16UsesTheUpperHalfOfTheRandomBits) {
    const float x = 1.001f; // 8389 / 65536 of an ulp above 1
    EXPECT_EQ(Codec<DType::bf16>::store_sr(x, 0xffff0000u), 0x3f81);
    EXPECT_EQ(Codec<DType::bf16>::store_sr(x, 0x0000ffffu), 0x3f80);
}

} // namespace
} // namespace mp::test
