// SPDX-License-Identifier: Apache-2.0
// Ranks joined by NCCL: a communicator that blocks nowhere, polled for errors, aborted on the first one and then never
// called again. Host memory is staged. Sizes that differ between ranks are not seen by NCCL: they end as a timeout.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "comm/nccl/api.hpp"
#include "comm/nccl/device.hpp"
#include "comm/nccl/order.hpp"
#include "transport/transport.hpp"

namespace mp::comm {

class NcclRequest;

// The end of a communicator. NCCL waits in it for the GPU, whose stream may be behind kernels of other communicators: so it
// happens in a thread, and nobody has a lock meanwhile.
class NcclAbort {
  public:
    NcclAbort(const NcclApi& api, std::shared_ptr<NcclDevice> device, NcclComm comm)
        : api_(api), device_(std::move(device)), comm_(comm) {}
    // Where a thread of NCCL's writes the handle of a group: at the end of a split, or in the abort.
    [[nodiscard]] NcclComm* child() noexcept { return &child_; }
    [[nodiscard]] bool has_child() noexcept { return std::atomic_ref(child_).load() != nullptr; }
    NcclComm take_child() noexcept { return std::atomic_ref(child_).exchange(nullptr); }
    static void begin(std::shared_ptr<NcclAbort> self) noexcept;
    // As long as an abort takes that waits for nobody.
    void await() noexcept;
    // The same, and leaves the thread to itself where that was not enough. Once, and last.
    void leave() noexcept;

  private:
    void run() noexcept;

    const NcclApi& api_;
    std::shared_ptr<NcclDevice> device_;
    NcclComm comm_;
    NcclComm child_ = nullptr;
    std::thread thread_;
    std::atomic<bool> is_done_{false};
};

// One NCCL communicator.
class NcclTransport final : public Transport {
  public:
    struct Parts {
        const NcclApi* api = nullptr;
        std::shared_ptr<NcclDevice> device;
        NcclComm comm = nullptr;
        bool is_owned = false;
        int32_t rank = 0;
        int32_t size = 0;
        // What is left of the time to say goodbye to the other ranks, for a communicator and its groups together.
        std::shared_ptr<std::atomic<int64_t>> goodbye_ms;
    };

    explicit NcclTransport(Parts parts);
    ~NcclTransport() override;

    [[nodiscard]] int32_t rank() const noexcept override { return parts_.rank; }
    [[nodiscard]] int32_t size() const noexcept override { return parts_.size; }
    [[nodiscard]] const char* name() const noexcept override { return name_.c_str(); }
    [[nodiscard]] const char* why_one_thread() const noexcept override {
        return "NCCL needs none: it moves on a stream of the GPU";
    }
    [[nodiscard]] TransportCaps caps() const noexcept override { return {true, true}; }
    [[nodiscard]] const char* details() const noexcept override { return details_.c_str(); }
    Status reserve(int64_t bytes) noexcept override;
    Status begin(const Collective& what, TransportRequest** out) noexcept override;
    void abort(const Status& reason) noexcept override;
    Status make_group(const GroupDesc& group, Transport** out) noexcept override;

    // Gives NCCL the next collectives while it takes them; says whether the communicator is well.
    Status advance() noexcept;
    void forget(const NcclRequest& request) noexcept;
    [[nodiscard]] const Parts& parts() const noexcept { return parts_; }
    [[nodiscard]] bool is_aborted() const noexcept { return is_aborted_.load(); }

    // For the order of the GPU, under its lock. What NCCL says of the communicator: ok and ready, ok and busy, or the failure.
    Status check_async(bool* is_ready) noexcept;
    // The first failure, which all later calls have, and the end of its kernels. Does not wait for that.
    void give_up(const Status& reason) noexcept;

  private:
    Status split(const GroupDesc& group, NcclComm* out) noexcept;
    // One look at a split: begins it when NCCL is ready for it, and sees its end.
    Status split_step(const GroupDesc& group, bool* is_begun, bool* is_done) noexcept;
    void await_abort() noexcept;
    void end() noexcept;

    Parts parts_;
    std::string name_;
    std::string details_;
    std::shared_ptr<NcclOrder>
        order_; // its lock is that of every call of NCCL for this communicator
    std::atomic<bool> is_aborted_{false};
    Status failure_;
    std::shared_ptr<NcclAbort>
        abort_; // where it goes on without this transport, as long as it takes
};

// Waits, no longer than the deadline, until a new communicator is ready.
Status make_nccl_transport(const NcclApi& api, std::shared_ptr<NcclDevice> device,
                           const NcclUniqueId& id, int32_t rank, int32_t size, int64_t deadline_ms,
                           Transport** out);
// Over the caller's communicator.
Status wrap_nccl_transport(const NcclApi& api, std::shared_ptr<NcclDevice> device, NcclComm comm,
                           Transport** out);

} // namespace mp::comm
