// SPDX-License-Identifier: Apache-2.0
#include "shard/slice_gather.hpp"

#include <algorithm>

#include "comm/shares.hpp"

namespace mp::shard {

SliceGather::SliceGather(Stream& stream, comm::Communicator& comm, const Slices& tensors,
                         const SliceBytes& slice_bytes)
    : comm_(comm) {
    lay_out(tensors, slice_bytes);
    buffer_ = std::make_unique<comm::WireBuffer>(stream, comm, comm::total_of(bytes_));
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

char* SliceGather::at(const Slice& slice) const noexcept {
    return buffer_->device() + slice.offset;
}

void SliceGather::begin(Stream& stream, const char* site) {
    buffer_->to_wire();
    const auto rank = static_cast<std::size_t>(comm_.rank());
    comm::CallOptions options;
    options.site = site;
    options.queue = &stream.queue();
    check(comm_.begin_all_gather({buffer_->wire() + offsets_[rank], bytes_[rank], buffer_->wire(),
                                  bytes_.data(), offsets_.data()},
                                 options, &request_));
}

comm::Advance SliceGather::step() {
    if (has_arrived_) {
        return comm::Advance::done;
    }
    const comm::Advance advance = comm::step(request_);
    if (advance == comm::Advance::done) {
        arrive();
    }
    return advance;
}

void SliceGather::wait() {
    if (!has_arrived_) {
        check(request_.wait());
        arrive();
    }
}

void SliceGather::arrive() {
    buffer_->from_wire();
    has_arrived_ = true;
}

} // namespace mp::shard
