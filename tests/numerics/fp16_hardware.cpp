// SPDX-License-Identifier: Apache-2.0
// fp16 against the F16C instructions, bit for bit, NaN payloads included: a kernel may use either.
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <immintrin.h>

#include <bit>
#include <cstdint>

#include "numerics/fp16.hpp"

namespace mp::test {
namespace {

__attribute__((target("f16c"))) uint32_t hardware_decode(uint32_t code) {
    const __m128 x = _mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(code)));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(x)));
}

__attribute__((target("f16c"))) uint32_t hardware_encode(uint32_t u) {
    const __m128 x = _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(u)));
    const __m128i code = _mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    return static_cast<uint32_t>(_mm_cvtsi128_si32(code)) & 0xffffu;
}

TEST(Fp16Hardware, DecodesTheSame) {
    if (!__builtin_cpu_supports("avx2")) { // clang 14 has no name for F16C; AVX2 implies it
        GTEST_SKIP() << "no F16C on this machine";
    }
    for (uint32_t code = 0; code < 65536; ++code) {
        const float x = numerics::fp16_to_float(static_cast<uint16_t>(code));
        ASSERT_EQ(std::bit_cast<uint32_t>(x), hardware_decode(code)) << std::hex << code;
    }
}

TEST(Fp16Hardware, EncodesTheSame) {
    if (!__builtin_cpu_supports("avx2")) { // clang 14 has no name for F16C; AVX2 implies it
        GTEST_SKIP() << "no F16C on this machine";
    }
    // A prime step: about four million patterns over all signs, exponents and NaN payloads.
    for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 1021) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
        ASSERT_EQ(numerics::float_to_fp16(x), hardware_encode(static_cast<uint32_t>(u)))
            << std::hex << u;
    }
}

} // namespace
} // namespace mp::test
#else
TEST(Fp16Hardware, IsThere) { GTEST_SKIP() << "skipped: F16C is x86's"; }
#endif
