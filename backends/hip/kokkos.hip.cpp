// SPDX-License-Identifier: Apache-2.0
// Compiled by hipcc: the kernels of core/kernels on Kokkos::HIP, on the queue's stream, and the spaces they run in.
#include <exception>
#include <iostream>
#include <memory>

#include "hip/device.hpp"
#include "hip/error.hpp"
#include "hip/kokkos_space.hpp"
#include "hip/queue.hpp"
#include "kokkos/candidates.hpp"
#include "kokkos/runtime.hpp"

namespace mp::backends::hip {

class KokkosSpace {
  public:
    explicit KokkosSpace(hipStream_t stream) : exec_(stream) {}
    [[nodiscard]] const Kokkos::HIP& exec() const noexcept { return exec_; }

  private:
    Kokkos::HIP exec_;
};

namespace {

struct HipAccess {
    static bool takes_gemm(const GemmDesc& /*op*/, Reason& /*reason*/) noexcept { return true; }

    template <class Body>
    static Status with_space(Device& /*device*/, Queue& queue, const Body& body) {
        auto& hip_queue = static_cast<HipQueue&>(queue);
        const DeviceGuard guard(hip_queue.device());
        KokkosSpace* space = nullptr;
        if (Status status = hip_queue.check_health(); !status.ok()) {
            return status;
        }
        if (Status status = hip_queue.kokkos_space(&space); !status.ok()) {
            return status;
        }
        (void)hipGetLastError(); // the program's, perhaps, whose runtime this is too
        try {
            body(space->exec());
        } catch (...) {
            (void)hipGetLastError(); // the exception says what it was
            throw;
        }
        // A kernel that was not launched leaves its results unwritten, and Kokkos does not look.
        return hip_status(hipGetLastError(), "launching a kernel of Kokkos");
    }
};

} // namespace

Status make_kokkos_space(int32_t device, hipStream_t stream, KokkosSpace** out) noexcept {
    *out = nullptr;
    try {
        check(kokkos::start(1, device));
#if defined(MP_OWN_CXX_LIBRARY)
        // Kokkos complains at exit that it was not finalized, and we print nothing. This is the stream of this binary's own
        // copy of the C++ library, not the program's.
        std::cerr.setstate(std::ios_base::failbit);
#endif
        auto space = std::make_unique<KokkosSpace>(stream);
        // Kokkos clears what belongs to it on the null stream, with which a stream of ours does not wait.
        check(hip_status(hipDeviceSynchronize(), "waiting for what prepares the queue"));
        *out = space.release();
        return {};
    } catch (const Error& error) {
        return error.status();
    } catch (const std::exception& error) {
        (void)hipGetLastError();
        return Status::error(Code::kokkos_error, "hip: Kokkos has no instance for a stream: %s",
                             error.what());
    } catch (...) {
        (void)hipGetLastError();
        return Status::error(Code::kokkos_error, "hip: Kokkos has no instance for a stream");
    }
}

void destroy_kokkos_space(KokkosSpace* space) noexcept {
    if (kokkos::is_running()) { // otherwise its memory went with the rest of Kokkos
        delete space;
    }
}

void shut_down_kokkos() noexcept {
    int current = -1;
    const bool is_running = kokkos::is_running(); // if not, nothing of HIP may have been opened
    const bool is_known = is_running && hipGetDevice(&current) == hipSuccess;
    kokkos::shutdown(); // moves its thread to another device
    if (is_known) {
        (void)hipSetDevice(current);
    }
}

CandidateList kokkos_candidates(OpKind kind) noexcept {
    return kokkos::Candidates<HipAccess>::of(kind);
}

} // namespace mp::backends::hip
