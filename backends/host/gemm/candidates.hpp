// SPDX-License-Identifier: Apache-2.0
// The GEMM candidates of the host, best first on this processor.
#pragma once

#include "device/backend.hpp"

namespace mp::backends::host {

// By ranking.hpp, then the simple product, which takes everything. The list stays for the process.
CandidateList gemm_candidates() noexcept;

// Whether products of bf16 are clearly faster than those of fp32.
bool has_fast_bf16() noexcept;

// The row of the table that the order comes from. Static text.
const char* gemm_processor() noexcept;

} // namespace mp::backends::host
