// SPDX-License-Identifier: Apache-2.0
#include "optim/offload.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/select.hpp"

namespace mp::optim {
namespace {

// A bucket is closed once it has so many bytes: enough for a copy at full speed, and few enough for the first to arrive and
// the last to leave quickly.
constexpr std::size_t kBucketBytes = std::size_t{16} << 20;
// Arrays in staging memory begin at multiples of this; scales have one of their own.
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A parameter's place in staging memory: its gradient comes there, its new numbers leave from there, and scales likewise.
std::size_t scales_offset(const OffloadedParameter& p) {
    return aligned(std::max(p.grad->bytes(), p.param->bytes()));
}

std::size_t staged_bytes(const OffloadedParameter& p) {
    const bool has_scales = p.grad->scales() != nullptr || p.param->scales() != nullptr;
    return scales_offset(p) + (has_scales ? kAlignment : 0);
}

} // namespace

std::shared_ptr<Tensor> make_like(const std::shared_ptr<Context>& context, Stream& stream,
                                  const Tensor& tensor) {
    return tensor.scales() == nullptr
               ? std::make_shared<Tensor>(context, stream, tensor.dtype(), tensor.shape())
               : std::make_shared<Tensor>(context, stream, tensor.format(), tensor.shape());
}

Offload::Staging::Staging(const Context& context, std::size_t bytes)
    : buffer_(context.host_stream().shared_device(), bytes) {
    if (bytes > 0) {
        check(context.stream().device().pin(buffer_.data(), bytes));
        device_ = context.stream().shared_device();
    }
}

Offload::Staging::~Staging() {
    if (device_ != nullptr) {
        device_->unpin(buffer_.data(), buffer_.bytes());
    }
}

void Offload::Staging::swap(Staging& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(buffer_, other.buffer_);
}

Offload::Offload(const std::shared_ptr<Context>& context)
    : context_(context), streams_{context->open_stream(nullptr), context->open_stream(nullptr)} {}

// A step that has failed leaves copies under way.
Offload::~Offload() {
    for (const auto& stream : streams_) {
        if (stream != nullptr) {
            (void)stream->queue().sync();
        }
    }
}

void Offload::plan(std::vector<OffloadedParameter> parameters) {
    Offload next(context_); // all that can fail is done before anything changes
    next.parameters_ = std::move(parameters);
    next.cut();
    next.place();
    std::vector<UpdateSegment> grads;
    for (const OffloadedParameter& p : next.parameters_) {
        UpdateSegment s = p.segment;
        s.grad.data = p.grad->data();
        s.grad.scale_inv = slice_of(*p.grad).scale_inv;
        grads.push_back(s);
    }
    next.device_plan_ = SegmentPlan(context_->stream(), std::move(grads));
    context_->stream().sync();
    std::swap(*this, next);
}

void Offload::cut() {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (buckets_.empty() || bytes >= kBucketBytes) {
            buckets_.emplace_back();
            bytes = 0;
        }
        buckets_.back().members.push_back(i);
        bytes += staged_bytes(parameters_[i]);
    }
}

// Staging memory for the largest bucket of each kind, and the host's tables of segments.
void Offload::place() {
    std::array<std::size_t, 2> needed = {0, 0};
    for (std::size_t k = 0; k < buckets_.size(); ++k) {
        std::size_t bytes = 0;
        for (const std::size_t i : buckets_[k].members) {
            bytes += staged_bytes(parameters_[i]);
        }
        needed[k % 2] = std::max(needed[k % 2], bytes);
    }
    for (std::size_t side = 0; side < 2; ++side) {
        staging_[side] = Staging(*context_, needed[side]);
    }
    for (std::size_t k = 0; k < buckets_.size(); ++k) {
        unsigned char* next = staging_[k % 2].data();
        std::vector<UpdateSegment> segments;
        for (const std::size_t i : buckets_[k].members) {
            OffloadedParameter& p = parameters_[i];
            p.segment.grad.data = next;
            if (p.grad->scales() != nullptr) {
                p.segment.grad.scale_inv = reinterpret_cast<float*>(next + scales_offset(p));
            }
            next += staged_bytes(p);
            segments.push_back(p.segment);
        }
        buckets_[k].plan = SegmentPlan(context_->host_stream(), std::move(segments));
    }
}

void Offload::fetch(std::size_t bucket, bool zero_grad) {
    const Stream& stream = *streams_[bucket % 2];
    for (const std::size_t i : buckets_[bucket].members) {
        const OffloadedParameter& p = parameters_[i];
        if (p.grad->count() == 0) {
            continue;
        }
        stream.copy(p.segment.grad.data, p.grad->data(), p.grad->bytes(), CopyKind::device_to_host);
        if (p.grad->scales() != nullptr) {
            stream.copy(p.segment.grad.scale_inv, slice_of(*p.grad).scale_inv, sizeof(float),
                        CopyKind::device_to_host);
        }
        if (zero_grad) {
            stream.zero(p.grad->data(), p.grad->bytes());
        }
    }
}

// Of a step that is skipped, from which no gradient leaves.
void Offload::zero_gradients(Stream& stream) const {
    for (const OffloadedParameter& p : parameters_) {
        if (p.grad->count() > 0) {
            stream.zero(p.grad->data(), p.grad->bytes());
        }
    }
    stream.sync();
}

// From staging memory, whose gradients have done their work, so that the host goes on with the next bucket.
void Offload::send(std::size_t bucket) {
    const Stream& stream = *streams_[bucket % 2];
    const auto copy = [&stream](const Tensor& from, const Tensor& to, unsigned char* staged) {
        if (from.count() > 0) {
            std::memcpy(staged, from.data(), from.bytes());
            stream.copy(to.data(), staged, from.bytes(), CopyKind::host_to_device);
        }
    };
    for (const std::size_t i : buckets_[bucket].members) {
        const OffloadedParameter& p = parameters_[i];
        auto* const staged = static_cast<unsigned char*>(p.segment.grad.data);
        copy(*p.host_param, *p.param, staged);
        if (p.param->scales() != nullptr) {
            unsigned char* const scales = staged + scales_offset(p);
            copy(*p.host_param->scales()->scale_inv, *p.param->scales()->scale_inv, scales);
            copy(*p.host_param->scales()->amax, *p.param->scales()->amax, scales + sizeof(float));
        }
    }
}

void Offload::step(Stream& stream, const StepMemory& memory, scaler::LossScaler* scaler,
                   const StepOptions& options) {
    Stream& host = context_->host_stream();
    StepOptions on_host = options;
    on_host.zero_grad = false; // of the copies; the gradients themselves are zeroed as they leave
    std::vector<OptimizerUpdateDesc> updates;
    for (const Bucket& bucket : buckets_) {
        updates.push_back(make_update(bucket.plan, on_host));
        (void)select(host.device(), updates.back()); // fails before the step count moves
    }
    memory.measure(stream, device_plan_, scaler, options);
    memory.prepare(stream, scaler, options);
    const PreparedStep prepared = memory.read_prepared(stream);
    if (prepared.state.skip != 0) {
        if (options.zero_grad) {
            zero_gradients(stream);
        }
        return;
    }
    for (std::size_t k = 0; k < buckets_.size(); ++k) {
        if (k == 0) {
            fetch(0, options.zero_grad);
        }
        if (k + 1 < buckets_.size()) {
            fetch(k + 1, options.zero_grad);
        }
        streams_[k % 2]->sync();
        updates[k].state = &prepared.state;
        updates[k].scalars = prepared.scalars.data();
        run_op(host, updates[k]);
        host.sync();
        send(k);
    }
    for (const auto& side : streams_) {
        side->sync();
    }
}

} // namespace mp::optim
