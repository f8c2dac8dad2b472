// SPDX-License-Identifier: Apache-2.0
// A machine for blocks: runs kernels of CUDA's, compiled by the host's compiler, and says what is wrong with them and how
// they use memory. What it sees and what it cannot see is written in docs/gpu.md.
#pragma once

#include <vector>

#include "memory.hpp"
#include "report.hpp"

namespace mp::blocks {

// Of the launches since take_reports() was called last.
std::vector<Report> take_reports();

} // namespace mp::blocks
