// SPDX-License-Identifier: Apache-2.0
// The entry of the reference backend: always one device.
#include "reference/backend.hpp"

#include <new>

#include "reference/candidates.hpp"
#include "reference/device.hpp"

namespace mp::backends::reference {

namespace {

Status device_count(int32_t* count) noexcept {
    *count = 1;
    return {};
}

Status open(const DeviceConfig& config, Device** out) noexcept {
    *out = nullptr;
    if (config.device_index != 0) {
        return Status::error(Code::device_unavailable,
                             "reference: device %d was asked for, but there is only device 0",
                             static_cast<int>(config.device_index));
    }
    *out = new (std::nothrow) ReferenceDevice(config);
    if (*out == nullptr) {
        return Status::error(Code::out_of_memory, "reference: no memory for a device");
    }
    return {};
}

constexpr Backend kBackend = {
    kInterfaceVersion, kName, DeviceKind::host, device_count, open, nullptr,
};

} // namespace

const Backend* backend() noexcept { return &kBackend; }

} // namespace mp::backends::reference
