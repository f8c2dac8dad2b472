// SPDX-License-Identifier: Apache-2.0
// A script in NCCL's place, and host memory in a GPU's. CONTROL FLOW ONLY: it says in which order our transport calls
// NCCL, with what, and what it does with NCCL's answers. It moves bytes between no ranks and proves nothing of NCCL.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/api.hpp"
#include "comm/nccl/device.hpp"

namespace mp::test {

// A communicator of the script.
struct MockComm {
    int number = 0;
    int busy = 0;
    bool is_dead = false; // aborted or destroyed
    bool never_ends = false;
    // Makes a group, and writes its handle at the end: as NCCL's own thread does, which an abort joins.
    std::thread splitting;
    std::atomic<bool> is_splitting{false};
    std::atomic<bool> is_aborted{false};
};

// The script, and what was called. One at a time, since a table of plain functions has nowhere to keep a pointer.
struct NcclScript {
    // Of a communicator that is not the first: "AllReduce 1 type 3 2 of comm 1".
    std::vector<std::string> calls;
    std::deque<MockComm> comms;
    int busy_polls = 0; // CommGetAsyncError says "in progress" so often after each call
    int answer = comm::kNcclSuccess;    // and then this
    std::map<std::string, int> results; // of single functions
    std::vector<std::string> errors;    // what our transport must never do
    int size = 1;
    int rank = 0;
    int device = 3;
    int group_depth = 0;
    std::set<MockComm*> in_group;
    int64_t asked = 0; // how often CommGetAsyncError was called
    bool never_ends = false;
    std::string hangs_in; // a call after which its communicator never ends
    int split_ms = 0;     // until the handle of a group is written

    [[nodiscard]] int count(const std::string& name) const {
        int n = 0;
        for (const std::string& call : calls) {
            n += call.substr(0, name.size()) == name ? 1 : 0;
        }
        return n;
    }
};

NcclScript& script();
// Another script. What threads of the last one were to write is written before.
void renew_script();
// A table that plays the script. Its label is "(mock)".
comm::NcclApi mock_nccl();

// Work in the stream is done at once; marks are reached after so many questions.
class MockDevice final : public comm::NcclDevice {
  public:
    int polls_until_reached = 1;
    int live_blocks = 0;
    int live_marks = 0;
    bool is_broken = false;
    std::set<void*> marked;        // callers' streams
    std::vector<void*> waited_for; // of those
    int waited_for_marks = 0;      // of other devices
    std::vector<void*> followers;  // callers' streams that wait for a mark here
    std::set<const void*> device_memory;
    mutable std::vector<std::weak_ptr<comm::NcclDevice>> others; // that it has made

    ~MockDevice() override;
    [[nodiscard]] int32_t index() const noexcept override { return 3; }
    Status make_another(std::shared_ptr<comm::NcclDevice>* out) const noexcept override {
        *out = std::make_shared<MockDevice>();
        others.push_back(*out);
        return {};
    }
    [[nodiscard]] void* stream() const noexcept override { return const_cast<MockDevice*>(this); }
    void* enter() noexcept override;
    void leave(void* before) noexcept override;
    [[nodiscard]] bool is_device_memory(const void* pointer) noexcept override {
        return device_memory.count(pointer) != 0;
    }
    Status allocate(int64_t bytes, void** device, void** pinned) noexcept override;
    void release(void* device, void* pinned) noexcept override;
    void set_broken() noexcept override { is_broken = true; }
    Status copy(void* to, const void* from, int64_t bytes) noexcept override;
    Status mark(void** event) noexcept override;
    Status mark_other(void* stream, void** event) noexcept override;
    Status wait_for_mark(void* event) noexcept override;
    Status make_wait(void* stream, void* event) noexcept override;
    Status reached(void* event, bool* done) noexcept override;
    void drop_mark(void* event) noexcept override;

  private:
    std::atomic<int> depth_ = 0;
    int asked_ = 0;
    std::vector<unsigned char*> blocks_;
};

} // namespace mp::test
