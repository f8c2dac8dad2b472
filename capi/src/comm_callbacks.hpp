// SPDX-License-Identifier: Apache-2.0
// A transport made of the caller's functions.
#pragma once

#include <memory>

#include "mixedprec.h"
#include "transport/transport.hpp"

namespace mp::capi {

// Throws for a table that lacks something; then its destroy is not called.
std::unique_ptr<Transport> make_callback_transport(const mp_comm_callbacks* callbacks);

} // namespace mp::capi
