// SPDX-License-Identifier: Apache-2.0
// The loop of the fused optimizer step for the arrays a segment has, and their prefetch.
#pragma once

#include "host/kernels/memory.hpp"
#include "host/kernels/update_loop.hpp"
#include "host/kernels/update_rounding.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Types that are absent have no size, so nothing is asked for them. A parameter beside a master
// weight is only written.
MP_ISA_INLINE void prefetch_streams(const UpdateSegment& s, int64_t element, int n) {
    const auto ask = [element, n](const StepArray& a) {
        prefetch_ahead(element_address(static_cast<const void*>(a.data), a.dtype, element),
                       n * dtype_size(a.dtype));
    };
    ask(s.grad);
    for (const StepArray& state : s.states) {
        ask(state);
    }
    ask(s.compensation);
    if (s.master.exists()) {
        ask(s.master);
    }
    if (!s.master.exists() || s.has_remainder()) {
        ask(s.param);
    }
}

template <class Rule, DType kParam>
MP_ISA_INLINE void update_compensated_as(const UpdateStreams& streams, const UpdateContext& c,
                                         int n) {
    if ((c.stochastic & kSrParam) != 0) {
        update_compensated_tile<Rule, kParam, numerics::Narrowing::stochastic>(streams, *c.scalars,
                                                                               n);
    } else {
        update_compensated_tile<Rule, kParam, numerics::Narrowing::nearest>(streams, *c.scalars, n);
    }
}

template <class Rule>
MP_ISA_INLINE void update_streams(const UpdateStreams& streams, const UpdateContext& c, int n) {
    const UpdateSegment& s = *c.segment;
    if (!s.compensation.exists()) {
        update_plain_tile<Rule>(streams, *c.scalars, n);
    } else if (s.param.dtype == DType::bf16) {
        update_compensated_as<Rule, DType::bf16>(streams, c, n);
    } else if (s.param.dtype == DType::fp16) {
        update_compensated_as<Rule, DType::fp16>(streams, c, n);
    } else {
        update_compensated_tile<Rule, DType::fp32, numerics::Narrowing::nearest>(streams,
                                                                                 *c.scalars, n);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
