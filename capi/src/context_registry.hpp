// SPDX-License-Identifier: Apache-2.0
// What outlives contexts: how many are alive, which modules are loaded, whether the library has been shut down.
#pragma once

#include <memory>

#include "context/context.hpp"
#include "transport/transport_module.hpp"

namespace mp::capi {

// The backend of a device kind: compiled in, or from its module, which is loaded here on first use.
const Backend& backend_of(DeviceKind kind, const std::string& host_backend);

// A context that counts as alive until its last reference goes; `keep` lives as long.
std::shared_ptr<Context> open_context(const ContextOptions& options,
                                      const std::shared_ptr<void>& keep);

// Ends the run-time systems of all backends; throws bad_state while a context is alive.
void shutdown_backends();

// The transport in a module, which shutdown_backends ends.
const TransportModule& transport_of(const std::string& module);

} // namespace mp::capi
