// SPDX-License-Identifier: Apache-2.0
#include "shard/weight_gather.hpp"

#include "comm/wire.hpp"
#include "dtype/divide.hpp"

namespace mp::shard {
namespace {

constexpr int64_t kAlign = 16;

// The codes, and behind them the scale where the tensor has one; that tensor is never cut.
int64_t slice_bytes(const GatherTarget& target, int64_t count) {
    const int64_t codes = bytes_of(target.wire, count);
    const int64_t scale = target.full.scale_inv != nullptr ? int64_t{sizeof(float)} : 0;
    return round_up(codes + scale, kAlign);
}

Format plain(DType dtype) { return comm::wire_format(dtype); }

void copy(Stream& stream, void* to, const void* from, int64_t bytes) {
    if (bytes > 0 && to != from) {
        stream.copy(to, from, static_cast<std::size_t>(bytes), CopyKind::device_to_device);
    }
}

SliceGather::Slices slices_of(const std::vector<GatherTarget>& targets) {
    SliceGather::Slices slices;
    slices.reserve(targets.size());
    for (const GatherTarget& target : targets) {
        slices.push_back(target.slices);
    }
    return slices;
}

} // namespace

WeightGather::WeightGather(Stream& stream, comm::Communicator& comm,
                           std::vector<GatherTarget> targets, Stream* between, bool keeps_own)
    : targets_(std::move(targets)), gather_(
                                        stream, comm, slices_of(targets_),
                                        [this](std::size_t tensor, int64_t count) {
                                            return slice_bytes(targets_[tensor], count);
                                        },
                                        between,
                                        [this](Stream& arriving, const SliceGather::Slice& slice,
                                               const char* at) { unpack(arriving, slice, at); }) {
    pack(stream, keeps_own);
    gather_.begin(stream, "weights");
}

void WeightGather::pack(Stream& stream, bool keeps_own) {
    for (const SliceGather::Slice& slice : gather_.slices()) {
        if (!gather_.is_own(slice)) {
            continue;
        }
        const GatherTarget& target = targets_[slice.tensor];
        const bool is_as_sent = target.wire == target.own.dtype();
        if (gather_.is_lent() && keeps_own && is_as_sent && target.own.scale_inv == nullptr) {
            gather_.lend(slice, target.own.data);
            continue;
        }
        char* at = gather_.at(stream, slice);
        if (is_as_sent) {
            const int64_t codes = bytes_of(target.wire, slice.elements.count);
            copy(stream, at, target.own.data, codes);
            if (target.own.scale_inv != nullptr) {
                copy(stream, at + codes, target.own.scale_inv, sizeof(float));
            }
        } else {
            comm::pack(stream, plain_array(target.own.elements()), 0, slice.elements.count,
                       plain(target.wire), at);
        }
    }
}

void WeightGather::unpack(Stream& stream, const SliceGather::Slice& slice, const char* at) const {
    const GatherTarget& target = targets_[slice.tensor];
    const TensorRef here =
        comm::slice(target.full.elements(), slice.elements.start, slice.elements.count);
    if (gather_.is_own(slice) && here.data == target.own.data) {
        return; // it never left
    }
    if (target.wire != target.full.dtype()) {
        comm::unpack(stream, at, slice.elements.count, plain(target.wire), here);
        return;
    }
    const int64_t codes = bytes_of(target.wire, slice.elements.count);
    copy(stream, here.data, at, codes);
    if (target.full.scale_inv != nullptr) {
        copy(stream, target.full.scale_inv, at + codes, sizeof(float));
    }
}

} // namespace mp::shard
