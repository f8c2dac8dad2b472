// SPDX-License-Identifier: Apache-2.0
// BucketFlight: one bucket of gradients between the rank that staged it and the ranks that own its sums.
#pragma once

#include <memory>
#include <vector>

#include "comm/reduce.hpp"

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
        // A second level at most. Replicas add the sums and all get them; nodes add what was summed for them, in the
        // wire's type again, and each gets its share of it.
        comm::Communicator* replicas = nullptr;
        comm::Communicator* nodes = nullptr;
        const std::vector<int64_t>* node_counts = nullptr; // elements, by node
    };

    // Begins; comm, and what the load points to, outlive this.
    BucketFlight(Stream& stream, comm::Communicator& comm, const comm::ReduceDesc& desc, Load load);

    [[nodiscard]] int32_t bucket() const noexcept { return load_.bucket; }
    [[nodiscard]] bool is_done() const noexcept { return is_done_; }
    // Whether there is something to do that begins no message: the second level is for wait().
    [[nodiscard]] bool can_step() const noexcept {
        return !is_done_ && !(has_second_level() && is_reduced_);
    }
    // One short step of that, which waits for nobody. done: nothing is left but perhaps wait().
    comm::Advance step(Stream& stream);
    void wait(Stream& stream);

  private:
    [[nodiscard]] bool has_second_level() const noexcept {
        return load_.replicas != nullptr || load_.nodes != nullptr;
    }
    void add_replicas(Stream& stream);
    void add_nodes(Stream& stream);
    void land(Stream& stream);

    comm::ReduceDesc desc_;
    Load load_;
    TensorRef result_;               // the sums, or fresh_
    std::unique_ptr<Scratch> fresh_; // sums that are added to earlier ones
    std::unique_ptr<Scratch> wide_;  // this node's sums for all nodes
    comm::ReduceScatter reduction_;
    bool is_reduced_ = false;
    bool is_done_ = false;
};

} // namespace mp
