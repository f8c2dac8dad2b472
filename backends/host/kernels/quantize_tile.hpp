// SPDX-License-Identifier: Apache-2.0
// Some elements of one row to codes: widen, multiply, round, count.
#pragma once

#include "host/kernels/block_amax.hpp"
#include "host/kernels/cast.hpp"
#include "host/kernels/jobs.hpp"
#include "host/kernels/quantize_vector.hpp"
#include "numerics/quantize.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// The most elements of a span. Where there are vectors their constants are made once a span.
inline constexpr int kSpan = 1024;

// Elements of one row from `column` on. multiply[0] belongs to the block that holds the first of them, of
// which `before` columns come earlier. is_finite: known to be.
struct QuantizeSpan {
    int64_t row;
    int64_t column;
    int n;
    const float* multiply;
    int64_t before;
    bool is_finite;
};

// y = x * the factor of its block of `width` columns; width 0: one factor for all.
MP_ISA_INLINE void multiply_tile(const FloatInMemory* x, float* y, int n, const float* factor,
                                 int64_t width, int64_t before) {
    if (width == 1) {
        MP_ISA_INDEPENDENT
        for (int i = 0; i < n; ++i) {
            y[i] = x[i] * factor[i];
        }
        return;
    }
    for (int done = 0; done < n; ++factor) {
        const int here = width == 0 ? n : min_int(n - done, width - before);
        const float by = *factor;
        const FloatInMemory* from = x + done;
        float* to = y + done;
        MP_ISA_INDEPENDENT
        for (int i = 0; i < here; ++i) {
            to[i] = from[i] * by;
        }
        done += here;
        before = 0;
    }
}

MP_ISA_INLINE float factor_of(const QuantizeSpan& span, int64_t width, int i) {
    return span.multiply[width == 0 ? 0 : (span.before + i) / width];
}

// Packed codes, still one a byte; `bits` null: to nearest.
template <DType kTo>
MP_ISA_FUNCTION void encode_packed_as(const float* y, unsigned char* codes, int n,
                                      const TileBits* bits) {
    if (bits != nullptr) {
        for (int i = 0; i < n; ++i) {
            codes[i] = numerics::Codec<kTo>::store_sr(y[i], random_of<kTo>(*bits, i));
        }
        return;
    }
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        codes[i] = numerics::Codec<kTo>::store_sat(y[i]);
    }
}
MP_ISA_INLINE void encode_packed(DType to, const float* y, unsigned char* codes, int n,
                                 const TileBits* bits) {
    visit_dtype(to, [&](auto type) MP_INLINED {
        if constexpr (is_packed(type.value)) {
            encode_packed_as<type.value>(y, codes, n, bits);
        }
    });
}

MP_ISA_FUNCTION inline void encode_stochastic(const QuantizeOne& op, const QuantizeSpan& span,
                                              const float* y, unsigned char* codes) {
    const numerics::SrKey key = op.sink.rounding.key();
    const int64_t element =
        op.sink.rounding.first_element + span.row * op.source.columns + span.column;
    TileBits bits;
    random_span(op.code_type(), key, numerics::Purpose::cast, element, span.n, bits);
    float clamped[kTile];
    clamp_tile(op.code_type(), y, clamped, span.n);
    if (is_packed(op.code_type())) {
        encode_packed(op.code_type(), clamped, codes, span.n, &bits);
    } else {
        narrow_tile<numerics::Narrowing::stochastic>(op.code_type(), clamped, codes, span.n, &bits);
    }
}

// `codes` has a byte an element, or two for fp16.
MP_ISA_INLINE void encode_tile(const QuantizeOne& op, const QuantizeSpan& span, const float* y,
                               unsigned char* codes) {
    if (op.sink.rounding.stochastic) {
        encode_stochastic(op, span, y, codes);
    } else if (is_packed(op.code_type())) {
        encode_packed(op.code_type(), y, codes, span.n, nullptr);
    } else {
        narrow_tile<numerics::Narrowing::saturating>(op.code_type(), y, codes, span.n, nullptr);
    }
}

template <class Code>
MP_ISA_INLINE int count_zero_codes(const unsigned char* codes, int n, uint32_t magnitude) {
    typedef Code Memory __attribute__((aligned(1), may_alias));
    const Memory* from = reinterpret_cast<const Memory*>(codes);
    int zeros = 0;
    for (int i = 0; i < n; ++i) {
        zeros += (from[i] & magnitude) == 0 ? 1 : 0;
    }
    return zeros;
}

// Of finite elements, whose products are numbers or infinite.
MP_ISA_FUNCTION inline void count_tile(DType dtype, const FloatInMemory* x, const float* y,
                                       const unsigned char* codes, int n,
                                       numerics::QuantStats& stats) {
    const auto threshold =
        static_cast<int32_t>(numerics::bits_from_float(numerics::saturation_threshold(dtype)));
    int saturated = 0;
    int zeros = 0;
    for (int i = 0; i < n; ++i) {
        const auto product = static_cast<int32_t>(numerics::bits_from_float(y[i]) & 0x7fffffffU);
        const auto magnitude = static_cast<int32_t>(numerics::bits_from_float(x[i]) & 0x7fffffffU);
        saturated += product >= threshold ? 1 : 0;
        zeros += magnitude == 0 ? 1 : 0;
    }
    const uint32_t mask = numerics::code_magnitude_mask(dtype);
    const int zero_codes = dtype == DType::fp16 ? count_zero_codes<uint16_t>(codes, n, mask)
                                                : count_zero_codes<uint8_t>(codes, n, mask);
    stats.elements += n;
    stats.saturated += saturated;
    stats.underflowed += zero_codes - zeros;
}

// A span with something that is not finite in it, or whose scale is NaN.
MP_ISA_FUNCTION inline void quantize_slowly(const QuantizeJob& job, const QuantizeSpan& span,
                                            const FloatInMemory* x, unsigned char* codes,
                                            numerics::QuantStats& stats) {
    const QuantizeOne& op = *job.op;
    const numerics::SrKey key = op.sink.rounding.key();
    numerics::QuantStats here;
    for (int i = 0; i < span.n; ++i) {
        const float multiply = factor_of(span, op.grid().block_columns, i);
        const auto element = static_cast<uint64_t>(op.sink.rounding.first_element +
                                                   span.row * op.source.columns + span.column + i);
        uint32_t code = 0;
        if (op.sink.rounding.stochastic) {
            const uint32_t bits = numerics::sr_bits32_at(key, numerics::Purpose::cast, element);
            code = numerics::quantize_code_sr(op.code_type(), x[i], multiply, bits);
        } else {
            code = numerics::quantize_code(op.code_type(), x[i], multiply);
        }
        const DType stored = is_packed(op.code_type()) ? DType::fp8_e4m3 : op.code_type();
        numerics::store_quantized(stored, codes, i, code);
        numerics::count_element(here, op.code_type(), x[i], multiply, code);
    }
    if (job.counts) {
        stats.elements += here.elements;
        stats.saturated += here.saturated;
        stats.underflowed += here.underflowed;
        stats.non_finite += here.non_finite;
    }
}

// Without an fp32 tile between. False where the span takes the usual way, from the start.
MP_ISA_INLINE bool quantize_directly(const QuantizeJob& job, const QuantizeSpan& span,
                                     const void* source, unsigned char* codes,
                                     numerics::QuantStats& stats) {
    const QuantizeOne& op = *job.op;
    const bool may_be_finite =
        span.is_finite || (job.multiply != nullptr && !numerics::is_nan(*job.multiply));
    if (!kHasQuantizeVector || !may_be_finite || op.code_type() == DType::fp16 ||
        op.sink.rounding.stochastic) {
        return false;
    }
    const Gather gather = job.counts       ? Gather::counts
                          : span.is_finite ? Gather::nothing
                                           : Gather::amax;
    return quantize_vector(op.source.dtype(), op.code_type(), gather, source, span.n, span.multiply,
                           op.grid().block_columns, span.before, codes, stats);
}

// At most kTile elements by way of fp32.
MP_ISA_INLINE void quantize_tile(const QuantizeJob& job, const QuantizeSpan& span,
                                 const void* source, unsigned char* codes,
                                 numerics::QuantStats& stats) {
    const QuantizeOne& op = *job.op;
    const DType from = op.source.dtype();
    bool is_finite = span.is_finite;
    if (!is_finite && job.multiply != nullptr) {
        uint32_t largest = 0;
        raise_row(from, source, span.n, 0, &largest);
        raise(stats.amax_bits, largest);
        is_finite = largest < numerics::kFloatInfinity && !numerics::is_nan(*job.multiply);
    }
    alignas(64) float wide[kTile];
    const FloatInMemory* x = wide;
    if (from == DType::fp32) {
        x = static_cast<const FloatInMemory*>(source);
    } else {
        widen_tile(from, source, wide, span.n);
    }
    if (!is_finite) {
        quantize_slowly(job, span, x, codes, stats);
        return;
    }
    alignas(64) float y[kTile];
    multiply_tile(x, y, span.n, span.multiply, op.grid().block_columns, span.before);
    encode_tile(op, span, y, codes);
    if (job.counts) {
        count_tile(op.code_type(), x, y, codes, span.n, stats);
    }
}

MP_ISA_INLINE void quantize_span(const QuantizeJob& job, const QuantizeSpan& span,
                                 unsigned char* codes, numerics::QuantStats& stats) {
    const QuantizeOne& op = *job.op;
    const DType from = op.source.dtype();
    const void* source =
        element_address(op.source.data, from, span.row * op.source.columns + span.column);
    if (quantize_directly(job, span, source, codes, stats)) {
        return;
    }
    const int64_t width = op.grid().block_columns;
    QuantizeSpan tile = span;
    for (int done = 0; done < span.n; done += kTile) {
        const int64_t into = span.before + done;
        tile.column = span.column + done;
        tile.n = min_int(span.n - done, kTile);
        tile.multiply = span.multiply + (width == 0 ? 0 : into / width);
        tile.before = width == 0 ? 0 : into % width;
        quantize_tile(job, tile, element_address(source, from, done),
                      codes + done * (op.code_type() == DType::fp16 ? 2 : 1), stats);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
