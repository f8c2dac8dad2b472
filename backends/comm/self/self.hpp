// SPDX-License-Identifier: Apache-2.0
// The transport of one rank: everything it sends, it receives.
#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace mp::comm {

std::unique_ptr<Transport> make_self_transport();

} // namespace mp::comm
