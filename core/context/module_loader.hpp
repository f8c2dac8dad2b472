// SPDX-License-Identifier: Apache-2.0
// Modules: backends in shared libraries of their own, opened on first use. Looked for in
// MIXEDPREC_MODULE_PATH (a list with ':'), then beside this library or the program that it is linked into, then by the
// system's loader; never in the current folder, unless that list names it.
#pragma once

#include <string>

#include "device/backend.hpp"
#include "transport/transport_module.hpp"

namespace mp {

// "libmixedprec-<name>.so"; throws module_not_found or version_mismatch, saying what to do. Never unloaded.
const Backend& load_module(const std::string& name);
// The transport in that module, likewise.
const TransportModule& load_transport(const std::string& name);

} // namespace mp
