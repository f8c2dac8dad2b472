// SPDX-License-Identifier: Apache-2.0
#include "shard/weight_gather.hpp"

#include <algorithm>

namespace mp {
namespace {

constexpr int64_t kAlign = 16;

// The codes, and behind them the scale where the tensor has one; that tensor is never cut.
int64_t part_bytes(const GatherTarget& target, int64_t count) {
    const int64_t codes = bytes_of(target.wire, count);
    const int64_t scale = target.full.scale_inv != nullptr ? int64_t{sizeof(float)} : 0;
    return (codes + scale + kAlign - 1) / kAlign * kAlign;
}

comm::WireFormat plain(DType dtype) { return {dtype, comm::WireScale::none}; }

void copy(Stream& stream, void* to, const void* from, int64_t bytes) {
    if (bytes > 0 && to != from) {
        stream.copy(to, from, static_cast<std::size_t>(bytes), CopyKind::device_to_device);
    }
}

} // namespace

WeightGather::WeightGather(Stream& stream, comm::Communicator& comm,
                           std::vector<GatherTarget> targets)
    : comm_(comm), targets_(std::move(targets)) {
    lay_out();
    const auto size = static_cast<std::size_t>(comm_.size());
    buffer_ = std::make_unique<comm::WireBuffer>(stream, comm_, offsets_[size]);
    pack(stream);
    buffer_->to_wire();
    const auto rank = static_cast<std::size_t>(comm_.rank());
    comm::CallOptions options;
    options.site = "weights";
    options.stream = stream.queue().native();
    check(comm_.begin_all_gather({buffer_->wire() + offsets_[rank], bytes_[rank], buffer_->wire(),
                                  bytes_.data(), offsets_.data()},
                                 options, &request_));
}

void WeightGather::lay_out() {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
        for (const ShardPiece& piece : *targets_[i].pieces) {
            parts_.push_back({i, piece, 0});
        }
    }
    std::stable_sort(parts_.begin(), parts_.end(),
                     [](const Part& a, const Part& b) { return a.piece.rank < b.piece.rank; });
    bytes_.assign(static_cast<std::size_t>(comm_.size()), 0);
    offsets_.assign(static_cast<std::size_t>(comm_.size()) + 1, 0);
    int64_t at = 0;
    for (Part& part : parts_) {
        part.offset = at;
        const int64_t bytes = part_bytes(targets_[part.target], part.piece.count);
        bytes_[static_cast<std::size_t>(part.piece.rank)] += bytes;
        at += bytes;
    }
    for (std::size_t rank = 0; rank < bytes_.size(); ++rank) {
        offsets_[rank + 1] = offsets_[rank] + bytes_[rank];
    }
}

void WeightGather::pack(Stream& stream) const {
    for (const Part& part : parts_) {
        if (part.piece.rank != comm_.rank()) {
            continue;
        }
        const GatherTarget& target = targets_[part.target];
        char* at = buffer_->device() + part.offset;
        if (target.wire == target.own.ref.dtype) {
            const int64_t codes = bytes_of(target.wire, part.piece.count);
            copy(stream, at, target.own.ref.data, codes);
            if (target.own.scale_inv != nullptr) {
                copy(stream, at + codes, target.own.scale_inv, sizeof(float));
            }
        } else {
            comm::pack(stream, {target.own.ref, nullptr}, 0, part.piece.count, plain(target.wire),
                       at);
        }
    }
}

bool WeightGather::is_in_place(const Part& part) const {
    const GatherTarget& target = targets_[part.target];
    const TensorRef here = comm::slice(target.full.ref, part.piece.start, part.piece.count);
    return part.piece.rank == comm_.rank() && here.data == target.own.ref.data;
}

void WeightGather::unpack(Stream& stream, const Part& part) const {
    const GatherTarget& target = targets_[part.target];
    const TensorRef here = comm::slice(target.full.ref, part.piece.start, part.piece.count);
    const char* at = buffer_->device() + part.offset;
    if (target.wire != target.full.ref.dtype) {
        comm::unpack(stream, at, part.piece.count, plain(target.wire), here);
        return;
    }
    const int64_t codes = bytes_of(target.wire, part.piece.count);
    copy(stream, here.data, at, codes);
    if (target.full.scale_inv != nullptr) {
        copy(stream, target.full.scale_inv, at + codes, sizeof(float));
    }
}

void WeightGather::finish(Stream& stream) {
    check(request_.wait());
    buffer_->from_wire();
    for (const Part& part : parts_) {
        if (!is_in_place(part)) {
            unpack(stream, part);
        }
    }
}

} // namespace mp
