// SPDX-License-Identifier: Apache-2.0
// BucketFlight: one bucket of gradients between the rank that staged it and the ranks that own its sums.
#pragma once

#include <memory>
#include <vector>

#include "comm/reduce_scatter.hpp"

namespace mp {

class BucketFlight {
  public:
    struct Load {
        int32_t bucket = 0;
        std::vector<std::unique_ptr<Scratch>> contributions; // as staged: plain elements
        DType staged = DType::none;
        const std::vector<int64_t>* counts = nullptr; // elements, by rank
        TensorRef sums;                               // fp32, of this rank's share
        bool adds = false;                            // to what the sums hold
    };

    // Begins; comm outlives this, and so does counts the constructor.
    BucketFlight(Stream& stream, comm::Communicator& comm, const comm::ReduceDesc& desc, Load load);

    [[nodiscard]] int32_t bucket() const noexcept { return load_.bucket; }
    [[nodiscard]] bool is_done() const noexcept { return is_done_; }
    // One short step that waits for nobody.
    comm::Advance step(Stream& stream);
    void wait(Stream& stream);

  private:
    void land(Stream& stream);

    Load load_;
    std::unique_ptr<Scratch> fresh_; // sums that are added to earlier ones
    comm::ReduceScatter reduction_;
    bool is_reduced_ = false;
    bool is_done_ = false;
};

} // namespace mp
