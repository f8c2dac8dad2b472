// SPDX-License-Identifier: Apache-2.0
// The backend "kokkos": the kernels of accelerators on host memory, by one thread. Slow; for looking at what a GPU would
// compute, on a machine without one.
#include "device/plain_device.hpp"
#include "kokkos/candidates.hpp"
#include "kokkos/runtime.hpp"

namespace mp::backends::kokkos {

namespace {

struct SerialAccess {
    static bool takes_gemm(const GemmDesc& /*op*/, Reason& /*reason*/) noexcept { return true; }

    template <class Body>
    static Status with_space(Device& /*device*/, Queue& /*queue*/, const Body& body) {
        if (const Status status = start(1, -1); !status.ok()) {
            return status;
        }
        body(Kokkos::Serial());
        return {};
    }
};

Status open(const DeviceConfig& config, Device** out) noexcept {
    return PlainDevice::open(config, kName, "Kokkos::Serial", 1, Candidates<SerialAccess>::of, out);
}

constexpr Backend kBackend = {kInterfaceVersion, kName, DeviceKind::host, count_one_device,
                              summarize_host,    open,  shutdown};

} // namespace

const Backend* backend() { return &kBackend; }

} // namespace mp::backends::kokkos
