// SPDX-License-Identifier: Apache-2.0
// The entry of the module libmixedprec-mpi.so: makes a transport over the caller's MPI communicator, or over all ranks.
#include <cstdlib>

#include "comm/mpi/transport.hpp"
#include "comm/mpi/ulfm.hpp"
#include "status/guarded.hpp"
#include "transport/transport_module.hpp"

namespace mp::comm {
namespace {

constexpr int64_t kNsPerMs = 1000000;

// Ranks may have died, and then MPI_Finalize waits for them for ever.
void finalize() noexcept {
    ProcessState& state = process_state();
    Notices::end_those_left();
    if (state.is_initialized_by_us && mpi_is_alive() && !state.has_broken && state.live == 0) {
        state.is_initialized_by_us = false;
        (void)MPI_Finalize();
    }
}

Status initialize() noexcept {
    Status status = check_not_finalized();
    int is_initialized = 0;
    (void)MPI_Initialized(&is_initialized);
    if (!status.ok() || is_initialized != 0) {
        return status;
    }
    publish_mpi();
    int provided = MPI_THREAD_SINGLE;
    // A communicator of ours is used by one thread at a time, but the thread that moves gradients on knows nothing of
    // the program's other communicators, nor of its own calls of MPI.
    status = mpi_status(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided),
                        "MPI_Init_thread");
    if (status.ok()) {
        process_state().is_initialized_by_us = true;
        (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        (void)std::atexit([] { finalize(); });
    }
    return status;
}

// A duplicate, which keeps our messages apart from the caller's, within the deadline.
Status duplicate(MPI_Comm from, int64_t deadline_ms, MPI_Comm* out) {
    // MPI writes them when it likes: not on the stack, and not freed when it did not come to an end.
    struct Pending {
        MPI_Comm copy = MPI_COMM_NULL;
        MPI_Request request = MPI_REQUEST_NULL;
    };
    auto pending = std::make_unique<Pending>();
    const int64_t until = monotonic_ns() + deadline_ms * kNsPerMs;
    Status status =
        mpi_status(MPI_Comm_idup(from, &pending->copy, &pending->request), "MPI_Comm_idup");
    int done = 0;
    while (status.ok() && done == 0) {
        status = mpi_status(MPI_Test(&pending->request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
        if (done == 0 && monotonic_ns() > until) {
            status = Status::error(Code::timeout,
                                   "not all ranks of the MPI communicator came within %lld ms",
                                   static_cast<long long>(deadline_ms));
        }
    }
    if (!status.ok()) {
        process_state().has_broken = true;
        (void)pending.release();
        return status; // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): see above
    }
    *out = pending->copy;
    return mpi_status(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

Status create_checked(const TransportConfig& config, Transport** out) {
    check(initialize());
    Notices::end_those_left();
    MPI_Comm from = MPI_COMM_WORLD;
    if (config.native != nullptr) {
        from = *static_cast<const MPI_Comm*>(config.native);
    }
    if (from == MPI_COMM_NULL) {
        return Status::error(Code::invalid_argument, "the MPI communicator is MPI_COMM_NULL");
    }
    MPI_Comm copy = MPI_COMM_NULL;
    check(duplicate(from, config.deadline_ms, &copy));
    int rank = 0;
    int size = 0;
    check(mpi_status(MPI_Comm_rank(copy, &rank), "MPI_Comm_rank"));
    check(mpi_status(MPI_Comm_size(copy, &size), "MPI_Comm_size"));
    MpiGroup group;
    group.rank = rank;
    for (int member = 0; member < size; ++member) {
        group.members.push_back(member);
    }
    *out = new MpiTransport(std::make_shared<Base>(copy), std::move(group));
    return {};
}

Status create(const TransportConfig& config, Transport** out) noexcept {
    return guarded("a transport", [&] { return create_checked(config, out); });
}

constexpr TransportModule kModule = {kTransportVersion, "mpi", create, nullptr, finalize};

} // namespace
} // namespace mp::comm

extern "C" [[gnu::visibility("default")]] const mp::TransportModule*
mp_transport_entry_v1(uint32_t version);

extern "C" const mp::TransportModule* mp_transport_entry_v1(uint32_t version) {
    return version == mp::kTransportVersion ? &mp::comm::kModule : nullptr;
}
