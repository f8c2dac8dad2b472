// SPDX-License-Identifier: Apache-2.0
// The entry of the module libmixedprec-hip.so. Loading it, and asking for its entry, calls nothing of HIP.
#include "hip/device.hpp"
#include "hip/kokkos_space.hpp"

namespace mp::backends::hip {

namespace {

constexpr Backend kBackend = {
    kInterfaceVersion, kName,           DeviceKind::hip,  count_devices,
    summarize,         HipDevice::open, shut_down_kokkos,
};

} // namespace

} // namespace mp::backends::hip

extern "C" [[gnu::visibility("default")]] const mp::Backend* mp_module_entry_v1(uint32_t version);

extern "C" const mp::Backend* mp_module_entry_v1(uint32_t version) {
    return version == mp::kInterfaceVersion ? &mp::backends::hip::kBackend : nullptr;
}
