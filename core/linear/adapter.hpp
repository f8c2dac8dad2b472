// SPDX-License-Identifier: Apache-2.0
// What makes two layers an adapter of a third one (LoRA, arXiv 2106.09685).
#pragma once

#include <string>

#include "linear/linear.hpp"

namespace mp::linear {

struct AdapterOptions {
    std::string name = "default";
    double alpha = 0.0; // 0: the rank
    double dropout = 0.0;
    bool is_rank_stabilized = false; // rsLoRA, arXiv 2312.03732
    int64_t rank = 0;
};

// Of what b gives: alpha / r, or alpha / sqrt(r).
double scale_of(const AdapterOptions& adapter);

// Of 65536 elements of x: the nearest number, at least 1 where the dropout is not 0.
uint32_t drop_below(const AdapterOptions& adapter);

// Of its layers a [r, in] and b [out, r]. Throws for an adapter that this base cannot have.
LinearOptions options_of_a(const Linear& base, const AdapterOptions& adapter);
LinearOptions options_of_b(const Linear& base, const AdapterOptions& adapter);

} // namespace mp::linear
