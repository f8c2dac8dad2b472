// SPDX-License-Identifier: Apache-2.0
// The GEMM candidates of the host in the order this processor deserves, and how that order came about.
#pragma once

#include "interface/backend.hpp"

namespace mp::backends::host {

CandidateList gemm_candidates(const Device& device) noexcept;

// A JSON object: the measured rates behind the order.
void describe_gemm_ranking(const Device& device, TextLine<2048>& text) noexcept;

} // namespace mp::backends::host
