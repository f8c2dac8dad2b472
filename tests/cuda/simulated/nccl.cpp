// SPDX-License-Identifier: Apache-2.0
// NCCL's functions over the simulated runtime: ranks are threads of one process, each with a device of its own, and kernels
// that wait for each other in streams that are threads. As late as NCCL may be: every call goes on in a thread for a while, the
// handle of a split is written at its end, and until then no call may be made for the communicator. What must not be is counted.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "comm/nccl/api.hpp"
#include "nccl_kernel.hpp"
#include "nccl_order.hpp"
#include "state.hpp"

namespace mp::simulated {

namespace {

using comm::NcclConfig;
using comm::NcclResult;
using comm::NcclUniqueId;

constexpr NcclResult kInvalidUsage = 5;

struct Communicator {
    std::shared_ptr<NcclRanks> ranks;
    int rank = 0;
    int device = 0;
    int splits = 0;
    std::vector<NcclPart> group; // until ncclGroupEnd
    cudaStream_t stream = nullptr;
    std::thread background;
    std::atomic<NcclResult> state = comm::kNcclSuccess;
    std::atomic<bool> is_given_up = false;
    std::atomic<int64_t> running = 0; // kernels
    std::atomic<bool> is_dead = false;

    ~Communicator() {
        if (background.joinable()) {
            background.join();
        }
    }
};

// Ranks that come together to become communicators. Lives as long as one of them waits.
struct Meeting {
    struct Guest {
        int color = 0;
        int key = 0;
        std::shared_ptr<NcclRanks> ranks; // what it gets: none with a color below 0
        int rank = -1;
    };
    std::map<int, Guest> guests; // by their present rank
    bool is_complete = false;
};

struct Nccl {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::shared_ptr<Meeting>> meetings;
    std::deque<Communicator> made; // none is forgotten: its use after its end is to be seen
    int64_t numbers = 0;
    NcclOrders orders;
    std::atomic<int64_t> faults = 0;
    std::minstd_rand random;

    void nap() {
        int64_t us = 0;
        {
            const std::lock_guard lock(mutex);
            us = static_cast<int64_t>(random() % 500);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
};

Nccl& nccl_here() {
    static Nccl instance;
    return instance;
}

NcclResult fault() noexcept {
    ++nccl_here().faults;
    return kInvalidUsage;
}

// The communicator of a call that needs it alive and idle; none where it is not.
Communicator* idle(comm::NcclComm handle) noexcept {
    auto* const comm = static_cast<Communicator*>(handle);
    return comm != nullptr && !comm->is_dead && comm->state == comm::kNcclSuccess ? comm : nullptr;
}

NcclResult begin_work(Communicator& comm, std::function<void()> job) {
    if (comm.background.joinable()) {
        comm.background.join(); // it has ended
    }
    comm.state = comm::kNcclInProgress;
    comm.background = std::thread([&comm, job = std::move(job)] {
        (void)cudaSetDevice(comm.device);
        nccl_here().nap();
        job();
        nccl_here().nap();
        comm.state = comm::kNcclSuccess;
    });
    return comm::kNcclInProgress;
}

// ---- making communicators --------------------------------------------------------------------------

std::string name_of(const NcclUniqueId& id) { return {id.internal, sizeof id.internal}; }

// All have come: those of one color, by key and rank, are a communicator.
void seat(Meeting& meeting) {
    std::map<int, std::map<std::pair<int, int>, Meeting::Guest*>> colors;
    for (auto& [rank, guest] : meeting.guests) {
        if (guest.color >= 0) {
            colors[guest.color][{guest.key, rank}] = &guest;
        }
    }
    for (auto& [color, members] : colors) {
        const auto ranks =
            std::make_shared<NcclRanks>(++nccl_here().numbers, static_cast<int>(members.size()));
        int rank = 0;
        for (auto& [place, guest] : members) {
            guest->ranks = ranks;
            guest->rank = rank++;
        }
    }
    meeting.is_complete = true;
}

// Waits for `size` ranks, or until it is given up: then there are no ranks.
Meeting::Guest attend(const std::string& name, int size, int rank, const Meeting::Guest& guest,
                      const std::atomic<bool>& is_given_up) {
    Nccl& nccl = nccl_here();
    std::unique_lock lock(nccl.mutex);
    std::shared_ptr<Meeting>& known = nccl.meetings[name];
    if (known == nullptr) {
        known = std::make_shared<Meeting>();
    }
    const std::shared_ptr<Meeting> meeting = known;
    meeting->guests[rank] = guest;
    if (static_cast<int>(meeting->guests.size()) == size) {
        seat(*meeting);
        nccl.meetings.erase(name);
        nccl.changed.notify_all();
    }
    nccl.changed.wait(lock, [&] { return meeting->is_complete || is_given_up.load(); });
    return meeting->guests[rank];
}

Communicator& new_communicator(int device) {
    const std::lock_guard lock(nccl_here().mutex);
    Communicator& comm = nccl_here().made.emplace_back();
    comm.device = device;
    return comm;
}

// ---- calls between ncclGroupStart and ncclGroupEnd ---------------------------------------------------

struct OpenGroup {
    int depth = 0;
    std::vector<Communicator*> comms;
};
thread_local OpenGroup open_group;

NcclResult add_part(comm::NcclComm handle, void* stream, const NcclPart& part) {
    Communicator* const comm = idle(handle);
    if (comm == nullptr || open_group.depth != 1 || (part.from == nullptr && part.to == nullptr)) {
        return fault();
    }
    const auto is_there = [&](const void* memory) {
        return memory == nullptr || is_on_device(memory, part.bytes);
    };
    if (!is_there(part.from) || !is_there(part.to)) {
        return fault();
    }
    if (comm->group.empty()) {
        comm->stream = static_cast<cudaStream_t>(stream);
        open_group.comms.push_back(comm);
    } else if (comm->stream != stream) {
        return fault(); // allowed, but not by us
    }
    comm->group.push_back(part);
    return comm::kNcclSuccess;
}

// Into the stream that it was called for, in the thread that goes on with the call.
void launch(Communicator& comm, const std::vector<NcclPart>& parts) {
    nccl_here().orders.add(comm.device, comm.ranks->number(), comm.rank, parts);
    ++comm.running;
    const bool is_enqueued = enqueue(comm.stream, [&comm, parts] {
        comm.ranks->run(comm.rank, parts, comm.is_given_up);
        --comm.running;
    });
    if (!is_enqueued) {
        --comm.running;
        (void)fault();
    }
}

template <typename Number>
NcclResult tell(comm::NcclComm handle, int* out, const Number& number) noexcept {
    const Communicator* const comm = idle(handle);
    if (comm == nullptr) {
        return fault();
    }
    *out = number(*comm);
    return comm::kNcclSuccess;
}

std::size_t bytes_of_type(std::size_t count, int type) noexcept {
    return type == comm::kNcclUint8 ? count : 4 * count;
}

} // namespace
} // namespace mp::simulated

using namespace mp::simulated;
using mp::comm::NcclComm;

#pragma GCC visibility push(default)
extern "C" {

int64_t mp_simulated_nccl_mistakes() {
    return nccl_here().faults + NcclRanks::mismatches() + nccl_here().orders.stuck();
}

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
NcclResult ncclGetVersion(int* version) {
    *version = 22809;
    return mp::comm::kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult) { return "simulated"; }
const char* ncclGetLastError(NcclComm) { return "simulated"; }

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
    const std::lock_guard lock(nccl_here().mutex);
    *id = {};
    (void)std::snprintf(id->internal, sizeof id->internal, "%lld",
                        static_cast<long long>(++nccl_here().numbers));
    return mp::comm::kNcclSuccess;
}

NcclResult ncclCommInitRankConfig(NcclComm* out, int size, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
    if (config->blocking != 0 || current_context() == nullptr) {
        return fault();
    }
    Communicator& comm = new_communicator(current_context()->device);
    *out = &comm;
    return begin_work(comm, [&comm, size, id, rank] {
        const Meeting::Guest guest =
            attend(name_of(id), size, rank, {0, rank, nullptr, -1}, comm.is_given_up);
        comm.ranks = guest.ranks;
        comm.rank = guest.rank;
    });
}

NcclResult ncclCommGetAsyncError(NcclComm handle, NcclResult* state) {
    auto* const comm = static_cast<Communicator*>(handle);
    if (comm == nullptr || comm->is_dead) {
        return fault();
    }
    *state = comm->state;
    return mp::comm::kNcclSuccess;
}

// The handle is none until the end, which a thread writes, also when the parent is given up.
NcclResult ncclCommSplit(NcclComm handle, int color, int key, NcclComm* out, NcclConfig*) {
    Communicator* const parent = idle(handle);
    if (parent == nullptr) {
        return fault();
    }
    *out = nullptr;
    const std::string name = "split " + std::to_string(parent->splits++) + " of " +
                             std::to_string(parent->ranks->number());
    return begin_work(*parent, [parent, name, color, key, out] {
        const Meeting::Guest guest = attend(name, parent->ranks->size(), parent->rank,
                                            {color, key, nullptr, -1}, parent->is_given_up);
        nccl_here().nap();
        if (color >= 0) {
            Communicator& child = new_communicator(parent->device);
            child.ranks = guest.ranks;
            child.rank = guest.rank;
            std::atomic_ref<NcclComm>(*out).store(&child, std::memory_order_release);
        }
    });
}

NcclResult ncclCommFinalize(NcclComm handle) {
    Communicator* const comm = idle(handle);
    if (comm == nullptr) {
        return fault();
    }
    return begin_work(*comm, [comm] {
        while (comm->running != 0 && !comm->is_given_up) {
            nccl_here().nap();
        }
    });
}

NcclResult ncclCommDestroy(NcclComm handle) {
    Communicator* const comm = idle(handle);
    if (comm == nullptr) {
        return fault();
    }
    comm->is_dead = true;
    return mp::comm::kNcclSuccess;
}

// Ends its kernels, and joins the thread that goes on with its last call. Waits for its stream, so for all that is before them.
NcclResult ncclCommAbort(NcclComm handle) {
    auto* const comm = static_cast<Communicator*>(handle);
    if (comm == nullptr || comm->is_dead) {
        return fault();
    }
    comm->is_given_up = true;
    {
        const std::lock_guard lock(nccl_here().mutex);
        nccl_here().changed.notify_all();
    }
    if (comm->background.joinable()) {
        comm->background.join();
    }
    if (comm->ranks != nullptr) {
        comm->ranks->wake();
    }
    while (comm->running != 0) {
        nccl_here().nap();
    }
    comm->is_dead = true;
    return mp::comm::kNcclSuccess;
}

NcclResult ncclCommCount(NcclComm comm, int* count) {
    return tell(comm, count, [](const Communicator& it) { return it.ranks->size(); });
}
NcclResult ncclCommUserRank(NcclComm comm, int* rank) {
    return tell(comm, rank, [](const Communicator& it) { return it.rank; });
}
NcclResult ncclCommCuDevice(NcclComm comm, int* device) {
    return tell(comm, device, [](const Communicator& it) { return it.device; });
}

NcclResult ncclGroupStart() { return ++open_group.depth == 1 ? mp::comm::kNcclSuccess : fault(); }

NcclResult ncclGroupEnd() {
    --open_group.depth;
    NcclResult result = mp::comm::kNcclSuccess;
    for (Communicator* comm : std::exchange(open_group.comms, {})) {
        result = begin_work(
            *comm, [comm, parts = std::exchange(comm->group, {})] { launch(*comm, parts); });
    }
    return result;
}

NcclResult ncclSend(const void* from, std::size_t count, int type, int peer, NcclComm comm,
                    void* stream) {
    return add_part(comm, stream,
                    {NcclPart::send, from, nullptr, bytes_of_type(count, type), type, 0, peer});
}
NcclResult ncclRecv(void* to, std::size_t count, int type, int peer, NcclComm comm, void* stream) {
    return add_part(comm, stream,
                    {NcclPart::receive, nullptr, to, bytes_of_type(count, type), type, 0, peer});
}
NcclResult ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root,
                         NcclComm handle, void* stream) {
    const auto* comm = static_cast<Communicator*>(handle);
    const bool is_root = comm != nullptr && comm->rank == root;
    return add_part(handle, stream,
                    {NcclPart::broadcast, is_root ? from : nullptr, to, bytes_of_type(count, type),
                     type, 0, root});
}
NcclResult ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                         NcclComm comm, void* stream) {
    return add_part(
        comm, stream,
        {NcclPart::all_reduce, from, to, bytes_of_type(count, type), type, operation, 0});
}

// NOLINTEND(readability-identifier-naming)
} // extern "C"
#pragma GCC visibility pop
