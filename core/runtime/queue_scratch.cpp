// SPDX-License-Identifier: Apache-2.0
#include "runtime/queue_scratch.hpp"

#include <algorithm>
#include <utility>

#include "dtype/divide.hpp"

namespace mp {

std::size_t ScratchPlaces::take(std::size_t bytes) {
    const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
    std::size_t begin = 0;
    auto next = taken_.begin();
    while (next != taken_.end() && next->begin - begin < size) {
        begin = next->end;
        ++next;
    }
    taken_.insert(next, {begin, begin + size});
    peak_ = std::max(peak_, begin + size);
    return begin;
}

void ScratchPlaces::give(std::size_t offset) noexcept {
    taken_.erase(std::find_if(taken_.begin(), taken_.end(),
                              [&](const Range& range) { return range.begin == offset; }));
}

QueueScratch::QueueScratch(std::shared_ptr<Device> device, Queue& queue)
    : device_(std::move(device)), queue_(&queue) {
    queue.set_scratch(this);
}

void QueueScratch::set_workspace(void* memory, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(free_, [](const Piece& piece) { return !piece.is_captured; });
    workspace_ = static_cast<unsigned char*>(memory);
    workspace_bytes_ = bytes;
}

std::size_t QueueScratch::workspace_peak() {
    const std::lock_guard lock(mutex_);
    return places_.peak();
}

Status QueueScratch::take(std::size_t bytes, void** out) noexcept {
    *out = nullptr;
    uint64_t capture = 0;
    if (Status status = queue_->capture(&capture); !status.ok()) {
        return status;
    }
    const std::lock_guard lock(mutex_);
    try {
        // Room for all at once, so that giving back needs none.
        taken_.reserve(taken_.size() + 1);
        free_.reserve(taken_.size() + free_.size() + 1);
        Piece piece;
        piece.place = places_.take(bytes);
        if (Status status = find(piece, bytes, capture != 0); !status.ok()) {
            places_.give(piece.place);
            return status;
        }
        piece.is_captured = piece.is_captured || capture != 0;
        *out = piece.data;
        taken_.push_back(std::move(piece));
    } catch (const std::bad_alloc&) {
        return Status::error(Code::out_of_memory, "queue: no memory for its scratch memory");
    }
    return {};
}

Status QueueScratch::find(Piece& piece, std::size_t bytes, bool is_capturing) {
    if (workspace_ != nullptr) {
        if (piece.place + bytes > workspace_bytes_) {
            return Status::error(Code::out_of_memory,
                                 "queue: its workspace has %zu bytes, but %zu are needed; see "
                                 "mp_queue_get_workspace_peak",
                                 workspace_bytes_, piece.place + bytes);
        }
        piece.data = workspace_ + piece.place;
        return {};
    }
    const auto fit = std::find_if(free_.begin(), free_.end(),
                                  [&](const Piece& p) { return p.buffer.bytes() >= bytes; });
    if (fit != free_.end()) {
        const std::size_t place = std::exchange(piece.place, 0);
        piece = std::move(*fit);
        piece.place = place;
        free_.erase(fit);
        return {};
    }
    if (is_capturing) {
        return queue_->refuse_capture("more scratch memory is needed than any step before took");
    }
    void* memory = nullptr;
    if (Status status = device_->allocate(bytes, &memory); !status.ok()) {
        return status;
    }
    piece.buffer = Buffer::take_over(device_, memory, bytes);
    piece.data = memory;
    // It stands in for the largest that was too small, so that pieces grow instead of piling up.
    const auto largest =
        std::find_if(free_.rbegin(), free_.rend(), [](const Piece& p) { return !p.is_captured; });
    if (largest != free_.rend()) {
        free_.erase(std::next(largest).base());
    }
    return {};
}

void QueueScratch::give(void* memory) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(taken_.begin(), taken_.end(),
                                    [&](const Piece& piece) { return piece.data == memory; });
    Piece piece = std::move(*found);
    taken_.erase(found);
    places_.give(piece.place);
    const bool is_ours = piece.buffer.data() != nullptr;
    if (is_ours && (workspace_ == nullptr || piece.is_captured)) { // else of a time before it
        keep(std::move(piece));
    }
}

void QueueScratch::keep(Piece piece) noexcept {
    const auto place = std::find_if(free_.begin(), free_.end(), [&](const Piece& p) {
        return p.buffer.bytes() >= piece.buffer.bytes();
    });
    free_.insert(place, std::move(piece)); // there is room
}

} // namespace mp
