// SPDX-License-Identifier: Apache-2.0
// Rows of a layer's weight with its adapters in it, written to a tensor, and what rounding did to them.
#pragma once

#include <span>

#include "linear/layer_pass.hpp"

namespace mp::linear {

struct MergeReport {
    int64_t elements = 0;
    double rms_change = 0.0; // merged - w
    double rms_error = 0.0;  // target - merged
    double max_error = 0.0;
};

// The norms of its rows, to [out].
void measure(Stream& stream, const LayerPass& pass, Tensor& magnitude);

// Rows from `first` on, as many as the target has. It may be the weight. Codes are quantized as a whole. `report` null: it is not
// wanted; else it waits.
void merge(Stream& stream, const LayerPass& pass, int64_t first, Tensor& target,
           MergeReport* report);

} // namespace mp::linear
