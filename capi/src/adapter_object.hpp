// SPDX-License-Identifier: Apache-2.0
// What the calls of adapter.h over tensors and over plain memory have in common.
#pragma once

#include <memory>

#include "objects.hpp"

namespace mp::capi {

// The rank is 0 where the descriptor leaves it to a.
linear::AdapterOptions options_of(const mp_adapter_desc* desc);
mp_status make_adapter(const std::shared_ptr<LinearObject>& base, mp_recipe* recipe,
                       linear::AdapterOptions options, const std::shared_ptr<Tensor>& a,
                       const std::shared_ptr<Tensor>& b, mp_adapter** out);
// Null: there is none, or it is not wanted.
void set_magnitude(AdapterObject& adapter, std::shared_ptr<Tensor> magnitude,
                   std::shared_ptr<Tensor> gradient);
// Null: not wanted.
void set_grads(AdapterObject& adapter, std::shared_ptr<Tensor> da, std::shared_ptr<Tensor> db);

} // namespace mp::capi
