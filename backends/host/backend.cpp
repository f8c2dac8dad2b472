// SPDX-License-Identifier: Apache-2.0
// The entry of the host backend: the CPU, always one device.
#include "host/backend.hpp"

#include "device/plain_device.hpp"
#include "host/device.hpp"
#include "host/kernels/isa.hpp"

namespace mp::backends::host {

namespace {

Status open(const DeviceConfig& config, Device** out) noexcept {
    *out = nullptr;
    if (config.device_index != 0) {
        return Status::error(Code::device_unavailable,
                             "host: device %d was asked for; there is only device 0",
                             static_cast<int>(config.device_index));
    }
    if (const Status status = select_isa_from_environment(); !status.ok()) {
        return status;
    }
    return HostDevice::open(config, out);
}

constexpr Backend kBackend = {kInterfaceVersion, "host", DeviceKind::host, count_one_device,
                              summarize_host,    open,   nullptr};

} // namespace

const Backend* backend() { return &kBackend; }

} // namespace mp::backends::host
