// SPDX-License-Identifier: Apache-2.0
// InFlightBucket: one bucket of gradients between the rank that staged it and the ranks that own its sums.
//
// Whoever makes one begins its first message, in the order of the calls. What is begun later may be begun between the
// calls, at another time on every rank: on communicators that only these buckets use, by one bucket at a time, in the order in
// which they were made. The bucket that comes next has `is_first`.
#pragma once

#include <memory>
#include <vector>

#include "comm/lent_sum.hpp"
#include "comm/reduce.hpp"
#include "runtime/host_lane.hpp"
#include "shard/shared_bucket.hpp"

namespace mp::shard {

class InFlightBucket {
  public:
    struct Load {
        int32_t bucket = 0;
        std::vector<std::unique_ptr<Scratch>> contributions; // as staged: plain elements
        DType staged = DType::none;
        // Not null: ranks read each other's contributions where they lie (comm/lent_exchange.hpp), and this stream may be used
        // for it. A null contribution lies in the gradients.
        Stream* between = nullptr;
        comm::LentSlots lent;
        std::vector<comm::LentPiece> pieces;
        std::unique_ptr<SharedBucket> shared; // has them where ranks share scales; else null
        const std::vector<int64_t>* counts = nullptr; // elements, by rank
        TensorRef sums;           // of this rank's shard: fp32, or codes under shared scales
        bool adds = false;        // to what the sums hold
        HostLane* lane = nullptr; // not null: sums are in host memory, where they come by it
        // The first message too: there are several, as order exact has, and shared scales.
        bool begins_in_order = false;
        // A second level at most. Replicas add the sums and all get them; nodes add what was summed for them, in the
        // wire's type again, and each gets its shard of it.
        comm::Communicator* replicas = nullptr;
        comm::Communicator* nodes = nullptr;
        const std::vector<int64_t>* node_counts = nullptr; // elements, by node
    };

    // comm, and what the load points to, outlive this.
    InFlightBucket(Stream& stream, comm::Communicator& comm, const comm::ReduceDesc& desc,
                   Load load);

    [[nodiscard]] int32_t bucket() const noexcept { return load_.bucket; }
    [[nodiscard]] bool is_done() const noexcept { return phase_ == Phase::done; }
    [[nodiscard]] bool can_step(bool is_first) const noexcept {
        return phase_ == Phase::first_level || (is_first && phase_ != Phase::done);
    }
    // One short step, which waits for nobody. done: its sums are there.
    comm::Advance step(Stream& stream);
    // Of the first bucket: until its sums are there.
    void wait(Stream& stream);

  private:
    // staged, between_levels: the next message is not begun. scales: ranks agree on them.
    enum class Phase { staged, scales, first_level, between_levels, second_level, done };

    void begin(Stream& stream);
    void begin_first_level(Stream& stream);
    void begin_second_level(Stream& stream);
    void end_first_level(Stream& stream);
    void begin_replicas(Stream& stream);
    void begin_nodes(Stream& stream);
    void finish(Stream& stream);
    void add(Stream& stream);
    void fetch_sums(Stream& stream);
    void leave(Stream& stream);

    comm::Communicator& comm_;
    comm::ReduceDesc desc_;
    Load load_;
    Buffer on_device_;               // the sums until they have left for the host
    TensorRef sums_;                 // there, or where they stay
    TensorRef result_;               // the sums, or fresh_
    std::unique_ptr<Scratch> fresh_; // fp32 sums that are added to earlier ones, or become codes
    std::unique_ptr<Scratch> wide_;  // this node's sums for all nodes
    std::unique_ptr<comm::ReduceScatter> scatter_; // of the level that is under way
    std::unique_ptr<comm::LentSum> lent_sum_;      // in place of the first level's
    std::unique_ptr<comm::AllReduce> all_reduce_;  // of the replicas
    Phase phase_ = Phase::staged;
};

} // namespace mp::shard
