// SPDX-License-Identifier: Apache-2.0
// A pass over a layer with its adapters (LoRA, arXiv 2106.09685): y = x w^T + bias, and for each adapter + scale (x a^T) b^T.
// Where it has a magnitude the sum is scaled by it (magnitude.hpp).
// An adapter is two layers of its own: a [r, in] of x, and b [out, r], whose products are scaled, of what a gives. Both have
// their own formats, scales and passes; what both layers and the base read is x as it is.
#pragma once

#include <memory>
#include <vector>

#include "linear/linear.hpp"
#include "linear/magnitude.hpp"

namespace mp::linear {

struct AdapterPass {
    Linear* a = nullptr;
    Linear* b = nullptr;
    Saved* saved_a = nullptr; // null: an evaluation
    Saved* saved_b = nullptr;
    Tensor* da = nullptr; // null: not wanted
    Tensor* db = nullptr;
    Magnitude magnitude; // of one that is alone
};

struct LayerPass {
    Linear* base = nullptr;
    Saved* saved = nullptr;
    std::vector<AdapterPass> adapters;
};

// The adapter whose magnitude scales the sum, or null. Throws where it is not the only one.
const AdapterPass* scaling_adapter(const LayerPass& pass);

// As Linear::forward(). Throws before anything is changed.
void forward(Stream& stream, const LayerPass& pass, const std::shared_ptr<Tensor>& x, Tensor* y,
             Keep keep);
// As Linear::backward(); `accumulate` of the gradients holds for the adapters' too.
void backward(Stream& stream, const LayerPass& pass, const Tensor& dy, Tensor* dx,
              const WeightGradients& gradients);

} // namespace mp::linear
