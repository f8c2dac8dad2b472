// SPDX-License-Identifier: Apache-2.0
// ShardProgress: what moves the exchanges of a sharded optimizer on between its calls: a thread where there can be one, else
// the calls themselves.
#pragma once

#include <functional>
#include <memory>

#include "comm/progress.hpp"
#include "context/context.hpp"
#include "shard/shard_groups.hpp"

namespace mp::shard {

class ShardProgress {
  public:
    // One short step of all that is under way, on a stream of the thread's own.
    using Step = std::function<comm::Advance(Stream&)>;

    // `groups` outlive it.
    explicit ShardProgress(const ShardGroups& groups) : groups_(groups) {}

    // The stream of one thread that whoever has the lock may use, where `stream` is the host's; else null.
    Stream* open_stream(const Context& context, const Stream& stream);
    // After that: the thread, unless it is not wanted or cannot be had.
    void start(const Stream& stream, bool is_wanted, Step step);
    // Ends it. Nothing that `step` uses may go before.
    void stop() noexcept { progress_.stop(); }

    // Held by a call while it moves something. Does not nest.
    [[nodiscard]] comm::Progress::Lock lock() { return comm::Progress::Lock(progress_); }
    [[nodiscard]] bool has_thread() const noexcept { return progress_.is_running(); }
    // Why nothing moves between calls; null where a thread does it.
    [[nodiscard]] const char* why_no_thread() const noexcept { return why_no_thread_; }
    [[nodiscard]] comm::MessageCounts& messages() noexcept { return messages_; }
    // What the thread does between two calls; for those who are the thread themselves.
    comm::Advance step() noexcept;

  private:
    const ShardGroups& groups_;
    std::shared_ptr<Stream> stream_; // of one thread: sums beside the caller's backward
    Step step_;
    comm::MessageCounts messages_;
    const char* why_no_thread_ = nullptr;
    comm::Progress progress_;
};

} // namespace mp::shard
