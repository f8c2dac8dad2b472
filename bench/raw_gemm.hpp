// SPDX-License-Identifier: Apache-2.0
// The same product by a direct call of the GEMM library: the baseline of ours.
#pragma once

#include <cstdint>
#include <functional>

#include "mixedprec.h"

namespace mp_bench {

struct GemmShape {
    int64_t m, n, k;
    bool trans_a, trans_b;
    int32_t dtype; // of A and B; D is fp32
};

struct RawGemm {
    const char* library;
    // A call to time, over operands of its own; empty where there is no such library or it refuses.
    std::function<void()> run;
    std::function<void()> wait; // until the calls are done; empty: they are when they return
};

RawGemm raw_gemm(const GemmShape& shape);                           // on the host, by oneDNN
RawGemm raw_gemm_cuda(mp_context* context, const GemmShape& shape); // by cuBLASLt

} // namespace mp_bench
