// SPDX-License-Identifier: Apache-2.0
// Gradients as E4M3 with a scale that all ranks share, summed over the ranks in fp32 and rounded to E4M3 once
// (FP8-LM, equations 1 to 6; numerics/fp8_reduce.hpp). One message of integer maxima carries the amaxes of all
// tensors and whether the last reduction saturated; from it every rank works out the same factors mu and scales.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/reduce.hpp"
#include "numerics/fp8_reduce.hpp"

namespace mp::comm {

// Elements [start, start + count) of a tensor, and who gets their sum. A tensor may be one slice (whole tensors shared
// out greedily) or several (slices of a flat buffer); all share its scale.
struct Fp8Slice {
    int32_t tensor = 0;
    int32_t owner = 0;
    int64_t start = 0;
    int64_t count = 0;
    void* codes = nullptr; // count bytes of device memory; looked at on the owner only
};

class Fp8GradientReducer {
  public:
    // All ranks give the same slices, but for `codes`.
    Fp8GradientReducer(Communicator& comm, Stream& stream, int32_t tensors,
                       std::vector<Fp8Slice> slices);

    // `gradients`: by tensor, as this rank has them. Blocking. Afterwards every owner has the codes of the sum, value = code * scale_inv(tensor): the mean is that
    // over the ranks, and 1/N belongs into the step. A tensor that is not finite on any rank keeps its scale and
    // mu, and is_finite() says so on every rank.
    void reduce(std::span<const WireSource> gradients, const CallOptions& options = {});

    [[nodiscard]] float scale_inv(int32_t tensor) const { return at(tensor).scale_inv; }
    [[nodiscard]] float mu(int32_t tensor) const { return at(tensor).mu; }
    [[nodiscard]] bool is_finite(int32_t tensor) const;
    // For checkpoints, and to begin elsewhere than at 1. The same on every rank.
    void set_mu(int32_t tensor, float mu);
    // Codes of the last reduction that this rank owns and that are the largest one.
    [[nodiscard]] int64_t saturated(int32_t tensor) const { return at(tensor).saturated; }

  private:
    struct State {
        float mu = 1.0F;
        float scale_inv = 1.0F;
        uint32_t amax_bits = 0;
        int64_t saturated = 0;
        bool trips = false; // a slice of this rank, in the last reduction
        bool was_reduced = false;
    };
    [[nodiscard]] const State& at(int32_t tensor) const {
        return states_.at(static_cast<std::size_t>(tensor));
    }
    void agree(std::span<const WireSource> gradients, const CallOptions& options);
    void exchange(std::span<const WireSource> gradients, const CallOptions& options);
    void pack_pieces(std::span<const WireSource> gradients, std::span<const int64_t> offsets,
                     char* base);
    void sum_pieces(std::span<const int64_t> offsets, char* received);
    void count_saturated(const Fp8Slice& slice);

    Communicator& comm_;
    std::shared_ptr<Stream> stream_;
    std::vector<Fp8Slice> slices_;
    std::vector<State> states_;
};

} // namespace mp::comm
