// SPDX-License-Identifier: Apache-2.0
#include "mock.hpp"

namespace mp::test {
namespace {

using comm::NcclComm;
using comm::NcclResult;
using comm::NcclStream;

int the_comm = 0;

// Writes a call down; `on_comm` is what needs a living, idle communicator.
NcclResult call(const std::string& name, const std::string& words, bool on_comm) {
    NcclScript& s = script();
    s.calls.push_back(words.empty() ? name : name + " " + words);
    if (on_comm && s.is_dead) {
        s.errors.push_back(name + " after the communicator's end");
    }
    if (on_comm && s.busy > 0 && s.group_depth == 0) {
        s.errors.push_back(name + " while NCCL was busy");
    }
    s.never_ends = s.never_ends || s.hangs_in == name;
    const auto found = s.results.find(name);
    return found == s.results.end() ? comm::kNcclSuccess : found->second;
}

// After a call that may go on in the background.
NcclResult begin_work(NcclResult result) {
    script().busy = script().busy_polls;
    return result == comm::kNcclSuccess && script().busy > 0 ? comm::kNcclInProgress : result;
}

std::string text(std::size_t count, int type, int other) {
    return std::to_string(count) + " type " + std::to_string(type) + " " + std::to_string(other);
}

void expect_group(const char* name) {
    if (script().group_depth != 1) {
        script().errors.push_back(std::string(name) + " outside of a group");
    }
}

} // namespace

NcclScript& script() {
    static NcclScript instance;
    return instance;
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
    api.CommInitRankConfig = [](NcclComm* comm, int size, comm::NcclUniqueId id, int rank,
                                comm::NcclConfig* config) {
        NcclScript& s = script();
        s.size = size;
        s.rank = rank;
        if (config->blocking != 0 || config->magic != 0xcafebeef ||
            config->size != sizeof *config || id.internal[127] != 7) {
            s.errors.emplace_back("a wrong configuration");
        }
        *comm = &the_comm;
        return begin_work(call("CommInitRankConfig", std::to_string(rank), false));
    };
    api.CommGetAsyncError = [](NcclComm, NcclResult* state) {
        NcclScript& s = script();
        ++s.asked;
        if (s.is_dead) {
            s.errors.emplace_back("CommGetAsyncError after the communicator's end");
        }
        if (s.never_ends || s.busy > 0) {
            s.busy -= s.never_ends ? 0 : 1;
            *state = comm::kNcclInProgress;
        } else {
            *state = s.answer;
        }
        return 0;
    };
    api.CommFinalize = [](NcclComm) { return begin_work(call("CommFinalize", "", true)); };
    api.CommDestroy = [](NcclComm) {
        const NcclResult result = call("CommDestroy", "", true);
        script().is_dead = true;
        return result;
    };
    api.CommAbort = [](NcclComm) {
        script().busy = 0;
        const NcclResult result = call("CommAbort", "", true);
        script().is_dead = true;
        return result;
    };
    api.CommSplit = [](NcclComm, int color, int key, NcclComm* out, comm::NcclConfig*) {
        *out = color < 0 ? nullptr : &the_comm;
        return begin_work(
            call("CommSplit", std::to_string(color) + " " + std::to_string(key), true));
    };
    api.CommCount = [](NcclComm, int* count) { return *count = script().size, 0; };
    api.CommUserRank = [](NcclComm, int* rank) { return *rank = script().rank, 0; };
    api.CommCuDevice = [](NcclComm, int* device) { return *device = script().device, 0; };
    api.GroupStart = [] {
        const NcclResult result = call("GroupStart", "", true);
        ++script().group_depth;
        return result;
    };
    api.GroupEnd = [] {
        --script().group_depth;
        return begin_work(call("GroupEnd", "", true));
    };
    api.Send = [](const void*, std::size_t bytes, int type, int peer, NcclComm, NcclStream) {
        expect_group("Send");
        return call("Send", text(bytes, type, peer), true);
    };
    api.Recv = [](void*, std::size_t bytes, int type, int peer, NcclComm, NcclStream) {
        expect_group("Recv");
        return call("Recv", text(bytes, type, peer), true);
    };
    api.Broadcast = [](const void*, void*, std::size_t bytes, int type, int root, NcclComm,
                       NcclStream) {
        expect_group("Broadcast");
        return call("Broadcast", text(bytes, type, root), true);
    };
    api.AllReduce = [](const void*, void*, std::size_t count, int type, int op, NcclComm,
                       NcclStream) {
        expect_group("AllReduce");
        return call("AllReduce", text(count, type, op), true);
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

Status MockDevice::wait_for(void* other) noexcept {
    waited_for.push_back(other);
    return {};
}

Status MockDevice::mark(void** event) noexcept {
    script().calls.emplace_back("mark");
    ++live_marks;
    asked_ = 0;
    *event = this;
    return {};
}

Status MockDevice::reached(void* /*event*/, bool* done) noexcept {
    *done = ++asked_ >= polls_until_reached;
    return {};
}

void MockDevice::drop_mark(void* /*event*/) noexcept { --live_marks; }

} // namespace mp::test
