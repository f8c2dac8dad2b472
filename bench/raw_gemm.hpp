// SPDX-License-Identifier: Apache-2.0
// The same product by a direct call of the GEMM library: the baseline of ours.
#pragma once

#include <cstdint>
#include <functional>

namespace mp_bench {

struct GemmShape {
    int64_t m, n, k;
    bool trans_a, trans_b;
    int32_t dtype; // of A and B; D is fp32
};

// A call to time, over operands of its own; empty where there is no such library or it refuses.
std::function<void()> raw_gemm(const GemmShape& shape);

} // namespace mp_bench
