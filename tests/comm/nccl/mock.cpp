// SPDX-License-Identifier: Apache-2.0
#include "mock.hpp"

#include <chrono>

namespace mp::test {
namespace {

using comm::NcclComm;
using comm::NcclResult;
using comm::NcclStream;

MockComm* of(NcclComm comm) { return static_cast<MockComm*>(comm); }

MockComm* make_comm() {
    std::deque<MockComm>& comms = script().comms;
    MockComm& made = comms.emplace_back();
    made.number = static_cast<int>(comms.size()) - 1;
    return &made;
}

NcclResult result_of(const std::string& name) {
    const auto found = script().results.find(name);
    return found == script().results.end() ? comm::kNcclSuccess : found->second;
}

// Writes a call down that needs a living, idle communicator; `is_end` also one that is busy.
NcclResult call(const std::string& name, const std::string& words, MockComm& comm,
                bool is_end = false) {
    NcclScript& s = script();
    std::string line = words.empty() ? name : name + " " + words;
    line += comm.number == 0 ? "" : " of comm " + std::to_string(comm.number);
    s.calls.push_back(line);
    if (comm.is_dead) {
        s.errors.push_back(name + " after the communicator's end");
    }
    if ((comm.busy > 0 || comm.is_splitting) && !is_end) {
        s.errors.push_back(name + " while NCCL was busy");
    }
    comm.never_ends = comm.never_ends || s.hangs_in == name;
    return result_of(name);
}

NcclResult call_in_group(const char* name, const std::string& words, NcclComm comm) {
    NcclScript& s = script();
    if (s.group_depth != 1) {
        s.errors.push_back(std::string(name) + " outside of a group");
    }
    s.in_group.insert(of(comm));
    return call(name, words, *of(comm));
}

// After a call that may go on in the background.
NcclResult begin_work(MockComm& comm, NcclResult result) {
    comm.busy = script().busy_polls;
    return result == comm::kNcclSuccess && comm.busy > 0 ? comm::kNcclInProgress : result;
}

NcclResult begin_group() {
    script().calls.emplace_back("GroupStart");
    ++script().group_depth;
    return result_of("GroupStart");
}

NcclResult end_group() {
    NcclScript& s = script();
    s.calls.emplace_back("GroupEnd");
    --s.group_depth;
    NcclResult result = result_of("GroupEnd");
    for (MockComm* comm : s.in_group) {
        comm->never_ends = comm->never_ends || s.hangs_in == "GroupEnd";
        result = begin_work(*comm, result);
    }
    s.in_group.clear();
    return result;
}

// The handle appears at the end, which an abort of the parent brings near.
NcclResult split(NcclComm parent, int color, int key, NcclComm* out, comm::NcclConfig* /*config*/) {
    MockComm& comm = *of(parent);
    const NcclResult result =
        call("CommSplit", std::to_string(color) + " " + std::to_string(key), comm);
    *out = nullptr;
    if (color < 0 || result != comm::kNcclSuccess) {
        return begin_work(comm, result);
    }
    MockComm* const child = make_comm();
    if (comm.splitting.joinable()) {
        comm.splitting.join();
    }
    comm.is_splitting = true;
    comm.splitting =
        std::thread([&comm, child, out, hangs = comm.never_ends, ms = script().split_ms] {
            for (int i = 0; (hangs || i < ms) && !comm.is_aborted; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            std::atomic_ref<NcclComm>(*out).store(child);
            comm.is_splitting = false;
        });
    (void)begin_work(comm, result);
    return comm::kNcclInProgress;
}

NcclResult abort_comm(NcclComm handle) {
    MockComm& comm = *of(handle);
    const NcclResult result = call("CommAbort", "", comm, true);
    comm.is_aborted = true;
    if (comm.splitting.joinable()) {
        comm.splitting.join();
    }
    comm.busy = 0;
    comm.is_dead = true;
    return result;
}

NcclResult init_rank(NcclComm* comm, int size, comm::NcclUniqueId id, int rank,
                     comm::NcclConfig* config) {
    NcclScript& s = script();
    s.size = size;
    s.rank = rank;
    if (config->blocking != 0 || config->magic != 0xcafebeef || config->size != sizeof *config ||
        id.internal[127] != 7) {
        s.errors.emplace_back("a wrong configuration");
    }
    MockComm* const made = make_comm();
    *comm = made;
    return begin_work(*made, call("CommInitRankConfig", std::to_string(rank), *made));
}

NcclResult ask_for_error(NcclComm handle, NcclResult* state) {
    NcclScript& s = script();
    MockComm& comm = *of(handle);
    ++s.asked;
    if (comm.is_dead) {
        s.errors.emplace_back("CommGetAsyncError after the communicator's end");
    }
    const bool never_ends = s.never_ends || comm.never_ends;
    if (never_ends || comm.busy > 0 || comm.is_splitting) {
        comm.busy -= never_ends || comm.busy == 0 ? 0 : 1;
        *state = comm::kNcclInProgress;
    } else {
        *state = s.answer;
    }
    return 0;
}

std::string text(std::size_t count, int type, int other) {
    return std::to_string(count) + " type " + std::to_string(type) + " " + std::to_string(other);
}

} // namespace

NcclScript& script() {
    static NcclScript instance;
    return instance;
}

void renew_script() {
    for (MockComm& comm : script().comms) {
        comm.is_aborted = true;
        if (comm.splitting.joinable()) {
            comm.splitting.join();
        }
    }
    NcclScript& s = script();
    s.~NcclScript();
    new (&s) NcclScript();
}

comm::NcclApi mock_nccl() {
    comm::NcclApi api;
    api.label = "(mock)";
    api.version = 22809;
    api.GetVersion = [](int* version) { return *version = 22809, 0; };
    api.GetUniqueId = [](comm::NcclUniqueId* id) {
        std::memset(id, 7, sizeof *id);
        return 0;
    };
    api.CommInitRankConfig = init_rank;
    api.CommGetAsyncError = ask_for_error;
    api.CommFinalize = [](NcclComm comm) {
        return begin_work(*of(comm), call("CommFinalize", "", *of(comm)));
    };
    api.CommDestroy = [](NcclComm comm) {
        const NcclResult result = call("CommDestroy", "", *of(comm));
        of(comm)->is_dead = true;
        return result;
    };
    api.CommAbort = abort_comm;
    api.CommSplit = split;
    api.CommCount = [](NcclComm, int* count) { return *count = script().size, 0; };
    api.CommUserRank = [](NcclComm, int* rank) { return *rank = script().rank, 0; };
    api.CommCuDevice = [](NcclComm, int* device) { return *device = script().device, 0; };
    api.GroupStart = begin_group;
    api.GroupEnd = end_group;
    api.Send = [](const void*, std::size_t bytes, int type, int peer, NcclComm comm, NcclStream) {
        return call_in_group("Send", text(bytes, type, peer), comm);
    };
    api.Recv = [](void*, std::size_t bytes, int type, int peer, NcclComm comm, NcclStream) {
        return call_in_group("Recv", text(bytes, type, peer), comm);
    };
    api.Broadcast = [](const void*, void*, std::size_t bytes, int type, int root, NcclComm comm,
                       NcclStream) {
        return call_in_group("Broadcast", text(bytes, type, root), comm);
    };
    api.AllReduce = [](const void*, void*, std::size_t count, int type, int op, NcclComm comm,
                       NcclStream) {
        return call_in_group("AllReduce", text(count, type, op), comm);
    };
    api.GetErrorString = [](NcclResult) { return "an error of the script"; };
    api.GetLastError = [](NcclComm) { return "its last words"; };
    return api;
}

MockDevice::~MockDevice() {
    for (unsigned char* block : blocks_) {
        delete[] block;
    }
}

void* MockDevice::enter() noexcept {
    ++depth_;
    return nullptr;
}

void MockDevice::leave(void* /*before*/) noexcept { --depth_; }

Status MockDevice::allocate(int64_t bytes, void** device, void** pinned) noexcept {
    for (void** out : {device, pinned}) {
        blocks_.push_back(new (std::nothrow) unsigned char[static_cast<std::size_t>(bytes)]);
        *out = blocks_.back();
    }
    ++live_blocks;
    return {};
}

void MockDevice::release(void* /*device*/, void* /*pinned*/) noexcept { --live_blocks; }

Status MockDevice::copy(void* to, const void* from, int64_t bytes) noexcept {
    script().calls.push_back("copy " + std::to_string(bytes));
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return depth_ > 0 ? Status() : Status::error(Code::internal, "a copy outside of the device");
}

Status MockDevice::mark(void** event) noexcept {
    script().calls.emplace_back("mark");
    ++live_marks;
    asked_ = 0;
    *event = this;
    return {};
}

// Of a stream that is no device of ours its address is the mark.
Status MockDevice::mark_other(void* stream, void** event) noexcept {
    ++live_marks;
    *event = stream;
    marked.insert(stream);
    return {};
}

Status MockDevice::make_wait(void* stream, void* event) noexcept {
    if (event != this) {
        script().errors.emplace_back("a stream waits for a mark that is not there");
    }
    followers.push_back(stream);
    return {};
}

Status MockDevice::wait_for_mark(void* event) noexcept {
    if (marked.count(event) != 0) {
        waited_for.push_back(event);
    } else {
        waited_for_marks += event == this ? 0 : 1;
    }
    return {};
}

Status MockDevice::reached(void* /*event*/, bool* done) noexcept {
    *done = ++asked_ >= polls_until_reached;
    return {};
}

void MockDevice::drop_mark(void* /*event*/) noexcept { --live_marks; }

} // namespace mp::test
