// SPDX-License-Identifier: Apache-2.0
// The loop of the fused AdamW step for the arrays a segment has, and their prefetch.
#pragma once

#include "kernels/chunk/adamw_loop.hpp"
#include "kernels/chunk/adamw_sr.hpp"
#include "kernels/chunk/memory.hpp"

namespace mp::kernels::MP_CHUNK_NAMESPACE {

// Types that are absent have no size, so nothing is asked for them. A parameter beside a master
// weight is only written.
MP_CHUNK_INLINE void prefetch_streams(const AdamwSegment& s, int64_t element, int n) {
    const auto ask = [element, n](const void* data, DType dtype) {
        prefetch_ahead(element_address(data, dtype, element), n * dtype_size(dtype));
    };
    ask(s.grad, s.grad_dtype);
    ask(s.exp_avg, s.exp_avg_dtype);
    ask(s.exp_avg_sq, s.exp_avg_sq_dtype);
    ask(s.compensation, s.compensation_dtype);
    if (s.master_dtype != DType::none) {
        ask(s.master, s.master_dtype);
    }
    if (s.master_dtype == DType::none || s.has_remainder()) {
        ask(s.param, s.param_dtype);
    }
}

template <DType kParam, Rounding kRounding>
MP_CHUNK_INLINE void update_compensated_by(const AdamwStreams& streams, const AdamwContext& c,
                                           int n) {
    if (c.scalars->l2 != 0.0F) {
        update_compensated_l2_tile<kParam, kRounding>(streams, *c.scalars, n);
    } else {
        update_compensated_tile<kParam, kRounding>(streams, *c.scalars, n);
    }
}

template <DType kParam>
MP_CHUNK_INLINE void update_compensated_as(const AdamwStreams& streams, const AdamwContext& c,
                                           int n) {
    if ((c.stochastic & kSrParam) != 0) {
        update_compensated_by<kParam, Rounding::stochastic>(streams, c, n);
    } else {
        update_compensated_by<kParam, Rounding::nearest>(streams, c, n);
    }
}

MP_CHUNK_INLINE void update_streams(const AdamwStreams& streams, const AdamwContext& c, int n) {
    const AdamwSegment& s = *c.segment;
    if (s.compensation_dtype == DType::none) {
        if (c.scalars->l2 != 0.0F) {
            update_plain_l2_tile(streams, *c.scalars, n);
        } else {
            update_plain_tile(streams, *c.scalars, n);
        }
    } else if (s.param_dtype == DType::bf16) {
        update_compensated_as<DType::bf16>(streams, c, n);
    } else if (s.param_dtype == DType::fp16) {
        update_compensated_as<DType::fp16>(streams, c, n);
    } else {
        update_compensated_by<DType::fp32, Rounding::nearest>(streams, c, n);
    }
}

} // namespace mp::kernels::MP_CHUNK_NAMESPACE
