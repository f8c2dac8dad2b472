// SPDX-License-Identifier: Apache-2.0
// ShardedWeights: this rank's exact shard of every weight, and the weights' way from their owners to all ranks of a
// group: after a step, and in stage 3 around each use. Its callers and the progress thread share a lock.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "comm/progress.hpp"
#include "comm/wire.hpp"
#include "shard/fp8_gather.hpp"
#include "shard/lent_memory.hpp"
#include "shard/weight_gather.hpp"

namespace mp::shard {

// One parameter, the same on every rank.
struct ShardedTensor {
    std::shared_ptr<Tensor> param;
    std::shared_ptr<Tensor> grad; // null: it is frozen
    DType gather = DType::none;   // what its weight is gathered in
    Format wire;                  // what its gradient is reduced in
    DType sum = DType::none;      // what its sums are
    // Not none: `param` is fp8 codes for use only, and its owner keeps the exact slice in this type.
    DType exact = DType::none;
    bool is_whole = false;             // every rank has all of its elements and states
    bool is_apart = false;             // its owner's slice lies in memory of its own
    std::shared_ptr<Tensor> init_fp32; // its first values, or null: those of param
    int64_t unit = 1;                  // as ShardSizes has them

    [[nodiscard]] bool is_codes() const noexcept { return exact != DType::none; }
    [[nodiscard]] bool is_frozen() const noexcept { return grad == nullptr; }
};

class ShardedWeights {
  public:
    // All that it refers to outlives it. `stage` as in sharding.hpp; `between` as in GradientForm. `before`: those of a list that
    // this one has changed, or null; slices that stay as they are are shared with it.
    ShardedWeights(const std::shared_ptr<Context>& context, Stream& stream, int32_t stage,
                   comm::Communicator& comm, const ShardPlan& plan,
                   const std::vector<ShardedTensor>& tensors, LentMemory& lent,
                   comm::MessageCounts& messages, Stream* between, const ShardedWeights* before);

    // The elements whose states this rank has (count 0 where it has none), and where the step finds their weights.
    [[nodiscard]] ShardSlice own_slice(int32_t parameter) const;
    [[nodiscard]] ArrayRef own(int32_t parameter) const;
    // Bytes of this rank's shard of it beside the parameter's own memory.
    [[nodiscard]] int64_t bytes(int32_t parameter) const;
    // After the caller wrote a parameter that has its memory: this rank's slice follows.
    void update_own(Stream& stream, int32_t parameter);

    // As those of Sharding.
    void publish(Stream& stream);
    void publish_some(Stream& stream, std::span<const int32_t> parameters);
    // In stage 3, of parameters that were given memory: all of it arrives.
    void fetch(Stream& stream, std::span<const int32_t> parameters);
    [[nodiscard]] bool is_idle() const noexcept { return gathers_.empty(); }
    void begin_gather(Stream& stream, std::span<const int32_t> parameters);
    void wait_gather(Stream& stream, std::span<const int32_t> parameters);
    void release(Stream& stream, std::span<const int32_t> parameters);
    // All gathers that are under way end, or are given up.
    void land(Stream& stream);
    void drop() noexcept;
    // One short step of the first one.
    comm::Advance step(Stream& stream);

  private:
    // Weights under way to all ranks: numbers and codes.
    struct Gather {
        std::vector<int32_t> parameters;
        std::unique_ptr<WeightGather> numbers; // null: none, or they are there
        std::unique_ptr<Fp8Gather> codes;

        [[nodiscard]] bool is_done() const noexcept { return !numbers && !codes; }
        comm::Advance step(Stream& stream);
        void finish(Stream& stream);
    };

    // This rank's slice in memory of its own; `before` may have it.
    [[nodiscard]] std::shared_ptr<Tensor> make_own(const std::shared_ptr<Context>& context,
                                                   Stream& stream, int32_t parameter,
                                                   const ShardedWeights* before) const;
    // Frozen parameters have buckets of their own.
    [[nodiscard]] bool is_frozen(const ShardBucket& bucket) const;
    [[nodiscard]] Fp8Weight code_weight(int32_t parameter) const;
    // One message for the scales of all weights that travel as codes.
    void agree_on_code_scales(Stream& stream);
    void send(Stream& stream, std::vector<int32_t> parameters);
    void publish_buckets(Stream& stream);
    // Sends what `body` begins, until all of it is there. After a failure nobody reads this rank's weights any more.
    template <typename Body> void send_all(Stream& stream, const Body& body);
    void finish_first(Stream& stream);

    int32_t stage_;
    comm::Communicator& comm_;
    const ShardPlan& plan_;
    const std::vector<ShardedTensor>& tensors_;
    LentMemory& lent_;
    comm::MessageCounts& messages_;
    Stream* between_;
    // By parameter: this rank's slice where it does not lie in the parameter's own memory; else null.
    std::vector<std::shared_ptr<Tensor>> own_;
    std::deque<Gather> gathers_;
    std::size_t done_gathers_ = 0;         // at least so many of the first are done
    uint64_t ended_gathers_ = 0;           // that were there before those
    std::vector<uint64_t> gathered_by_;    // by parameter: the number of its last gather, from 1
    std::vector<int32_t> code_parameters_; // in order
    Fp8Scales code_scales_;                // by place in code_parameters_
};

} // namespace mp::shard
