// SPDX-License-Identifier: Apache-2.0
// Loading a checkpoint of another recipe: through an optimizer of the saved recipe and fp32, and what that loses.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/parts.hpp"

namespace mp::checkpoint {

// |stored now - exact value of the checkpoint|, over all elements of all parameters.
struct Difference {
    double largest = 0.0;
    double rms = 0.0; // root of the mean of squares
};

struct Conversion {
    bool happened = false;
    Difference weights; // fp32_param: with master weight, remainder or compensation
    Difference exp_avg;
    Difference exp_avg_sq;
};

// An optimizer of the recipe in the manifest with the parameters of `target`, for a checkpoint to be loaded into. Throws
// corrupt_data where the recipe is none, invalid_shape or unknown_name where the parameters are others.
std::shared_ptr<Optimizer> make_twin(const Manifest& manifest, const Optimizer& target);

// The numbers of `source`, whose parameters are the same, into `target`: weights, moments, steps, hyperparameters, seed.
Conversion convert(const Optimizer& source, Optimizer& target);

} // namespace mp::checkpoint
