// SPDX-License-Identifier: Apache-2.0
// What there is to know of each kind of device before its backend is opened: device_kinds.def as a table.
#pragma once

#include <cstdint>

namespace mp {

// The numbers of MP_DEVICE_*.
enum class DeviceKind : int32_t {
#define X(kind, label, number, memory, pinned, managed, transport) kind = (number),
#include "device/device_kinds.def"
#undef X
};

struct DeviceKindRow {
    DeviceKind kind;
    const char* name;  // of the backend and its module
    const char* label; // as in MP_DEVICE_<label>, and in messages
    int32_t dlpack_memory;
    int32_t dlpack_pinned;  // the host's
    int32_t dlpack_managed; // 0: none
    const char* transport;  // in its module; "": none
};

inline constexpr DeviceKindRow kDeviceKinds[] = {
#define X(kind, label, number, memory, pinned, managed, transport)                                 \
    {DeviceKind::kind, #kind, #label, memory, pinned, managed, transport},
#include "device/device_kinds.def"
#undef X
};

// Null for a number that is no kind's.
constexpr const DeviceKindRow* find_device_kind(int32_t number) noexcept {
    for (const DeviceKindRow& row : kDeviceKinds) {
        if (static_cast<int32_t>(row.kind) == number) {
            return &row;
        }
    }
    return nullptr;
}

constexpr const DeviceKindRow& row_of(DeviceKind kind) noexcept {
    return *find_device_kind(static_cast<int32_t>(kind));
}

} // namespace mp
