// SPDX-License-Identifier: Apache-2.0
#include "shard/weight_gather.hpp"

#include "comm/wire.hpp"

namespace mp::shard {
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

PartGather::Pieces slices_of(const std::vector<GatherTarget>& targets) {
    PartGather::Pieces pieces;
    pieces.reserve(targets.size());
    for (const GatherTarget& target : targets) {
        pieces.push_back(target.pieces);
    }
    return pieces;
}

} // namespace

WeightGather::WeightGather(Stream& stream, comm::Communicator& comm,
                           std::vector<GatherTarget> targets)
    : targets_(std::move(targets)),
      parts_(stream, comm, slices_of(targets_), [this](std::size_t tensor, int64_t count) {
          return part_bytes(targets_[tensor], count);
      }) {
    pack(stream);
    parts_.begin(stream, "weights");
}

void WeightGather::pack(Stream& stream) const {
    for (const PartGather::Part& part : parts_.parts()) {
        if (!parts_.is_own(part)) {
            continue;
        }
        const GatherTarget& target = targets_[part.tensor];
        char* at = parts_.at(part);
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

void WeightGather::unpack(Stream& stream, const PartGather::Part& part) const {
    const GatherTarget& target = targets_[part.tensor];
    const TensorRef here = comm::slice(target.full.ref, part.piece.start, part.piece.count);
    if (parts_.is_own(part) && here.data == target.own.ref.data) {
        return; // it never left
    }
    const char* at = parts_.at(part);
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

comm::Advance WeightGather::step(Stream& stream) {
    const comm::Advance transfer = parts_.step();
    if (transfer != comm::Advance::done) {
        return transfer;
    }
    if (unpacked_ < parts_.parts().size()) {
        unpack(stream, parts_.parts()[unpacked_++]);
    }
    return unpacked_ < parts_.parts().size() ? comm::Advance::moved : comm::Advance::done;
}

void WeightGather::finish(Stream& stream) {
    parts_.wait();
    while (step(stream) != comm::Advance::done) {
    }
}

} // namespace mp::shard
