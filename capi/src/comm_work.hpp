// SPDX-License-Identifier: Apache-2.0
// Requests of operations that take several messages.
#pragma once

#include "objects.hpp"

namespace mp::capi {

// Keeps it, where it has messages yet to begin, for what is begun next.
void keep_open(const std::shared_ptr<CommRequestObject>& object);
void wait_for(CommRequestObject& object);
// Without waiting for other ranks.
bool is_done(CommRequestObject& object);

} // namespace mp::capi
