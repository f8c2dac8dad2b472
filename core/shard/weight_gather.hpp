// SPDX-License-Identifier: Apache-2.0
// WeightGather: slices of tensors from the ranks that own them to all ranks, many tensors in one all-gather. What is
// gathered in a narrower type than the tensor's arrives rounded on every rank, the owner's too, so that all ranks
// have the same bits. Codes travel as they are, and the scales that belong to a slice behind it.
#pragma once

#include <vector>

#include "comm/advance.hpp"
#include "shard/slice_gather.hpp"
#include "tensor/slice.hpp"

namespace mp::shard {

// One tensor.
struct GatherTarget {
    const std::vector<ShardSlice>* slices = nullptr; // by start, over all ranks
    ArrayRef full;                                   // receives all elements
    ArrayRef
        own; // this rank's slice of it; may lie in `full` where the wire's type is the tensor's
    DType wire = DType::none; // fp32, fp16, bf16 or the tensor's own type
};

class WeightGather {
  public:
    // Packs and begins; comm outlives this, and `between` too, which is as of SliceGather. `keeps_own`: nobody writes own
    // slices before the gather is over, so others may read them there.
    WeightGather(Stream& stream, comm::Communicator& comm, std::vector<GatherTarget> targets,
                 Stream* between, bool keeps_own);

    // One short step that waits for nobody: the transfer, or the copy of one slice to its place.
    comm::Advance step(Stream& stream) { return gather_.step(stream); }
    // Waits, and enqueues the copies into the full tensors that are left.
    void finish(Stream& stream) { gather_.wait(stream); }

  private:
    void pack(Stream& stream, bool keeps_own);
    void unpack(Stream& stream, const SliceGather::Slice& slice, const char* at) const;

    std::vector<GatherTarget> targets_;
    SliceGather gather_;
};

} // namespace mp::shard
