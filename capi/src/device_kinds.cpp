// SPDX-License-Identifier: Apache-2.0
#include "device_kinds.hpp"

#include <string>

#include "mixedprec.h"
#include "status/status.hpp"

// Core's numbers are the public ones.
#define X(kind, label, number, memory, pinned, managed, transport)                                 \
    static_assert(MP_DEVICE_##label == (number));
#include "device/device_kinds.def"
#undef X

namespace mp::capi {

DeviceKind device_kind_of(int32_t number) {
    if (const DeviceKindRow* row = find_device_kind(number); row != nullptr) {
        return row->kind;
    }
    std::string kinds;
    for (const DeviceKindRow& row : kDeviceKinds) {
        kinds += kinds.empty() ? "MP_DEVICE_" : ", MP_DEVICE_";
        kinds += row.label;
        kinds += " (" + std::to_string(static_cast<int32_t>(row.kind)) + ")";
    }
    fail(Code::invalid_argument, "device_kind is %d; it must be one of %s", number, kinds.c_str());
}

const DeviceKindRow& kind_with_transport(const char* transport) {
    for (const DeviceKindRow& row : kDeviceKinds) {
        if (std::string(transport) == row.transport) {
            return row;
        }
    }
    fail(Code::internal, "no kind of device has the transport %s", transport);
}

} // namespace mp::capi
