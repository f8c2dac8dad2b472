// SPDX-License-Identifier: Apache-2.0
// What the format tests need to know of each format, written down apart from the headers under
// test.
#pragma once

#include <cstdint>

#include "numerics/bf16.hpp"
#include "numerics/fp16.hpp"
#include "numerics/fp8.hpp"
#include "numerics/stochastic.hpp"

namespace mp::test {

struct Bf16 {
    using Code = uint16_t;
    static constexpr const char* kName = "bf16";
    static constexpr const char* kSuffix = ".u16";
    static constexpr uint32_t kSign = 0x8000, kMaxFinite = 0x7f7f, kOverflow = 0x7f80;
    static constexpr int kMantissaBits = 7;
    static float load(Code c) { return numerics::bf16_to_float(c); }
    static Code store(float x) { return numerics::float_to_bf16(x); }
    static Code store_sat(float x) { return numerics::float_to_bf16_sat(x); }
    static Code store_sr(float x, uint32_t r32) { return numerics::float_to_bf16_sr(x, r32 >> 16); }
    static bool is_nan(uint32_t c) { return (c & 0x7fffu) > 0x7f80u; }
};

struct Fp16 {
    using Code = uint16_t;
    static constexpr const char* kName = "fp16";
    static constexpr const char* kSuffix = ".u16";
    static constexpr uint32_t kSign = 0x8000, kMaxFinite = 0x7bff, kOverflow = 0x7c00;
    static constexpr int kMantissaBits = 10;
    static float load(Code c) { return numerics::fp16_to_float(c); }
    static Code store(float x) { return numerics::float_to_fp16(x); }
    static Code store_sat(float x) { return numerics::float_to_fp16_sat(x); }
    static Code store_sr(float x, uint32_t r32) { return numerics::float_to_fp16_sr(x, r32); }
    static bool is_nan(uint32_t c) { return (c & 0x7fffu) > 0x7c00u; }
};

struct E4m3 {
    using Code = uint8_t;
    static constexpr const char* kName = "fp8_e4m3";
    static constexpr const char* kSuffix = ".u8";
    static constexpr uint32_t kSign = 0x80, kMaxFinite = 0x7e, kOverflow = 0x7f;
    static constexpr int kMantissaBits = 3;
    static float load(Code c) { return numerics::e4m3_to_float(c); }
    static Code store(float x) { return numerics::float_to_e4m3(x); }
    static Code store_sat(float x) { return numerics::float_to_e4m3_sat(x); }
    static Code store_sr(float x, uint32_t r32) { return numerics::float_to_e4m3_sr(x, r32); }
    static bool is_nan(uint32_t c) { return (c & 0x7fu) == 0x7fu; }
};

struct E5m2 {
    using Code = uint8_t;
    static constexpr const char* kName = "fp8_e5m2";
    static constexpr const char* kSuffix = ".u8";
    static constexpr uint32_t kSign = 0x80, kMaxFinite = 0x7b, kOverflow = 0x7c;
    static constexpr int kMantissaBits = 2;
    static float load(Code c) { return numerics::e5m2_to_float(c); }
    static Code store(float x) { return numerics::float_to_e5m2(x); }
    static Code store_sat(float x) { return numerics::float_to_e5m2_sat(x); }
    static Code store_sr(float x, uint32_t r32) { return numerics::float_to_e5m2_sr(x, r32); }
    static bool is_nan(uint32_t c) { return (c & 0x7fu) > 0x7cu; }
};

} // namespace mp::test
