// SPDX-License-Identifier: Apache-2.0
// GradientBuckets: the gradients of a sharded model on their way to the ranks that own them. A bucket is copied into the
// wire's type, slice behind slice in the order of the owners, and reduced as soon as all its gradients are there; this
// rank's sums lie in memory of their own: in fp32, or as E4M3 codes where ranks share a scale. Where ranks share memory they
// read each other's buckets where they lie, and in finish(), which nobody's writing overtakes, the gradients themselves.
//
// Slices are a multiple of 128 elements apart, so no block of a wire format reaches from one into the next, and a
// parameter's blocks are the same for every plan.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "comm/progress.hpp"
#include "comm/reduce.hpp"
#include "shard/in_flight_bucket.hpp"
#include "shard/lent_memory.hpp"
#include "shard/plan.hpp"
#include "shard/shared_scales.hpp"
#include "shard/sums_memory.hpp"
#include "tensor/slice.hpp"

namespace mp::shard {

struct GradientForm {
    // By parameter; a bucket's are all the same. None: it is frozen, and nothing travels.
    std::vector<Format> wires;
    comm::SumOrder order = comm::SumOrder::rank;
    int32_t slots = 0; // tree, exact: microbatches of all ranks together; 0: one a rank
    // Ranks whose sums are added too, in fp32, so that all of them have the same. Null: nobody's. Nothing else uses it.
    comm::Communicator* replicas = nullptr;
    // The ranks with this one's place on each node, where the buckets' ranks are those of a node: a node's sums go on in the
    // wire's type to the shard's owner among them. Order rank or fast. Null: one level. Nothing else uses it.
    comm::Communicator* nodes = nullptr;
    // Not null: the device is the host's, of all ranks, and they share its memory. Owned by whoever moves buckets on, who reads
    // on it what other ranks lend.
    Stream* between = nullptr;
    // Where gradients have memory, in which the caller's is: owned by whoever has the buckets.
    LentMemory* lent = nullptr;
    // Not null: this rank's sums are in host memory, and each bucket's come there by it while the next one is reduced.
    HostLane* lane = nullptr;
    bool drops_gradients = false;  // gradients have memory only until they are on their way
    bool zeroes_gradients = false; // they are zero once they are on their way
};

class GradientBuckets {
  public:
    // `gradients` by parameter; plan, comm and messages outlive this object. A communicator that is a multiple of the
    // plan's ranks is that many groups of them, and all get every contribution. In the order exact, and for wires with
    // shared scales, nothing else uses it.
    GradientBuckets(Stream& stream, comm::Communicator& comm, const ShardPlan& plan,
                    const GradientForm& form, std::vector<std::shared_ptr<Tensor>> gradients,
                    comm::MessageCounts& messages);
    GradientBuckets(const GradientBuckets&) = delete;
    GradientBuckets& operator=(const GradientBuckets&) = delete;
    ~GradientBuckets() {
        if (form_.lane != nullptr) {
            form_.lane->finish();
        }
    }

    // A gradient's memory is there, of zeros where it was not.
    void acquire(Stream& stream, int32_t parameter);
    // Its gradient names the memory that it is to have.
    [[nodiscard]] bool is_placed(int32_t parameter) const {
        return gradients_[static_cast<std::size_t>(parameter)]->is_placed();
    }
    // A gradient has its last addition before the next reduction. The bucket whose last one it is goes on its way.
    void ready(Stream& stream, int32_t parameter);
    // All gradients of one of this rank's slots are there, said to be ready before or not.
    void end_slot(Stream& stream);
    // One short step of what is under way, at any time: what it begins, sums of replicas and nodes, and in the order exact all,
    // goes over communicators that nothing else uses, in the order in which the buckets left.
    comm::Advance step(Stream& stream);
    // What is not on its way yet is sent, and all is waited for. Throws where slots are missing.
    void finish(Stream& stream);
    // All that is in flight.
    void land(Stream& stream);
    // The sums have been used. After a failure: what is under way is given up, and nobody reads the gradients any more.
    void start_over() noexcept;

    // The sum of this rank's slice of a parameter, and its scale, on the host where there is a lane; after finish().
    [[nodiscard]] ArrayRef sum_of(int32_t parameter) const;
    // Gradients are means over each contribution; their sum is divided by so many.
    [[nodiscard]] int32_t contributions() const noexcept;
    // On the device, and on the host.
    [[nodiscard]] int64_t bytes() const noexcept {
        return sums_.device_bytes() + scales_.device_bytes();
    }
    [[nodiscard]] int64_t host_bytes() const noexcept {
        return sums_.host_bytes() + scales_.host_bytes();
    }
    [[nodiscard]] SharedScales& scales() noexcept { return scales_; }
    // No gradient is on its way, summed, or said to be ready: as after a step.
    [[nodiscard]] bool is_idle() const;

  private:
    struct Bucket {
        Format wire = comm::wire_format(DType::bf16);
        int64_t first_sum = 0;            // byte of sums_
        std::vector<ShardSlice> slices;   // as they are staged, by the rank of `comm` they go to
        std::vector<int64_t> offsets;     // of each, in elements of the whole bucket
        std::vector<int64_t> counts;      // elements with gaps, by rank
        std::vector<int64_t> node_counts; // of this rank's, by node
        std::vector<bool> is_ready;       // by place in the bucket
        int32_t missing = 0;              // gradients that are not ready
        std::vector<std::unique_ptr<Scratch>>
            contributions;      // staged; null: the gradients as they are
        bool is_staged = false; // since the last end_slot(), or the step's begin
        bool has_sum = false;
    };
    void lay_out(Bucket& bucket, const ShardBucket& plan) const;
    void reset(Bucket& bucket, const ShardBucket& plan) const;
    void set_ready(Stream& stream, int32_t index, std::size_t place);
    // Sent in this step, or even summed.
    [[nodiscard]] bool is_under_way(int32_t index) const;
    [[nodiscard]] int32_t own_slots() const noexcept;
    void stage(Stream& stream, int32_t index);
    void send(Stream& stream, int32_t index);
    void land_first(Stream& stream);
    void drop_done();
    [[nodiscard]] int32_t shard() const noexcept; // this rank, to the plan
    [[nodiscard]] int64_t own_count(const Bucket& bucket) const;
    [[nodiscard]] TensorRef own_sums(const Bucket& bucket) const;
    void give_back(Stream& stream, const ShardBucket& plan);

    comm::Communicator& comm_;
    const ShardPlan& plan_;
    GradientForm form_;
    std::vector<std::shared_ptr<Tensor>> gradients_;
    std::vector<Bucket> buckets_;
    std::vector<int64_t>
        sum_offsets_; // by parameter, in bytes of sums_; -1: this rank has none of it
    SumsMemory sums_;
    SharedScales scales_;
    std::deque<InFlightBucket> in_flight_; // in the order in which they left
    comm::MessageCounts& messages_;
};

} // namespace mp::shard
