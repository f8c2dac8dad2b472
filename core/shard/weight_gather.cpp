// SPDX-License-Identifier: Apache-2.0
#include "shard/weight_gather.hpp"

#include "comm/wire.hpp"
#include "dtype/divide.hpp"

namespace mp::shard {
namespace {

constexpr int64_t kAlign = 16;

// Bytes of what lies behind a slice's codes: the scales that belong to it, and where those are of blocks the tensor's amax.
struct ScaleBytes {
    int64_t scales = 0;
    int64_t amax = 0;
};
ScaleBytes scale_bytes(const ArrayRef& slice) {
    if (slice.scale_inv == nullptr) {
        return {};
    }
    const ScaleGrid& grid = slice.format.grid;
    return {bytes_of(grid.dtype, slice.scale_count()),
            has_blocks(grid) ? int64_t{sizeof(float)} : 0};
}

int64_t slice_bytes(const GatherTarget& target, int64_t count) {
    const ScaleBytes behind = scale_bytes(slice_of(target.full, 0, count));
    return round_up(bytes_of(target.wire, count) + behind.scales + behind.amax, kAlign);
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
            const ScaleBytes behind = scale_bytes(target.own);
            copy(stream, at + codes, target.own.scale_inv, behind.scales);
            copy(stream, at + codes + behind.scales, target.own.amax, behind.amax);
        } else {
            comm::pack(stream, plain_array(target.own.elements()), 0, slice.elements.count,
                       plain(target.wire), at);
        }
    }
}

void WeightGather::unpack(Stream& stream, const SliceGather::Slice& slice, const char* at) const {
    const GatherTarget& target = targets_[slice.tensor];
    const ArrayRef here = slice_of(target.full, slice.elements.start, slice.elements.count);
    if (gather_.is_own(slice) && here.data == target.own.data) {
        return; // it never left
    }
    if (target.wire != target.full.dtype()) {
        comm::unpack(stream, at, slice.elements.count, plain(target.wire), here.elements());
        return;
    }
    const int64_t codes = bytes_of(target.wire, slice.elements.count);
    copy(stream, here.data, at, codes);
    const ScaleBytes behind = scale_bytes(here);
    copy(stream, here.scale_inv, at + codes, behind.scales);
    copy(stream, here.amax, at + codes + behind.scales, behind.amax);
}

} // namespace mp::shard
