// SPDX-License-Identifier: Apache-2.0
#include "shard/part_gather.hpp"

#include <algorithm>

#include "comm/shares.hpp"

namespace mp::shard {

PartGather::PartGather(Stream& stream, comm::Communicator& comm, const Pieces& tensors,
                       const PartBytes& part_bytes)
    : comm_(comm) {
    lay_out(tensors, part_bytes);
    buffer_ = std::make_unique<comm::WireBuffer>(stream, comm, comm::total_of(bytes_));
}

void PartGather::lay_out(const Pieces& tensors, const PartBytes& part_bytes) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        for (const ShardSlice& piece : *tensors[i]) {
            parts_.push_back({i, piece, 0});
        }
    }
    std::stable_sort(parts_.begin(), parts_.end(),
                     [](const Part& a, const Part& b) { return a.piece.rank < b.piece.rank; });
    bytes_.assign(static_cast<std::size_t>(comm_.size()), 0);
    int64_t at = 0;
    for (Part& part : parts_) {
        part.offset = at;
        const int64_t bytes = part_bytes(part.tensor, part.piece.count);
        bytes_[static_cast<std::size_t>(part.piece.rank)] += bytes;
        at += bytes;
    }
    offsets_ = comm::sums_before(bytes_);
}

bool PartGather::is_own(const Part& part) const noexcept { return part.piece.rank == comm_.rank(); }

char* PartGather::at(const Part& part) const noexcept { return buffer_->device() + part.offset; }

void PartGather::begin(Stream& stream, const char* site) {
    buffer_->to_wire();
    const auto rank = static_cast<std::size_t>(comm_.rank());
    comm::CallOptions options;
    options.site = site;
    options.stream = stream.queue().native();
    check(comm_.begin_all_gather({buffer_->wire() + offsets_[rank], bytes_[rank], buffer_->wire(),
                                  bytes_.data(), offsets_.data()},
                                 options, &request_));
}

comm::Advance PartGather::step() {
    if (has_arrived_) {
        return comm::Advance::done;
    }
    const comm::Advance advance = comm::step(request_);
    if (advance == comm::Advance::done) {
        arrive();
    }
    return advance;
}

void PartGather::wait() {
    if (!has_arrived_) {
        check(request_.wait());
        arrive();
    }
}

void PartGather::arrive() {
    buffer_->from_wire();
    has_arrived_ = true;
}

} // namespace mp::shard
