// SPDX-License-Identifier: Apache-2.0
// WeightGather: pieces of tensors from the ranks that own them to all ranks, many tensors in one all-gather. What is
// gathered in a narrower type than the tensor's arrives rounded on every rank, the owner's too, so that all ranks
// have the same bits.
#pragma once

#include <memory>
#include <vector>

#include "comm/reduce.hpp"
#include "optim/param_states.hpp"
#include "shard/plan.hpp"

namespace mp {

// One tensor.
struct GatherTarget {
    const std::vector<ShardPiece>* pieces = nullptr; // by start, over all ranks
    TensorPiece full;                                // receives all elements
    TensorPiece
        own; // this rank's piece of it; may lie in `full` where the wire's type is the tensor's
    DType wire = DType::none; // fp32, fp16, bf16 or the tensor's own type
};

class WeightGather {
  public:
    // Packs and begins; comm outlives this.
    WeightGather(Stream& stream, comm::Communicator& comm, std::vector<GatherTarget> targets);

    // Waits, and enqueues the copies into the full tensors.
    void finish(Stream& stream);

  private:
    struct Part {
        std::size_t target;
        ShardPiece piece;
        int64_t offset; // bytes in the buffer
    };

    void lay_out();
    void pack(Stream& stream) const;
    void unpack(Stream& stream, const Part& part) const;
    [[nodiscard]] bool is_in_place(const Part& part) const;

    comm::Communicator& comm_;
    std::vector<GatherTarget> targets_;
    std::vector<Part> parts_; // by rank
    std::vector<int64_t> bytes_, offsets_;
    std::unique_ptr<comm::WireBuffer> buffer_;
    comm::CommRequest request_;
};

} // namespace mp
