// SPDX-License-Identifier: Apache-2.0
// The largest |x| of each block of a grid, as bit patterns, and the scales that follow.
#pragma once

#include "host/kernels/amax_vector.hpp"
#include "host/kernels/tile.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

template <DType kDType>
MP_ISA_INLINE uint32_t widen_magnitude(typename Magnitude<kDType>::Code code) {
    if constexpr (kDType == DType::fp32) {
        return static_cast<uint32_t>(code);
    } else {
        using Codec = numerics::Codec<kDType>;
        return numerics::bits_from_float(Codec::load(static_cast<typename Codec::storage>(code)));
    }
}

MP_ISA_INLINE void raise(uint32_t& largest, uint32_t magnitude) {
    largest = magnitude > largest ? magnitude : largest;
}

// Whole blocks of kWidth columns of one row.
template <DType kDType, int kWidth>
MP_ISA_FUNCTION void raise_by_blocks(const void* row, int64_t blocks, uint32_t* largest) {
    using M = Magnitude<kDType>;
    using Memory = typename M::Memory;
    const Memory* from = static_cast<const Memory*>(row);
    for (int64_t b = raise_16_blocks<kDType, kWidth>(row, blocks, largest); b < blocks; ++b) {
        typename M::Code here = 0;
        for (int i = 0; i < kWidth; ++i) {
            const auto magnitude = M::of(from[b * kWidth + i]);
            here = magnitude > here ? magnitude : here;
        }
        raise(largest[b], widen_magnitude<kDType>(here));
    }
}

// Blocks one column wide, of kRows rows `stride` elements apart: they are compared before a maximum is widened and stored.
template <DType kDType, int kRows>
MP_ISA_INLINE void raise_by_columns(const void* first, int64_t stride, int64_t columns,
                                    uint32_t* largest) {
    using M = Magnitude<kDType>;
    using Memory = typename M::Memory;
    using Code = typename M::Code;
    const Memory* from = static_cast<const Memory*>(first);
    MP_ISA_INDEPENDENT
    for (int64_t i = 0; i < columns; ++i) {
        Code here = M::of(from[i]);
#pragma GCC unroll 8
        for (int r = 1; r < kRows; ++r) {
            const Code magnitude = M::of(from[r * stride + i]);
            here = magnitude > here ? magnitude : here;
        }
        const auto magnitude = static_cast<int32_t>(widen_magnitude<kDType>(here));
        const auto old = static_cast<int32_t>(largest[i]); // signed: SSE2 compares those
        largest[i] = static_cast<uint32_t>(magnitude > old ? magnitude : old);
    }
}

template <DType kDType>
MP_ISA_FUNCTION void raise_columns_as(const void* first, int64_t stride, int64_t rows,
                                      int64_t columns, uint32_t* largest) {
    constexpr int kRows = 8;
    int64_t row = 0;
    for (; row + kRows <= rows; row += kRows) {
        raise_by_columns<kDType, kRows>(element_address(first, kDType, row * stride), stride,
                                        columns, largest);
    }
    for (; row < rows; ++row) {
        raise_by_columns<kDType, 1>(element_address(first, kDType, row * stride), stride, columns,
                                    largest);
    }
}

MP_ISA_INLINE void raise_columns(DType dtype, const void* first, int64_t stride, int64_t rows,
                                 int64_t columns, uint32_t* largest) {
    switch (dtype) {
    case DType::fp32:
        return raise_columns_as<DType::fp32>(first, stride, rows, columns, largest);
    case DType::fp16:
        return raise_columns_as<DType::fp16>(first, stride, rows, columns, largest);
    case DType::bf16:
        return raise_columns_as<DType::bf16>(first, stride, rows, columns, largest);
    default:
        return;
    }
}

// `columns` elements of one row, from the first column of a block on; a width of 0: one block.
template <DType kDType>
MP_ISA_INLINE void raise_row_as(const void* row, int64_t columns, int64_t width,
                                uint32_t* largest) {
    width = width == 0 || width > columns ? columns : width;
    const int64_t whole = columns / width;
    if (width == 32) {
        raise_by_blocks<kDType, 32>(row, whole, largest);
    } else if (width == 16) {
        raise_by_blocks<kDType, 16>(row, whole, largest);
    } else if (width == 128) {
        raise_by_blocks<kDType, 128>(row, whole, largest);
    } else {
        for (int64_t b = 0; b < whole; ++b) {
            raise(largest[b], amax_as<kDType>(element_address(row, kDType, b * width), width));
        }
    }
    if (whole * width < columns) {
        raise(largest[whole], amax_as<kDType>(element_address(row, kDType, whole * width),
                                              columns - whole * width));
    }
}

MP_ISA_INLINE void raise_row(DType dtype, const void* row, int64_t columns, int64_t width,
                             uint32_t* largest) {
    switch (dtype) {
    case DType::fp32:
        return raise_row_as<DType::fp32>(row, columns, width, largest);
    case DType::fp16:
        return raise_row_as<DType::fp16>(row, columns, width, largest);
    case DType::bf16:
        return raise_row_as<DType::bf16>(row, columns, width, largest);
    default:
        return;
    }
}

// The rule is a constant inside, so the loop has no switch and is vectorized.
template <numerics::ScaleRule kRule>
MP_ISA_FUNCTION void scales_as(const numerics::ScalePolicy& given, const uint32_t* amaxes,
                               float tensor_amax, int n, float* multiply, float* scale_inv) {
    numerics::ScalePolicy policy = given;
    policy.rule = kRule;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        const float previous = kRule == numerics::ScaleRule::msamp ? scale_inv[i] : 1.0F;
        const numerics::BlockScale scale = numerics::block_scale(
            policy, numerics::float_from_bits(amaxes[i]), previous, tensor_amax);
        multiply[i] = scale.multiply;
        scale_inv[i] = scale.scale_inv;
    }
}

// NVFP4's rule a step at a time: the loop of all of it, with a conversion to E4M3 and back inside, is not vectorized.
MP_ISA_FUNCTION inline void nvfp4_scales(const numerics::ScalePolicy& policy,
                                         const uint32_t* amaxes, float tensor_amax, int n,
                                         float* multiply, float* scale_inv) {
    const float encode = numerics::detail::nvfp4_encode(tensor_amax, policy.max_code);
    const auto amax = [&](int i) MP_INLINED {
        return numerics::detail::at_least(numerics::float_from_bits(amaxes[i]), policy.epsilon);
    };
    for (int done = 0; done < n; done += kTile) {
        const int count = min_int(n - done, kTile);
        alignas(64) uint8_t codes[kTile];
        MP_ISA_INDEPENDENT
        for (int i = done; i < done + count; ++i) {
            multiply[i] = numerics::detail::nvfp4_exact(policy, encode, amax(i));
        }
        narrow_tile<numerics::Narrowing::saturating>(DType::fp8_e4m3, multiply + done, codes, count,
                                                     nullptr);
        widen_tile(DType::fp8_e4m3, codes, scale_inv + done, count);
        MP_ISA_INDEPENDENT
        for (int i = done; i < done + count; ++i) {
            const numerics::BlockScale scale =
                numerics::detail::nvfp4_of(scale_inv[i], encode, amax(i));
            multiply[i] = scale.multiply;
            scale_inv[i] = scale.scale_inv;
        }
    }
}

// scale_inv: the previous ones where the rule asks for them; then the new ones.
MP_ISA_INLINE void scales_of(const numerics::ScalePolicy& policy, const uint32_t* amaxes,
                             float tensor_amax, int n, float* multiply, float* scale_inv) {
    using numerics::ScaleRule;
    switch (policy.rule) {
#define MP_SCALES_AS(name)                                                                         \
    case ScaleRule::name:                                                                          \
        return scales_as<ScaleRule::name>(policy, amaxes, tensor_amax, n, multiply, scale_inv)
        MP_SCALES_AS(current);
        MP_SCALES_AS(float64);
        MP_SCALES_AS(msamp);
        MP_SCALES_AS(deepseek);
        MP_SCALES_AS(mx_rceil);
        MP_SCALES_AS(mx_floor);
        MP_SCALES_AS(mx_ceil);
        MP_SCALES_AS(mx_even);
#undef MP_SCALES_AS
    case ScaleRule::nvfp4:
        return nvfp4_scales(policy, amaxes, tensor_amax, n, multiply, scale_inv);
    }
}

// Scales in memory, from element `first` on, and as fp32.
template <DType kDType>
MP_ISA_FUNCTION void load_scales_as(const void* array, int64_t first, int n, float* scales) {
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        scales[i] =
            numerics::Codec<kDType>::load(numerics::detail::load_code<kDType>(array, first + i));
    }
}
template <DType kDType>
MP_ISA_FUNCTION void store_scales_as(void* array, int64_t first, int n, const float* scales) {
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        numerics::detail::store_code<kDType>(array, first + i,
                                             numerics::Codec<kDType>::store_sat(scales[i]));
    }
}

MP_ISA_INLINE void load_scales(DType dtype, const void* array, int64_t first, int n,
                               float* scales) {
    switch (dtype) {
    case DType::e8m0:
        return load_scales_as<DType::e8m0>(array, first, n, scales);
    case DType::fp8_e4m3:
        return load_scales_as<DType::fp8_e4m3>(array, first, n, scales);
    default:
        return load_scales_as<DType::fp32>(array, first, n, scales);
    }
}

MP_ISA_INLINE void store_scales(DType dtype, void* array, int64_t first, int n,
                                const float* scales) {
    switch (dtype) {
    case DType::e8m0:
        return store_scales_as<DType::e8m0>(array, first, n, scales);
    case DType::fp8_e4m3:
        return store_scales_as<DType::fp8_e4m3>(array, first, n, scales);
    default:
        return store_scales_as<DType::fp32>(array, first, n, scales);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
