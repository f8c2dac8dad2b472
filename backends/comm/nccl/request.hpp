// SPDX-License-Identifier: Apache-2.0
// A collective on its way through NCCL: staged, given to it, marked in the stream, reached, and copied back.
#pragma once

#include <atomic>
#include <vector>

#include "comm/nccl/transport.hpp"

namespace mp::comm {

// Memory of the caller as NCCL can use it.
struct Staged {
    unsigned char* device = nullptr;
    unsigned char* pinned = nullptr; // null: the caller's is device memory
    int64_t bytes = 0;
};

class NcclRequest final : public TransportRequest {
  public:
    // Throws Error or std::bad_alloc.
    NcclRequest(NcclTransport& transport, const Collective& what);
    ~NcclRequest() override;
    Status poll(bool* done) noexcept override;
    Status follow(void* stream, bool* follows) noexcept override;

    // What is in the caller's stream now comes first. At once: later it may be captured, or gone.
    Status mark_caller() noexcept;
    // The steps that the order of the GPU takes one after another, the communicator ready.
    Status issue(const NcclRequest* before) noexcept; // gives it to NCCL, behind another one
    Status conclude() noexcept; // NCCL has put it into the stream: copies back, and a mark
    [[nodiscard]] NcclTransport& transport() const noexcept { return transport_; }
    [[nodiscard]] bool is_issued() const noexcept { return is_issued_; }
    [[nodiscard]] bool is_concluded() const noexcept { return is_concluded_; }

  private:
    void stage(const void* memory, int64_t bytes, Staged& out);
    Status call() noexcept;
    Status exchange() noexcept;
    Status reduce(int type, int operation) noexcept;
    void unstage() noexcept;
    [[nodiscard]] Status result(NcclResult result, const char* what) const noexcept;

    NcclTransport& transport_;
    const NcclApi& api_;
    NcclDevice& device_;
    Collective what_;
    Staged send_;
    Staged receive_;
    void* before_ = nullptr; // a mark in the caller's stream, whose work comes first
    void* event_ = nullptr;
    bool is_issued_ = false;
    std::atomic<bool> is_concluded_{false}; // by whoever drives the order; event_ is there then
    bool is_over_ = false;
};

} // namespace mp::comm
