// SPDX-License-Identifier: Apache-2.0
// Communicator: collectives over a transport, with deadlines, order numbers, errors that name what was being done
// and by whom, and an end: after the first failure every later call returns that failure at once.
//
// One thread at a time, the same calls in the same order on every rank. From any thread: abort(), and the dropping of a
// request, which waits for the thread that is in the transport, and so no longer than one look at what is in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/collectives.hpp"
#include "device/backend.hpp"

namespace mp::comm {

inline constexpr int64_t kDefaultDeadlineMs = 300000;

// Of one call. `site` is a name for error texts ("bucket 3"), copied.
struct CallOptions {
    int64_t deadline_ms = 0; // 0: the communicator's
    const char* site = nullptr;
    Queue* queue = nullptr; // of device memory: its work so far comes first
};

class Communicator;
struct PendingCollective;

// A collective in flight. Its memory belongs to it until wait() or test() says that it is over. Dropping it before
// gives the communicator up, so that the memory is free at once; from any thread.
class CommRequest {
  public:
    CommRequest() noexcept;
    CommRequest(CommRequest&& other) noexcept;
    CommRequest& operator=(CommRequest&& other) noexcept;
    ~CommRequest();

    [[nodiscard]] bool is_open() const noexcept { return pending_ != nullptr; }
    // Until it is done, has failed, or its deadline (counted from begin) has passed. Closes the request. With a follower also
    // until what that queue takes from now on comes after it, by the device's own order: then it stays open.
    Status wait(Queue* follower = nullptr) noexcept;
    // The same without waiting; *done: wait() would return.
    Status test(bool* done, Queue* follower = nullptr) noexcept;
    // As TransportRequest::moved_bytes().
    [[nodiscard]] int64_t moved_bytes() const noexcept;

  private:
    friend class Communicator;
    std::shared_ptr<PendingCollective> pending_;
};

class Communicator {
  public:
    explicit Communicator(std::unique_ptr<Transport> transport,
                          int64_t deadline_ms = kDefaultDeadlineMs);
    // Requests that are still open fail with `aborted`. Waits for no other rank, but for what a queue follows: work that comes
    // after it would compute with what did not arrive.
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] int32_t rank() const noexcept { return rank_; }
    [[nodiscard]] int32_t size() const noexcept { return size_; }
    [[nodiscard]] TransportCaps caps() const noexcept { return transport_->caps(); }
    // Null where calls may come from any thread, one at a time; else why they come from one thread only.
    [[nodiscard]] const char* why_one_thread() const noexcept {
        return transport_->why_one_thread();
    }
    // Ranks with equal numbers share a machine: what the transport knows, or what learn_nodes() found.
    [[nodiscard]] int32_t node(int32_t rank) const {
        return nodes_.at(static_cast<std::size_t>(rank));
    }

    // As the transport's: before something that may fail on no rank. It ends nothing where it fails.
    Status reserve(int64_t bytes) noexcept;
    // Until it is done.
    Status run(const AnyCollective& what, const CallOptions& options = {}) noexcept;
    // The same without waiting. `out` must not be open.
    Status begin(const AnyCollective& what, const CallOptions& options, CommRequest* out) noexcept;

    // Ranks of one color become a communicator, ordered by key and then by rank; a color below zero: none, and
    // *out is null. Collective and blocking; the new one has this one's deadline and lives on its own.
    Status split(int32_t color, int32_t key, std::unique_ptr<Communicator>* out,
                 const CallOptions& options = {}) noexcept;
    // Collective: finds which ranks share a machine by exchanging what this one calls its own.
    Status learn_nodes(uint64_t machine, const CallOptions& options = {}) noexcept;

    // Fails this communicator with `reason`, and notifies the other ranks where the transport can. Any thread.
    void abort(const Status& reason) noexcept;
    // The first failure, or ok.
    [[nodiscard]] Status status() const noexcept;

    [[nodiscard]] int64_t deadline_ms() const noexcept { return deadline_ms_; }
    Status set_deadline_ms(int64_t deadline_ms) noexcept;
    [[nodiscard]] const Traffic& traffic() const noexcept { return traffic_; }

    // Whether this thread is in a function of the transport, which may be the caller's code and drop what it likes. A
    // request that goes there cannot be ended yet: what holds memory of it is kept until the function is over.
    [[nodiscard]] bool holds_lock() const noexcept {
        return holder_.load() == std::this_thread::get_id();
    }
    void keep_until_unlock(std::shared_ptr<const void> what) { kept_.push_back(std::move(what)); }
    // Collectives begun so far.
    [[nodiscard]] uint64_t sequence() const noexcept { return sequence_; }
    [[nodiscard]] std::string describe() const;

  private:
    friend class CommRequest;
    friend struct PendingCollective;

    // Held by whoever is in the transport or changes what is in flight; not while a wait sleeps.
    class Lock {
      public:
        explicit Lock(Communicator& comm) : comm_(comm) {
            comm_.transport_mutex_.lock();
            comm_.holder_.store(std::this_thread::get_id());
        }
        ~Lock();
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

      private:
        Communicator& comm_;
    };

    Status open(const Collective& collective, const CallOptions& options, CommRequest* out);
    // Polls everything in flight once. Like fail_all, under the lock.
    void progress() noexcept;
    Status wait(PendingCollective& pending, Queue* follower) noexcept;
    Status test(PendingCollective& pending, bool* done, Queue* follower) noexcept;
    // By any thread: the request of a collective is gone.
    void drop(const PendingCollective& pending) noexcept;
    // Fails all in flight, and the transport; returns the first failure there was.
    Status fail_all(const Status& reason) noexcept;
    void close_in_flight(const Status& reason) noexcept;

    std::unique_ptr<Transport> transport_;
    int32_t rank_;
    int32_t size_;
    int64_t deadline_ms_;
    uint64_t sequence_ = 0;
    std::vector<int32_t> nodes_;
    std::vector<std::shared_ptr<PendingCollective>> in_flight_; // in the order of begin
    Traffic traffic_;

    std::shared_ptr<std::shared_mutex> life_ = std::make_shared<std::shared_mutex>();
    std::mutex transport_mutex_; // of transport_ and in_flight_
    std::atomic<std::thread::id> holder_;
    std::vector<std::shared_ptr<const void>> kept_; // until it is released

    mutable std::mutex mutex_; // of first_error_
    std::atomic<bool> has_failed_{false};
    Status first_error_;
};

} // namespace mp::comm
