// SPDX-License-Identifier: Apache-2.0
// A rank that is lost at a chosen message: FaultyTransport passes everything on, counts what its rank begins in each phase
// of the caller's, in its groups too, and strikes at the chosen one.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "transport/transport.hpp"

namespace mp::test {

inline constexpr const char* kWholeScenario = "scenario"; // as a phase

// Of one rank, shared by its transports, and by its threads.
struct PlannedFault {
    std::string phase;              // where it strikes; empty: nowhere
    int32_t message = 0;            // the number in that phase
    std::function<Status()> strike; // what happens then; the message is not begun
    bool on_device = false;         // the transport says that its messages are
    bool copies = false;            // the transport says that its ranks share no memory
    std::function<int64_t()> clock; // what deadlines are measured by; empty: the transport's

    std::map<std::string, int32_t> counts; // messages begun, by phase
    bool has_struck = false;
    // In naps until a message is done; what a busy machine takes beside them does not count.
    std::atomic<int64_t> waited_ns{0};

    void enter(const char* next_phase) {
        const std::lock_guard lock(mutex_);
        now_ = next_phase;
    }

    Status next() {
        {
            const std::lock_guard lock(mutex_);
            const int32_t of_phase = counts[now_]++;
            const int32_t of_all = counts[kWholeScenario]++;
            const bool is_here = phase == kWholeScenario || (!phase.empty() && phase == now_);
            if (has_struck || !is_here ||
                (phase == kWholeScenario ? of_all : of_phase) != message) {
                return {};
            }
            has_struck = true;
        }
        return strike();
    }

  private:
    std::mutex mutex_;
    std::string now_; // the phase that the rank is in
};

class FaultyTransport final : public Transport {
  public:
    FaultyTransport(std::unique_ptr<Transport> inner, std::shared_ptr<PlannedFault> fault)
        : inner_(std::move(inner)), fault_(std::move(fault)) {}
    [[nodiscard]] int32_t rank() const noexcept override { return inner_->rank(); }
    [[nodiscard]] int32_t size() const noexcept override { return inner_->size(); }
    [[nodiscard]] const char* name() const noexcept override { return inner_->name(); }
    [[nodiscard]] TransportCaps caps() const noexcept override {
        TransportCaps caps = inner_->caps();
        caps.device_memory = caps.device_memory || fault_->on_device;
        caps.lends_memory = caps.lends_memory && !fault_->copies;
        return caps;
    }
    [[nodiscard]] const char* details() const noexcept override { return inner_->details(); }
    [[nodiscard]] const char* why_one_thread() const noexcept override {
        return inner_->why_one_thread();
    }
    [[nodiscard]] int32_t node(int32_t rank) const noexcept override { return inner_->node(rank); }
    Status begin(const Collective& collective, TransportRequest** out) noexcept override {
        const Status status = fault_->next();
        return status.ok() ? inner_->begin(collective, out) : status;
    }
    void abort(const Status& reason) noexcept override { inner_->abort(reason); }
    [[nodiscard]] int32_t next_context() const noexcept override { return inner_->next_context(); }
    Status make_group(const GroupDesc& group, Transport** out) noexcept override {
        Transport* made = nullptr;
        const Status status = inner_->make_group(group, &made);
        std::unique_ptr<Transport> inner(made);
        *out = inner == nullptr
                   ? nullptr
                   : std::make_unique<FaultyTransport>(std::move(inner), fault_).release();
        return status;
    }
    void pause(int64_t attempt, int64_t nanoseconds) noexcept override {
        const int64_t begin = monotonic_ns();
        inner_->pause(attempt, nanoseconds);
        fault_->waited_ns += std::min(nanoseconds, monotonic_ns() - begin);
    }
    [[nodiscard]] int64_t now_ns() const noexcept override {
        return fault_->clock ? fault_->clock() : inner_->now_ns();
    }

  private:
    std::unique_ptr<Transport> inner_;
    std::shared_ptr<PlannedFault> fault_;
};

} // namespace mp::test
