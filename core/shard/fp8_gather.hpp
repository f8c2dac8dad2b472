// SPDX-License-Identifier: Apache-2.0
// Weights that travel as fp8 codes: each rank quantizes its pieces under the scale of the whole tensor, so that the gathered
// codes and scale are those of a cast in one place. All weights' amaxes go in one message, ahead of the gather if wanted.
#pragma once

#include <memory>
#include <vector>

#include "comm/reduce.hpp"
#include "shard/plan.hpp"
#include "tensor/tensor.hpp"

namespace mp {

struct Fp8Weight {
    const std::vector<ShardPiece>* pieces = nullptr; // by start, over all ranks
    const Tensor* own =
        nullptr;            // this rank's piece, exact (fp32, fp16, bf16); null where it has none
    Tensor* full = nullptr; // codes under one scale for the tensor
};

// What the weights are quantized with. Belongs to the weights as they were: it is refused once any was written.
struct Fp8Scales {
    std::vector<numerics::BlockScale> scales;
    std::vector<float> amaxes;
    std::vector<uint64_t> versions; // of the own pieces
};

// Collective: one message for all weights. Waits.
Fp8Scales agree_on_scales(Stream& stream, comm::Communicator& comm,
                          const std::vector<Fp8Weight>& weights);

class Fp8Gather {
  public:
    // Quantizes this rank's pieces and begins the gather, a byte an element. Throws bad_state for scales that are
    // older than the weights. comm outlives this.
    Fp8Gather(Stream& stream, comm::Communicator& comm, std::vector<Fp8Weight> weights,
              Fp8Scales scales);
    // Waits; the full tensors have their codes, scale and amax.
    void finish(Stream& stream);

  private:
    struct Part {
        std::size_t weight;
        ShardPiece piece;
        int64_t offset;
    };

    void lay_out(int32_t ranks);
    void quantize(Stream& stream, int32_t rank) const;

    std::vector<Fp8Weight> weights_;
    Fp8Scales scales_;
    std::vector<Part> parts_; // by rank
    std::vector<int64_t> bytes_, offsets_;
    std::unique_ptr<comm::WireBuffer> buffer_;
    comm::CommRequest request_;
};

} // namespace mp
