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

// What a weight is quantized with, in device memory. Belongs to the weight as it was: it is refused once that was written.
struct Fp8Scale {
    float* amax = nullptr;
    float* scale_inv = nullptr;
    uint64_t version = 0; // of the own slice
};

// Those of some weights.
class Fp8Scales {
  public:
    // Collective: one message for all weights. Earlier scales of this object are gone: no gather may be under way with them.
    void agree(Stream& stream, comm::Communicator& comm, const std::vector<Fp8Weight>& weights);
    [[nodiscard]] Fp8Scale operator[](std::size_t weight) const;
    [[nodiscard]] std::vector<Fp8Scale> all() const;

  private:
    Buffer values_; // amaxes, then scales
    std::vector<uint64_t> versions_;
};

class Fp8Gather {
  public:
    // Quantizes this rank's slices and begins the gather, a byte an element. Throws bad_state for scales that are
    // older than the weights. The scales' memory and comm outlive this, and `between` too, which is as of SliceGather.
    Fp8Gather(Stream& stream, comm::Communicator& comm, std::vector<Fp8Weight> weights,
              std::vector<Fp8Scale> scales, Stream* between = nullptr);
    // One short step that waits for nobody: the transfer, the copy of one slice to its place, or the scales.
    comm::Advance step(Stream& stream);
    // The full tensors have their codes, scale and amax.
    void finish(Stream& stream);

  private:
    void check_scales() const;
    void quantize(Stream& stream);
    void write_scales(Stream& stream) const;

    comm::Communicator& comm_;
    std::vector<Fp8Weight> weights_;
    std::vector<Fp8Scale> scales_;
    SliceGather gather_;
};

} // namespace mp::shard
