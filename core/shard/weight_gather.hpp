// SPDX-License-Identifier: Apache-2.0
// WeightGather: pieces of tensors from the ranks that own them to all ranks, many tensors in one all-gather. What is
// gathered in a narrower type than the tensor's arrives rounded on every rank, the owner's too, so that all ranks
// have the same bits.
#pragma once

#include <vector>

#include "comm/advance.hpp"
#include "shard/part_gather.hpp"
#include "tensor/slice.hpp"

namespace mp::shard {

// One tensor.
struct GatherTarget {
    const std::vector<ShardSlice>* pieces = nullptr; // by start, over all ranks
    TensorSlice full;                                // receives all elements
    TensorSlice
        own; // this rank's piece of it; may lie in `full` where the wire's type is the tensor's
    DType wire = DType::none; // fp32, fp16, bf16 or the tensor's own type
};

class WeightGather {
  public:
    // Packs and begins; comm outlives this.
    WeightGather(Stream& stream, comm::Communicator& comm, std::vector<GatherTarget> targets);

    // One short step that waits for nobody: the transfer, or the copy of one piece to its place.
    comm::Advance step(Stream& stream);
    // Waits, and enqueues the copies into the full tensors that are left.
    void finish(Stream& stream);

  private:
    void pack(Stream& stream) const;
    void unpack(Stream& stream, const PartGather::Part& part) const;

    std::vector<GatherTarget> targets_;
    PartGather parts_;
    std::size_t unpacked_ = 0; // parts
};

} // namespace mp::shard
