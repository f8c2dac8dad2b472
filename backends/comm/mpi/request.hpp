// SPDX-License-Identifier: Apache-2.0
// The collectives in flight: which channels each one has, and in which order.
#pragma once

#include "transport/transport.hpp"

namespace mp::comm {

class MpiTransport;

// Makes the request of a collective and starts it. Throws std::bad_alloc or Error.
TransportRequest* start_request(MpiTransport& transport, const Collective& what);

} // namespace mp::comm
