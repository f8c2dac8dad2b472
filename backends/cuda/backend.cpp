// SPDX-License-Identifier: Apache-2.0
// The entry of the module libmixedprec-cuda.so. Loading it, and asking for its entry, calls nothing
// of CUDA: a host program may still fork.
#include "cuda/candidates.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/kokkos_space.hpp"

namespace mp::backends::cuda {

namespace {

constexpr Backend kBackend = {
    kInterfaceVersion, kName, DeviceKind::cuda, count_devices, summarize, CudaDevice::open,
    shut_down_kokkos,
};

} // namespace

} // namespace mp::backends::cuda

extern "C" [[gnu::visibility("default")]] const mp::Backend* mp_module_entry_v1(uint32_t version);

extern "C" const mp::Backend* mp_module_entry_v1(uint32_t version) {
    return version == mp::kInterfaceVersion ? &mp::backends::cuda::kBackend : nullptr;
}
