// SPDX-License-Identifier: Apache-2.0
// What comes after the sums where the GEMM library cannot do it in our order: alpha, beta * C, bias, GELU and the
// one rounding into D.
#pragma once

#include <cstdint>

#include "interface/ops.hpp"

namespace mp::backends::host {

// D = round(gelu(alpha * product + beta * C + bias)); `product` is dense, batch by batch.
void apply_epilogue(const GemmDesc& op, const GemmBuffers& buffers, const float* product,
                    int32_t threads) noexcept;

} // namespace mp::backends::host
