// SPDX-License-Identifier: Apache-2.0
// A module for tests alone: the kernels of accelerators on Kokkos::OpenMP, whose teams have as many threads as the device is
// opened with. Kokkos::Serial, which is shipped, has teams of one: there no kernel could forget a barrier and fail.
#include <array>
#include <mutex>
#include <optional>
#include <thread>

#include "device/plain_device.hpp"
#include "kokkos/candidates.hpp"
#include "kokkos/runtime.hpp"

namespace mp::backends::kokkos {

namespace {

using Space = Kokkos::OpenMP;

constexpr int32_t kMost = 4;

// One for each number of threads. Never destroyed: Kokkos ends with the process.
class Spaces {
  public:
    static Spaces& get() {
        static Spaces& spaces = *new Spaces;
        return spaces;
    }
    const Space& of(int32_t threads) {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::optional<Space>& space = items_[static_cast<std::size_t>(threads - 1)];
        if (!space.has_value()) {
            // An instance remembers how deep in parallel regions it was made.
            std::thread([&] { space.emplace(threads); }).join();
        }
        return *space;
    }

  private:
    std::mutex mutex_;
    std::array<std::optional<Space>, kMost> items_;
};

struct OpenMpAccess {
    static bool takes_gemm(const GemmDesc& /*op*/, Reason& /*reason*/) noexcept { return true; }

    template <class Body>
    static Status with_space(Device& device, Queue& /*queue*/, const Body& body) {
        if (const Status status = start(kMost, -1); !status.ok()) {
            return status;
        }
        body(Spaces::get().of(device.num_threads()));
        return {};
    }
};

Status open(const DeviceConfig& config, Device** out) noexcept {
    const int32_t threads = config.num_threads > 0 ? config.num_threads : kMost;
    if (threads > kMost) {
        return Status::error(Code::invalid_argument, "kokkos_openmp: 1 to %d threads", kMost);
    }
    return PlainDevice::open(config, "kokkos_openmp", "Kokkos::OpenMP", threads,
                             Candidates<OpenMpAccess>::of, out);
}

constexpr Backend kBackend = {kInterfaceVersion, "kokkos_openmp", DeviceKind::host,
                              count_one_device,  summarize_host,  open,
                              shutdown};

} // namespace

} // namespace mp::backends::kokkos

extern "C" __attribute__((visibility("default"))) const mp::Backend*
mp_module_entry_v1(uint32_t version) {
    return version == mp::kInterfaceVersion ? &mp::backends::kokkos::kBackend : nullptr;
}
