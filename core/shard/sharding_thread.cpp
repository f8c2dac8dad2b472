// SPDX-License-Identifier: Apache-2.0
// What moves between the calls of a sharded optimizer, by a thread or in the calls themselves.
#include "shard/sharding.hpp"

namespace mp::shard {

void Sharding::start_thread(const Context& context, const Stream& stream) {
    if (!options_.progress_thread) {
        why_no_thread_ = "it was not wanted";
    } else if (groups_.all().size() == 1) {
        why_no_thread_ = "there is one rank";
    } else if (!stream.device().is_host()) {
        why_no_thread_ = "the gradients are on a GPU, whose streams move by themselves";
    } else {
        why_no_thread_ = groups_.all().why_one_thread();
    }
    if (stream.device().is_host()) {
        thread_stream_ =
            context.open_host_stream(1); // the other threads are in the caller's backward
    }
    if (why_no_thread_ == nullptr && !progress_.start([this] { return step_between_calls(); })) {
        why_no_thread_ = "the system has no thread left";
    }
}

comm::Advance Sharding::step_between_calls() noexcept {
    const int64_t before = messages_.finished;
    comm::Advance advance = comm::Advance::done;
    try {
        // Groups that have ended say so in the next call.
        advance = groups_.status().ok() ? step_all() : comm::Advance::done;
    } catch (const Error& error) {
        groups_.abandon(error.status());
    } catch (const std::exception&) {
        groups_.abandon(Status::error(Code::out_of_memory, "optimizer: no memory for an exchange"));
    }
    messages_.finished_by_thread += messages_.finished - before;
    return advance;
}

comm::Advance Sharding::step_all() {
    const comm::Advance of_buckets = buckets_->step(*thread_stream_);
    const comm::Advance of_weights = weights_->step(*thread_stream_);
    return of_buckets == comm::Advance::moved || of_weights == comm::Advance::done ? of_buckets
                                                                                   : of_weights;
}

void Sharding::move_on(Stream& stream) {
    while (!progress_.is_running() && buckets_->step(stream) == comm::Advance::moved) {
    }
}

void Sharding::acquire_grad(Stream& stream, int32_t parameter) {
    buckets_->acquire(stream, parameter);
}

void Sharding::grad_ready(Stream& stream, int32_t parameter) {
    const comm::Progress::Turn turn(progress_);
    check_alive();
    buckets_->ready(stream, parameter);
    move_on(stream);
}

void Sharding::end_microbatch(Stream& stream) {
    const comm::Progress::Turn turn(progress_);
    check_alive();
    buckets_->end_slot(stream);
    move_on(stream);
}

} // namespace mp::shard
