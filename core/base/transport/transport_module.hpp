// SPDX-License-Identifier: Apache-2.0
// Transports that live in modules: what a module is asked for, and its one symbol for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.hpp"

namespace mp {

class Device;

// What a transport is made from. Each module says which fields it reads.
struct TransportConfig {
    const void* native = nullptr;    // the address of the caller's own communicator
    const void* unique_id = nullptr; // what ranks that have none find each other by
    int32_t rank = 0;
    int32_t size = 0;
    int64_t deadline_ms = 0;  // of the making
    Device* device = nullptr; // lives as long as the transport
};

inline constexpr std::size_t kUniqueIdBytes = 128;

struct TransportModule {
    uint32_t version = kTransportVersion;
    const char* name = nullptr;
    Status (*create)(const TransportConfig& config, Transport** out) noexcept = nullptr;
    // Fills kUniqueIdBytes; may be null.
    Status (*unique_id)(void* id) noexcept = nullptr;
    // Ends what the module began for the whole process; may be null.
    void (*shutdown)() noexcept = nullptr;
};

// Returns null when the module cannot serve this kTransportVersion.
using TransportEntry = const TransportModule* (*)(uint32_t version);
inline constexpr const char* kTransportEntryName = "mp_transport_entry_v1";

} // namespace mp
