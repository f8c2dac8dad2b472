// SPDX-License-Identifier: Apache-2.0
// Starting and ending this binary's own Kokkos.
#include "kokkos/runtime.hpp"

// ExecSpaceManager, below, is in a header that Kokkos keeps for itself and for the libraries that
// wrap it.
#define KOKKOS_IMPL_PUBLIC_INCLUDE
#include <Kokkos_Core.hpp>
#include <impl/Kokkos_ExecSpaceManager.hpp>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace mp::backends::kokkos {

namespace {

enum class State { never_started, running, ended };

std::mutex state_mutex;
std::atomic<State> state{State::never_started};
// False where the Kokkos library is shared with the program and was the program's first.
bool is_ours = false;

Kokkos::InitializationSettings settings_of(int32_t num_threads, int32_t device_id) {
    Kokkos::InitializationSettings settings;
    settings.set_num_threads(num_threads > 0 ? num_threads : 1)
        .set_disable_warnings(true)
        .set_print_configuration(false)
        .set_tune_internals(false);
    if (device_id >= 0) {
        settings.set_device_id(device_id);
    }
    return settings;
}

// What Kokkos::initialize(settings) does, except that it reads the environment first: a
// KOKKOS_NUM_THREADS that is no number would end the process, and KOKKOS_TOOLS_LIBS would load a
// tool of the program's into us.
void start_spaces(const Kokkos::InitializationSettings& settings) {
    Kokkos::Tools::Experimental::pause_tools();
    Kokkos::Impl::pre_initialize(settings);
    Kokkos::Impl::ExecSpaceManager::get_instance().initialize_spaces(settings);
    Kokkos::Tools::Experimental::resume_tools();
    Kokkos::Impl::post_initialize(settings);
}

Status try_initialize(int32_t num_threads, int32_t device_id) noexcept {
    try {
        start_spaces(settings_of(num_threads, device_id));
        return {};
    } catch (const std::exception& error) {
        return Status::error(Code::kokkos_error, "kokkos: it did not start: %s", error.what());
    } catch (...) {
        return Status::error(Code::kokkos_error, "kokkos: it did not start");
    }
}

// In a thread of its own: starting the OpenMP space sets the calling thread's number of OpenMP
// threads, leaves it a pool of idle ones, and fails inside a parallel region. An accelerator's
// space, though, belongs to the calling thread's current device.
Status initialize_apart(int32_t num_threads, int32_t device_id) noexcept {
#if defined(KOKKOS_ENABLE_OPENMP)
    Status status;
    try {
        std::thread thread([&] { status = try_initialize(num_threads, device_id); });
        thread.join();
        return status;
    } catch (const std::exception& error) {
        return Status::error(Code::kokkos_error, "kokkos: no thread to start it in: %s",
                             error.what());
    }
#else
    return try_initialize(num_threads, device_id);
#endif
}

Status refuse_after_shutdown() noexcept {
    return Status::error(
        Code::bad_state,
        "kokkos: the library was shut down; it cannot be used again in this process");
}

} // namespace

Status start(int32_t num_threads, int32_t device_id) noexcept {
    if (state.load(std::memory_order_acquire) == State::running) {
        return {};
    }
    const std::lock_guard<std::mutex> lock(state_mutex);
    switch (state.load(std::memory_order_relaxed)) {
    case State::running:
        return {};
    case State::ended:
        return refuse_after_shutdown();
    case State::never_started:
        break;
    }
    if (Kokkos::is_finalized()) {
        return refuse_after_shutdown();
    }
    if (!Kokkos::is_initialized()) {
        const Status status = initialize_apart(num_threads, device_id);
        if (!status.ok()) {
            return status;
        }
        is_ours = true;
    }
    state.store(State::running, std::memory_order_release);
    return {};
}

bool is_running() noexcept { return state.load(std::memory_order_acquire) == State::running; }

void shutdown() noexcept {
    const std::lock_guard<std::mutex> lock(state_mutex);
    const State before = state.exchange(State::ended);
    if (before == State::running && is_ours) {
        try {
            Kokkos::finalize();
        } catch (...) { // NOLINT(bugprone-empty-catch): nobody is left to notify
        }
    }
}

} // namespace mp::backends::kokkos
