// SPDX-License-Identifier: Apache-2.0
#include "cuda/kokkos_space.cuh"

#include <exception>
#include <functional>
#include <iostream>
#include <thread>

#include "cuda/error.hpp"
#include "kokkos/runtime.hpp"

namespace mp::backends::cuda {

namespace {

// Runs in a thread of its own: where Kokkos makes an instance on a stream, it pushes the stream's
// context and leaves it on the calling thread's stack of contexts (4.7.0).
Status make(int device, cudaStream_t stream, KokkosSpace** out) noexcept {
    try {
        check(cuda_status(cudaSetDevice(device), "entering the device"));
        check(kokkos::start(1, device));
#if defined(MP_OWN_CXX_LIBRARY)
        // Kokkos complains at exit that it was not finalized, and we print nothing. This is the
        // stream of this binary's own copy of the C++ library, not the program's.
        std::cerr.setstate(std::ios_base::failbit);
#endif
        *out = new KokkosSpace(stream);
        return {};
    } catch (const Error& error) {
        return error.status();
    } catch (const std::exception& error) {
        (void)cudaGetLastError();
        return Status::error(Code::kokkos_error, "cuda: Kokkos has no instance for a stream: %s",
                             error.what());
    } catch (...) {
        (void)cudaGetLastError();
        return Status::error(Code::kokkos_error, "cuda: Kokkos has no instance for a stream");
    }
}

} // namespace

Status make_kokkos_space(cudaStream_t stream, KokkosSpace** out) noexcept {
    *out = nullptr;
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) {
        return cuda_status(error, "asking for the current device");
    }
    Status status;
    try {
        // The cast: nvcc 13.0 takes an assignment for a status that nobody looks at.
        std::thread([&] { (void)(status = make(device, stream, out)); }).join();
    } catch (const std::exception& error) {
        return Status::error(Code::internal, "cuda: no thread can be made: %s", error.what());
    }
    return status;
}

void destroy_kokkos_space(KokkosSpace* space) noexcept {
    if (kokkos::is_running()) { // otherwise its memory went with the rest of Kokkos
        delete space;
    }
}

void shut_down_kokkos() noexcept {
    if (!kokkos::is_running()) {
        kokkos::shutdown(); // so that it does not start any more; touches no device
        return;
    }
    try {
        std::thread(kokkos::shutdown).join(); // it moves its thread to another device
    } catch (const std::exception&) {         // no thread: then it ends with the process
    }
}

} // namespace mp::backends::cuda
