// SPDX-License-Identifier: Apache-2.0
// A tile of a state in companded codes to fp32 and back. Its blocks are small, so their scales are found and converted all at
// once: one at a time they took as long as the codes.
#pragma once

#include "device/ops.hpp"
#include "host/kernels/block_amax.hpp"
#include "host/kernels/companded_vector.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

template <bool kSigned> struct CompandedTile {
    using Codec = numerics::BlockCodec<Coding::companded8>;
    using Scale16 = numerics::BlockScale16;
    typedef InMemory<DType::fp16>::type ScaleInMemory;
    static constexpr auto kSize = static_cast<int>(block_size(Coding::companded8));
    static constexpr int kMost = kTile / kSize; // blocks of a tile

    // What does not exist has the bits of zero.
    struct Scales {
        alignas(64) uint16_t bits[kMost] = {};
        alignas(64) float wide[kMost] = {}; // or what values are divided by
    };

    // Bit for bit BlockScale16's. Where it is no fp16 number the other conversion's answer is not looked at.
    static MP_ISA_INLINE void decode(Scales& scales) {
        float halves[kMost];
        widen_tile(DType::fp16, scales.bits, halves, kMost);
        MP_ISA_INDEPENDENT
        for (int b = 0; b < kMost; ++b) {
            const uint32_t bits = scales.bits[b];
            const uint32_t upper = (bits & ~Scale16::kIsBf16) << 16;
            scales.wide[b] =
                (bits & Scale16::kIsBf16) != 0 ? numerics::float_from_bits(upper) : halves[b];
        }
    }
    static MP_ISA_INLINE void encode(const float (&stored)[kMost], Scales& scales) {
        uint16_t halves[kMost];
        narrow_tile<numerics::Narrowing::nearest>(DType::fp16, stored, halves, kMost, nullptr);
        MP_ISA_INDEPENDENT
        for (int b = 0; b < kMost; ++b) {
            const auto brain =
                static_cast<uint16_t>(Scale16::kIsBf16 | numerics::float_to_bf16_sat(stored[b]));
            scales.bits[b] = Scale16::is_fp16(stored[b]) ? halves[b] : brain;
        }
    }

    static MP_ISA_INLINE ScaleInMemory* scales_of(const StepArray& a, int64_t element) {
        return static_cast<ScaleInMemory*>(a.scale_inv) + element / kSize;
    }
    static MP_ISA_INLINE uint8_t* codes_of(const StepArray& a, int64_t element) {
        return static_cast<uint8_t*>(a.data) + element;
    }
    // Those of n elements.
    static MP_ISA_INLINE void copy_scales(void* to, const void* from, int n) {
        if (n == kTile) {
            __builtin_memcpy(to, from, kMost * sizeof(uint16_t));
        } else {
            copy_bytes(to, from, (n + kSize - 1) / kSize * int64_t{sizeof(uint16_t)});
        }
    }

    static MP_ISA_FUNCTION void load(const StepArray& a, int64_t element, float* values, int n) {
        Scales scales;
        copy_scales(scales.bits, scales_of(a, element), n);
        decode(scales);
        const uint8_t* codes = codes_of(a, element);
        for (int first = 0; first < n; first += kSize) {
            const float scale = scales.wide[first / kSize];
            const int end = min_int(n, first + kSize);
            const int done =
                CompandedVector<kSigned>::decode(codes + first, scale, values + first, end - first);
            MP_ISA_INDEPENDENT
            for (int i = first + done; i < end; ++i) {
                values[i] = Codec::value(kSigned, codes[i], scale);
            }
        }
    }

    static MP_ISA_INLINE void find_scales(const float* values, int n, Scales& scales) {
        uint32_t amaxes[kMost] = {};
        raise_row_as<DType::fp32>(values, n, kSize, amaxes);
        float stored[kMost];
        MP_ISA_INDEPENDENT
        for (int b = 0; b < kMost; ++b) {
            const numerics::MomentScale scale =
                Codec::scales(kSigned, numerics::float_from_bits(amaxes[b]));
            stored[b] = scale.stored;
            scales.wide[b] = scale.divisor;
        }
        encode(stored, scales);
    }

    static MP_ISA_FUNCTION void store(const StepArray& a, int64_t element, const float* values,
                                      int n) {
        Scales scales;
        find_scales(values, n, scales);
        copy_scales(scales_of(a, element), scales.bits, n);
        uint8_t* codes = codes_of(a, element);
        for (int first = 0; first < n; first += kSize) {
            const float divisor = scales.wide[first / kSize];
            const int end = min_int(n, first + kSize);
            const int done = CompandedVector<kSigned>::encode(values + first, divisor,
                                                              codes + first, end - first);
            MP_ISA_INDEPENDENT
            for (int i = first + done; i < end; ++i) {
                codes[i] = static_cast<uint8_t>(Codec::code(kSigned, values[i], divisor));
            }
        }
    }
};

} // namespace mp::backends::host::MP_ISA_NAMESPACE
