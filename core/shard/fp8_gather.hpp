// SPDX-License-Identifier: Apache-2.0
// Weights that travel as fp8 codes: each rank quantizes its slices under the scale of the whole tensor, so that the gathered
// codes and scale are those of a cast in one place. All weights' amaxes go in one message, ahead of the gather if wanted.
#pragma once

#include <vector>

#include "comm/advance.hpp"
#include "shard/slice_gather.hpp"
#include "tensor/tensor.hpp"

namespace mp::shard {

struct Fp8Weight {
    const std::vector<ShardSlice>* slices = nullptr; // by start, over all ranks
    const Tensor* own =
        nullptr;            // this rank's slice, exact (fp32, fp16, bf16); null where it has none
    Tensor* full = nullptr; // codes under one scale for the tensor
};

// What the weights are quantized with. Belongs to the weights as they were: it is refused once any was written.
struct Fp8Scales {
    std::vector<numerics::BlockScale> scales;
    std::vector<float> amaxes;
    std::vector<uint64_t> versions; // of the own slices
};

// Collective: one message for all weights. Waits.
Fp8Scales agree_on_scales(Stream& stream, comm::Communicator& comm,
                          const std::vector<Fp8Weight>& weights);

class Fp8Gather {
  public:
    // Quantizes this rank's slices and begins the gather, a byte an element. Throws bad_state for scales that are
    // older than the weights. comm outlives this, and `between` too, which is as of SliceGather.
    Fp8Gather(Stream& stream, comm::Communicator& comm, std::vector<Fp8Weight> weights,
              Fp8Scales scales, Stream* between = nullptr);
    // One short step that waits for nobody: the transfer, the copy of one slice to its place, or the scales.
    comm::Advance step(Stream& stream);
    // Waits; the full tensors have their codes, scale and amax.
    void finish(Stream& stream);

  private:
    void check_scales() const;
    void quantize(Stream& stream);
    void write_scales(Stream& stream) const;

    std::vector<Fp8Weight> weights_;
    Fp8Scales scales_;
    SliceGather gather_;
};

} // namespace mp::shard
