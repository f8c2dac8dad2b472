// SPDX-License-Identifier: Apache-2.0
#include "comm/arrival.hpp"

#include <memory>
#include <mutex>
#include <utility>

#include "comm/capture.hpp"

namespace mp::comm {
namespace {

class FollowedRequest final : public Awaited {
  public:
    explicit FollowedRequest(CommRequest request) noexcept : request_(std::move(request)) {}

    Status wait() noexcept override {
        const std::lock_guard lock(mutex_);
        keep(request_.wait());
        return status_;
    }
    bool is_over() noexcept override {
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock()) {
            return false; // somebody waits for it
        }
        bool is_over = true;
        keep(request_.test(&is_over));
        return is_over;
    }

  private:
    void keep(const Status& status) noexcept { status_ = status_.ok() ? status : status_; }

    std::mutex mutex_;
    CommRequest request_;
    Status status_;
};

} // namespace

void await_arrival(Stream& stream, const Communicator& comm, CommRequest& request) {
    refuse_capture(stream);
    check(request.wait(is_ordered(stream, comm) ? &stream.queue() : nullptr));
    if (request.is_open()) {
        stream.followed().add(std::make_shared<FollowedRequest>(std::move(request)));
    }
}

} // namespace mp::comm
