// SPDX-License-Identifier: Apache-2.0
// What the calls of adapter.h over tensors and over plain memory have in common.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "objects.hpp"

namespace mp::capi {

// a and b, for a layer and the rank of the descriptor.
using AdapterWeights = std::function<std::pair<std::shared_ptr<Tensor>, std::shared_ptr<Tensor>>(
    const linear::Linear& base, int64_t rank)>;
mp_status make_adapter(mp_linear* linear, mp_recipe* recipe, const mp_adapter_desc* desc,
                       const AdapterWeights& weights, mp_adapter** out);
// Null: there is none, or it is not wanted.
void set_magnitude(AdapterObject& adapter, std::shared_ptr<Tensor> magnitude,
                   std::shared_ptr<Tensor> gradient);
// Null: not wanted.
void set_grads(AdapterObject& adapter, std::shared_ptr<Tensor> da, std::shared_ptr<Tensor> db);

} // namespace mp::capi
