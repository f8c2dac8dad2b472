// SPDX-License-Identifier: Apache-2.0
// Ranks joined by NCCL: a communicator that blocks nowhere, polled for errors, aborted on the first one and then never
// called again. Host memory is staged. Sizes that differ between ranks are not seen by NCCL: they end as a timeout.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl/api.hpp"
#include "comm/nccl/device.hpp"
#include "interface/transport.hpp"

namespace mp::comm {

class NcclRequest;

// One NCCL communicator and what is still to be given to it.
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
    Status begin(const Collective& what, TransportRequest** out) noexcept override;
    void abort(const Status& reason) noexcept override;
    Status make_group(const GroupDesc& group, Transport** out) noexcept override;

    // Gives NCCL the next collectives while it takes them; tells whether the communicator is well.
    Status advance() noexcept;
    void forget(NcclRequest* request) noexcept;
    [[nodiscard]] const Parts& parts() const noexcept { return parts_; }
    [[nodiscard]] bool is_aborted() const noexcept { return is_aborted_.load(); }

  private:
    // What NCCL says of the communicator: ok and ready, ok and busy, or the failure.
    Status check_async(bool* is_ready) noexcept;
    void abort_locked() noexcept;
    void end() noexcept;

    Parts parts_;
    std::string name_;
    std::string details_;
    std::mutex mutex_; // of every call of NCCL for this communicator
    std::atomic<bool> is_aborted_{false};
    std::deque<NcclRequest*>
        waiting_; // in the order of begin; the first may have been given to NCCL
};

// Waits, no longer than the deadline, until a new communicator is ready.
Status make_nccl_transport(const NcclApi& api, std::shared_ptr<NcclDevice> device,
                           const NcclUniqueId& id, int32_t rank, int32_t size, int64_t deadline_ms,
                           Transport** out);
// Over the caller's communicator.
Status wrap_nccl_transport(const NcclApi& api, std::shared_ptr<NcclDevice> device, NcclComm comm,
                           Transport** out);

} // namespace mp::comm
