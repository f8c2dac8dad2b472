// SPDX-License-Identifier: Apache-2.0
#include "optim/host_gradients.hpp"

#include <algorithm>
#include <cstring>

#include "optim/parameters.hpp"
#include "optim/staging.hpp"
#include "tensor/slice.hpp"

namespace mp::optim {
namespace {

std::size_t bytes_here(const Tensor& grad) {
    return static_cast<std::size_t>(host_gradient_bytes(format_of(grad), grad.count()));
}

} // namespace

HostGradients::HostGradients(std::shared_ptr<HostLane> lane, const Parameters& parameters)
    : lane_(std::move(lane)), parameters_(parameters) {}

// The last line of its place.
float* HostGradients::scale(const Entry& entry) const noexcept {
    const StagedArray array = {entry.grad->bytes(), 0, true};
    return reinterpret_cast<float*>(memory_.data() + entry.place + array.scales_at());
}

bool HostGradients::has_places() const {
    return std::equal(parameters_.begin(), parameters_.end(), entries_.begin(), entries_.end(),
                      [](const Parameter& p, const Entry& entry) { return p.grad == entry.grad; });
}

void HostGradients::follow_list(Stream& stream) {
    if (has_places()) {
        return;
    }
    std::vector<Entry> next;
    std::size_t bytes = 0;
    for (const Parameter& p : parameters_) {
        next.push_back({p.grad, bytes});
        bytes += p.grad != nullptr ? bytes_here(*p.grad) : 0;
    }
    PinnedBuffer memory = lane_->make(bytes);
    stream.sync();
    lane_->wait(stream);
    for (std::size_t i = 0; i < std::min(next.size(), entries_.size()); ++i) {
        const Entry& before = entries_[i];
        if (before.grad != nullptr && before.grad == next[i].grad) {
            std::memcpy(memory.data() + next[i].place, memory_.data() + before.place,
                        bytes_here(*before.grad));
            next[i].is_zero = before.is_zero;
            next[i].is_written = before.is_written;
        }
    }
    memory_ = std::move(memory);
    entries_ = std::move(next);
}

void HostGradients::acquire(Stream& stream, int32_t index) {
    stream.refuse_capture("a gradient comes from the host");
    follow_list(stream);
    const Entry& entry = entries_[static_cast<std::size_t>(index)];
    if (entry.grad == nullptr || entry.grad->has_memory()) {
        return;
    }
    entry.grad->restore_memory(stream);
    if (entry.is_zero) {
        return;
    }
    try {
        lane_->follow(stream);
        lane_->to_device(stream, entry.grad->data(), memory_.data() + entry.place,
                         entry.grad->bytes());
        lane_->lead(stream);
    } catch (...) {
        entry.grad->drop_memory(stream); // else it would be taken for what was brought
        throw;
    }
}

void HostGradients::leave(Stream& stream, Entry& entry) {
    Tensor& grad = *entry.grad;
    grad.require_droppable();
    lane_->follow(stream);
    lane_->to_host(stream, memory_.data() + entry.place, grad.data(), grad.bytes());
    if (const ArrayRef array = slice_of(grad); array.scale_inv != nullptr) {
        lane_->to_host(stream, scale(entry), array.scale_inv, sizeof(float));
    }
    grad.drop_memory(lane_->stream());
    entry.is_zero = false;
}

void HostGradients::ready(Stream& stream, int32_t index) {
    stream.refuse_capture("a gradient goes to the host");
    follow_list(stream);
    Entry& entry = entries_[static_cast<std::size_t>(index)];
    if (entry.grad != nullptr && entry.grad->count() > 0 && entry.grad->has_memory()) {
        leave(stream, entry);
    }
}

void HostGradients::collect(Stream& stream) {
    follow_list(stream);
    for (const Entry& entry : entries_) { // before the first leaves
        if (entry.grad != nullptr && entry.grad->has_memory()) {
            entry.grad->require_droppable();
        }
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        ready(stream, static_cast<int32_t>(i));
    }
    lane_->wait(stream);
    for (Entry& entry : entries_) {
        if (entry.grad != nullptr && entry.is_zero && !entry.is_written) {
            std::memset(memory_.data() + entry.place, 0, entry.grad->bytes());
            if (entry.grad->scales() != nullptr) {
                *scale(entry) = 1.0F; // of zeros
            }
            entry.is_written = true;
        }
    }
}

void HostGradients::set_zero(int32_t index) noexcept {
    if (static_cast<std::size_t>(index) < entries_.size()) {
        Entry& entry = entries_[static_cast<std::size_t>(index)];
        entry.is_written = entry.is_written && entry.is_zero;
        entry.is_zero = true;
    }
}

ArrayRef HostGradients::array(int32_t index) const {
    const auto i = static_cast<std::size_t>(index);
    if (i >= entries_.size() || entries_[i].grad == nullptr) {
        return {};
    }
    ArrayRef array = slice_of(*entries_[i].grad);
    array.data = memory_.data() + entries_[i].place;
    array.scale_inv = array.scale_inv != nullptr ? scale(entries_[i]) : nullptr;
    array.amax = nullptr;
    return array;
}

} // namespace mp::optim
