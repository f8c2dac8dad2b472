// SPDX-License-Identifier: Apache-2.0
#include "shard/shard_progress.hpp"

namespace mp::shard {

Stream* ShardProgress::open_stream(const Context& context, const Stream& stream) {
    if (stream.device().is_host()) {
        stream_ = context.open_host_stream(1); // the other threads are in the caller's backward
    }
    return stream_.get();
}

void ShardProgress::start(const Stream& stream, bool is_wanted, Step step) {
    step_ = std::move(step);
    if (!is_wanted) {
        why_no_thread_ = "it was not wanted";
    } else if (groups_.all().size() == 1) {
        why_no_thread_ = "there is one rank";
    } else if (!stream.device().is_host()) {
        why_no_thread_ = "the gradients are on a GPU, whose streams move by themselves";
    } else {
        why_no_thread_ = groups_.all().why_one_thread();
    }
    if (why_no_thread_ == nullptr && !progress_.start([this] { return this->step(); })) {
        why_no_thread_ = "the system has no thread left";
    }
}

comm::Advance ShardProgress::step() noexcept {
    const int64_t before = messages_.finished;
    comm::Advance advance = comm::Advance::done;
    try {
        // Groups that have ended say so in the next call.
        advance = groups_.status().ok() ? step_(*stream_) : comm::Advance::done;
    } catch (const Error& error) {
        groups_.abort(error.status());
    } catch (const std::exception&) {
        groups_.abort(Status::error(Code::out_of_memory, "optimizer: no memory for an exchange"));
    }
    messages_.finished_by_thread += messages_.finished - before;
    return advance;
}

} // namespace mp::shard
