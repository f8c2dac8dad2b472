// SPDX-License-Identifier: Apache-2.0
// What the machine can do, as a measure for how fast a training is; and what a training needs and took of its memory.
#pragma once

#include "params.hpp"

namespace train {

// Floating-point operations per second of the fastest matrix product that the library makes here: 1024 x 1024 x 1024 in fp32
// and in bf16, the best of a few; smaller ones where a machine is slow. Takes a fraction of a second.
double measured_peak(const Options& options);

// Operations of a training step for one token (PaLM, appendix B): 6 for each weight of a matrix product, and 12 layers
// x context x dim for attention's scores.
double operations_per_token(const Options& options);

// Bytes by class, before the first step, and how to need fewer where that is worth it.
std::string memory_text(const Params& params, const mp_memory_report& held);

// The most this process had resident, in bytes.
int64_t peak_memory();

} // namespace train
