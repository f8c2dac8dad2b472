// SPDX-License-Identifier: Apache-2.0
#include "shard/slice_gather.hpp"

#include <algorithm>

#include "comm/arrival.hpp"
#include "comm/shares.hpp"

namespace mp::shard {

SliceGather::SliceGather(Stream& stream, comm::Communicator& comm, const Slices& tensors,
                         const SliceBytes& slice_bytes, Stream* between, Arrive arrive)
    : comm_(comm), arrive_(std::move(arrive)) {
    lay_out(tensors, slice_bytes);
    if (between == nullptr) {
        buffer_ = std::make_unique<comm::WireBuffer>(stream, comm, comm::total_of(bytes_));
        return;
    }
    lent_.resize(slices_.size());
    exchange_ = std::make_unique<comm::LentExchange>(
        comm, *between, [this](Stream& reading, const void* const* lent, bool whole) {
            while (!arrive_next(reading, lent)) {
                if (!whole) {
                    return false;
                }
            }
            return true;
        });
}

void SliceGather::lay_out(const Slices& tensors, const SliceBytes& slice_bytes) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        for (const ShardSlice& elements : *tensors[i]) {
            slices_.push_back({i, elements, 0});
        }
    }
    std::stable_sort(slices_.begin(), slices_.end(), [](const Slice& a, const Slice& b) {
        return a.elements.rank < b.elements.rank;
    });
    bytes_.assign(static_cast<std::size_t>(comm_.size()), 0);
    int64_t at = 0;
    for (Slice& slice : slices_) {
        slice.offset = at;
        const int64_t bytes = slice_bytes(slice.tensor, slice.elements.count);
        bytes_[static_cast<std::size_t>(slice.elements.rank)] += bytes;
        at += bytes;
    }
    offsets_ = comm::sums_before(bytes_);
}

bool SliceGather::is_own(const Slice& slice) const noexcept {
    return slice.elements.rank == comm_.rank();
}

char* SliceGather::at(Stream& stream, const Slice& slice) {
    if (!is_lent()) {
        return buffer_->device() + slice.offset;
    }
    const auto rank = static_cast<std::size_t>(comm_.rank());
    if (buffer_ == nullptr) { // of this rank's own alone, where it does not lend all as it is
        buffer_ = std::make_unique<comm::WireBuffer>(stream, comm_, bytes_[rank]);
    }
    char* bytes = buffer_->device() + slice.offset - offsets_[rank];
    lend(slice, bytes);
    return bytes;
}

void SliceGather::lend(const Slice& slice, const void* bytes) {
    lent_[static_cast<std::size_t>(&slice - slices_.data())] = static_cast<const char*>(bytes);
}

void SliceGather::begin(Stream& stream, const char* site) {
    const auto rank = static_cast<std::size_t>(comm_.rank());
    comm::CallOptions options;
    options.site = site;
    options.queue = &stream.queue();
    comm::AllGather what;
    what.send_bytes = bytes_[rank];
    what.receive_bytes = bytes_.data();
    if (is_lent()) {
        stream.sync();
        what.send = lent_.data();
        exchange_->begin(what, options);
        return;
    }
    buffer_->to_wire();
    what.send = buffer_->wire() + offsets_[rank];
    what.receive = buffer_->wire();
    what.receive_offsets = offsets_.data();
    check(comm_.begin(what, options, &request_));
}

// True when none is left.
bool SliceGather::arrive_next(Stream& stream, const void* const* lent) {
    if (arrived_ < slices_.size()) {
        const Slice& slice = slices_[arrived_];
        arrive_(stream, slice,
                lent == nullptr
                    ? buffer_->device() + slice.offset
                    : static_cast<const char* const*>(lent[slice.elements.rank])[arrived_]);
        ++arrived_;
    }
    return arrived_ == slices_.size();
}

comm::Advance SliceGather::step(Stream& stream) {
    if (is_lent()) {
        return exchange_->step(stream);
    }
    if (!is_transferred_) {
        const comm::Advance advance = comm::step(request_);
        if (advance != comm::Advance::done) {
            return advance;
        }
        buffer_->from_wire();
        is_transferred_ = true;
    }
    return arrive_next(stream, nullptr) ? comm::Advance::done : comm::Advance::moved;
}

void SliceGather::wait(Stream& stream) {
    if (is_lent()) {
        exchange_->wait(stream);
        return;
    }
    if (!is_transferred_) {
        comm::await_arrival(stream, comm_, request_);
        buffer_->from_wire();
        is_transferred_ = true;
    }
    while (step(stream) != comm::Advance::done) {
    }
}

} // namespace mp::shard
