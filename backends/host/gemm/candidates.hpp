// SPDX-License-Identifier: Apache-2.0
// The GEMM candidates of the host, best first on this processor, and how that order came about.
#pragma once

#include "interface/backend.hpp"

namespace mp::backends::host {

class HostDevice;

// Measured at the first question of the process, a few milliseconds; the same order from then on.
CandidateList gemm_candidates(const HostDevice& device) noexcept;

// The best measured rate of bf16 products over that of fp32 ones.
double bf16_speedup(const HostDevice& device) noexcept;

// A JSON object: the order, the measured rates behind it, and the rule.
void describe_gemm_ranking(const HostDevice& device, TextLine<1024>& text) noexcept;

} // namespace mp::backends::host
