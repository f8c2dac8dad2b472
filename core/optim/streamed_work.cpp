// SPDX-License-Identifier: Apache-2.0
#include "optim/streamed_work.hpp"

#include <cstring>

#include "optim/staging.hpp"
#include "runtime/select.hpp"

namespace mp::optim {
namespace {

// For reports alone.
using Clock = std::chrono::steady_clock;

std::size_t bytes_of_elements(const ArrayRef& array) {
    return static_cast<std::size_t>(bytes_of(array.dtype(), array.count()));
}

StagedArray staged(const StreamedArrays& a) {
    return {a.has_host_grad ? 0 : bytes_of_elements(a.grad), bytes_of_elements(a.param),
            (!a.has_host_grad && a.grad.scale_inv != nullptr) || a.param.scale_inv != nullptr};
}

} // namespace

StreamedWork::StreamedWork(const std::shared_ptr<Context>& context, HostGradients* gradients)
    : context_(context), gradients_(gradients), streams_{context->open_stream(nullptr),
                                                         context->open_stream(nullptr)} {}

// A step that has failed leaves copies under way.
StreamedWork::~StreamedWork() {
    for (const auto& stream : streams_) {
        if (stream != nullptr) {
            (void)stream->queue().sync();
        }
    }
}

void StreamedWork::plan(std::vector<StreamedArrays> arrays) {
    Plan next; // all that can fail is done before anything changes
    next.arrays = std::move(arrays);
    next.place(*context_);
    for (const auto& stream : streams_) {
        stream->sync(); // the old staging memory is no longer in use
    }
    plan_ = std::move(next);
}

// Staging memory for the largest bucket of each kind, and the host's tables of segments.
void StreamedWork::Plan::place(const Context& context) {
    std::vector<StagedArray> staged_arrays;
    staged_arrays.reserve(arrays.size());
    for (const StreamedArrays& a : arrays) {
        staged_arrays.push_back(staged(a));
    }
    Staging cut = make_staging(staged_arrays);
    for (std::size_t side = 0; side < 2; ++side) {
        staging[side] = PinnedBuffer(context.host_stream(), context.stream(), cut.bytes[side]);
    }
    for (std::vector<std::size_t>& members : cut.buckets) {
        unsigned char* next = staging[buckets.size() % 2].data();
        std::vector<UpdateSegment> segments;
        for (const std::size_t i : members) {
            StreamedArrays& a = arrays[i];
            a.staged = next;
            if (!a.has_host_grad) {
                a.segment.grad.data = next;
            }
            if (!a.has_host_grad && a.grad.scale_inv != nullptr) {
                a.segment.grad.scale_inv =
                    reinterpret_cast<float*>(next + staged_arrays[i].scales_at());
            }
            next += staged_arrays[i].bytes();
            segments.push_back(a.segment);
        }
        Bucket& bucket = buckets.emplace_back();
        bucket.members = std::move(members);
        bucket.plan = SegmentPlan(context.host_stream(), std::move(segments));
    }
}

void StreamedWork::fetch(std::size_t bucket, bool zero_grad) {
    const Stream& stream = *streams_[bucket % 2];
    for (const std::size_t i : plan_.buckets[bucket].members) {
        const StreamedArrays& a = plan_.arrays[i];
        if (a.grad.count() == 0 || a.has_host_grad) {
            continue;
        }
        const auto copy = [&](void* to, const void* from, std::size_t bytes) {
            stream.copy(to, from, bytes, CopyKind::device_to_host);
            traffic_.to_host += static_cast<int64_t>(bytes);
        };
        copy(a.segment.grad.data, a.grad.data, bytes_of_elements(a.grad));
        if (a.grad.scale_inv != nullptr) {
            copy(a.segment.grad.scale_inv, a.grad.scale_inv, sizeof(float));
        }
        if (zero_grad) {
            stream.zero(a.grad.data, bytes_of_elements(a.grad));
        }
    }
}

// Of a step that is skipped, from which no gradient leaves.
void StreamedWork::zero_gradients(Stream& stream) const {
    for (const StreamedArrays& a : plan_.arrays) {
        if (a.grad.count() > 0 && !a.has_host_grad) {
            stream.zero(a.grad.data, bytes_of_elements(a.grad));
        }
    }
    stream.sync();
}

void StreamedWork::forget_host_gradients() noexcept {
    for (const StreamedArrays& a : plan_.arrays) {
        if (gradients_ != nullptr) {
            gradients_->set_zero(a.parameter);
        }
    }
}

// From staging memory, whose gradients have done their work, so that the host goes on with the next bucket.
void StreamedWork::send(std::size_t bucket) {
    const Stream& stream = *streams_[bucket % 2];
    const auto copy = [&](const void* from, void* to, unsigned char* staged, std::size_t bytes) {
        if (bytes > 0) {
            traffic_.to_device += static_cast<int64_t>(bytes);
            std::memcpy(staged, from, bytes);
            stream.copy(to, staged, bytes, CopyKind::host_to_device);
        }
    };
    for (const std::size_t i : plan_.buckets[bucket].members) {
        const StreamedArrays& a = plan_.arrays[i];
        copy(a.segment.param.data, a.param.data, a.staged, bytes_of_elements(a.param));
        if (a.param.scale_inv != nullptr) {
            copy(a.segment.param.scale_inv, a.param.scale_inv, a.staged + staged(a).scales_at(),
                 sizeof(float));
        }
    }
}

void StreamedWork::wait_for_copies(std::size_t side) {
    const auto begin = Clock::now();
    streams_[side]->sync();
    traffic_.waited += Clock::now() - begin;
}

// What it says of device memory is the host's by then: prepared_ is read in the apply phase.
void StreamedWork::choose(Stream& /*stream*/, const StepMemory& memory,
                          const StepOptions& options) {
    prepared_.scalars.resize(memory.group_count());
    StepOptions on_host = options;
    on_host.zero_grad = false; // of the copies; the gradients themselves are zeroed as they leave
    for (Bucket& bucket : plan_.buckets) {
        bucket.update = make_update(bucket.plan, memory, on_host);
        bucket.update.state = &prepared_.state;
        bucket.update.scalars = prepared_.scalars.data();
        bucket.chosen = select(context_->host_stream().device(), bucket.update).candidate;
    }
}

void StreamedWork::apply(Stream& stream, const StepMemory& memory, const StepOptions& options) {
    Stream& host = context_->host_stream();
    memory.read_prepared(stream, prepared_);
    if (prepared_.state.skip != 0) {
        if (options.zero_grad) {
            zero_gradients(stream);
            forget_host_gradients();
        }
        return;
    }
    const auto begin = Clock::now();
    const std::vector<Bucket>& buckets = plan_.buckets;
    for (std::size_t k = 0; k < buckets.size(); ++k) {
        if (k == 0) {
            fetch(0, options.zero_grad);
        }
        if (k + 1 < buckets.size()) {
            fetch(k + 1, options.zero_grad);
        }
        wait_for_copies(k % 2);
        check(buckets[k].chosen->run(host.device(), host.queue(), buckets[k].update));
        note_writes(buckets[k].update, host.is_captured());
        host.sync();
        send(k);
    }
    for (std::size_t side = 0; side < streams_.size(); ++side) {
        wait_for_copies(side);
    }
    if (options.zero_grad) {
        forget_host_gradients();
    }
    ++traffic_.steps;
    traffic_.step_time += Clock::now() - begin;
}

} // namespace mp::optim
