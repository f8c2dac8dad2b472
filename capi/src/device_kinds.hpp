// SPDX-License-Identifier: Apache-2.0
// A caller's number of a device kind, and the kinds in words.
#pragma once

#include "device/device_kinds.hpp"

namespace mp::capi {

// The kind of an MP_DEVICE_* but the default one; throws invalid_argument with the numbers there are.
DeviceKind device_kind_of(int32_t number);

// The kind whose module has this transport; throws internal where none has.
const DeviceKindRow& kind_with_transport(const char* transport);

} // namespace mp::capi
