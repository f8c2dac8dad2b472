// SPDX-License-Identifier: Apache-2.0
// Sharding: what an optimizer's parameters need when ranks share them (ZeRO): who owns which elements, the gradients' way
// to their owners, the sums of the norm, and the weights' way back. It knows nothing of states and hyperparameters.
//
//   stage 0  every rank has all states; gradients are reduced and gathered
//   stage 1  a rank has the states of its shard
//   stage 2  and gradients have memory only until they are on their way to their owners
//   stage 3  and parameters have memory only between gather and release
//
// Where groups of ranks hold a copy of the shards each (ShardGroups), all of this happens inside a group, but for the
// agreements, which are of all ranks, and the gradients, whose sums the replicas of a shard add up.
#pragma once

#include <memory>
#include <new>
#include <span>
#include <vector>

#include "comm/agreement.hpp"
#include "shard/shard_cut.hpp"
#include "shard/shard_groups.hpp"
#include "shard/shard_progress.hpp"
#include "tensor/content_hash.hpp"

namespace mp::shard {

struct ShardingOptions {
    std::shared_ptr<comm::Communicator> comm; // null: this rank alone. Used by nobody else
    int32_t stage = 1;
    ShardKind kind = ShardKind::flat;
    int64_t bucket_elements = int64_t{1} << 24;
    Format wire = comm::wire_format(DType::fp32);
    comm::SumOrder order = comm::SumOrder::rank;
    int32_t slots = 0;
    int32_t shard_ranks = 0;     // of a group, see ShardGroups; 0: all
    int32_t node_ranks = 0;      // of a node, inside which gradients are added first; 0: one level
    int32_t check_every = 0;     // steps between comparisons of all ranks' weights; 0: never
    bool sum_gradients = false;  // the step uses their sum, not their mean
    bool progress_thread = true; // where it can be had; of each rank alone
};

// Throws for stages, orders and wires that do not exist or do not go together among so many ranks.
void check_sharding(const ShardingOptions& options, int32_t ranks);

// Whether groups of ranks add their own contributions first, and replicas then the groups' sums in fp32: unless that breaks what
// the order promises, or sums are codes under scales that ranks share.
bool groups_add_first(const ShardingOptions& options, int32_t ranks, bool shares_scales) noexcept;

// Parameters with one wire may share a bucket.
int32_t bucket_kind(const Format& wire) noexcept;

// What ranks must have in common before the first gradient moves: a name for messages, the value or its hash, and what to
// show of it where a number tells nothing.
struct Common {
    std::string name;
    uint64_t value = 0;
    std::string shown;
};
struct Definition {
    std::vector<Common> settings; // recipe keys and options: as many on every rank
    std::vector<Common> parameters;
};

class Sharding {
  public:
    // Collective. Throws rank_mismatch, with the name of what differs, where ranks have other definitions.
    // `lane`: or null, as GradientForm's.
    Sharding(const std::shared_ptr<Context>& context, Stream& stream,
             const ShardingOptions& options, bool zeroes_gradients, std::shared_ptr<HostLane> lane,
             std::vector<ShardedTensor> tensors, const Definition& definition);
    Sharding(const Sharding&) = delete;
    Sharding& operator=(const Sharding&) = delete;
    ~Sharding() { progress_.stop(); }

    [[nodiscard]] const ShardPlan& plan() const noexcept { return cut_->plan; }
    [[nodiscard]] std::span<const ShardedTensor> tensors() const noexcept { return cut_->tensors; }
    [[nodiscard]] const ShardGroups& groups() const noexcept { return groups_; }
    [[nodiscard]] int32_t stage() const noexcept { return options_.stage; }

    // Which elements this rank has, and their weights.
    [[nodiscard]] ShardedWeights& weights() const noexcept { return *cut_->weights; }
    // The sum of the gradients of those elements, on the host where there is a lane.
    [[nodiscard]] ArrayRef gradient_of(int32_t parameter) const;
    // Of gradients that ranks reduce as codes under shared scales.
    [[nodiscard]] SharedScales& grad_scales() const noexcept { return cut_->buckets->scales(); }
    // What gradients are divided by so that they are means.
    [[nodiscard]] double divisor() const noexcept;

    // What another list of parameters needs, beside what is there, of which it keeps what stays. Of this rank alone.
    [[nodiscard]] std::unique_ptr<ShardCut> make_cut(const std::shared_ptr<Context>& context,
                                                     Stream& stream,
                                                     std::vector<ShardedTensor> tensors) const;
    // That one counts from now on, and the caller has the one before. Nothing may be under way.
    void exchange(std::unique_ptr<ShardCut>& cut);
    // Throws where gradients or weights are somewhere between ranks, or in memory that they will give back.
    void refuse_under_way(Stream& stream);
    // As those of ShardedWeights. Where it throws all groups have ended.
    void fetch(Stream& stream, std::span<const int32_t> parameters);
    void publish_some(Stream& stream, std::span<const int32_t> parameters);
    // Groups that somebody aborts notify the others at once; nothing has been changed by then.
    template <typename Body> void or_abort(const Body& body) const {
        try {
            body();
        } catch (const Error& error) {
            groups_.abort(error.status());
            throw;
        } catch (const std::bad_alloc&) {
            groups_.abort(
                Status::error(Code::out_of_memory, "optimizer: no memory for an exchange"));
            throw;
        }
    }

    // As those of GradientBuckets.
    void acquire_grad(Stream& stream, int32_t parameter);
    void grad_ready(Stream& stream, int32_t parameter);
    void end_microbatch(Stream& stream);
    // All gradients are reduced; waits.
    void reduce(Stream& stream);
    // As that of Agreement, of this rank alone.
    [[nodiscard]] Status reserve(comm::Agreement& agreement) const;
    // Collective; ok where all ranks agree and nobody declines.
    [[nodiscard]] Status reach(comm::Agreement& agreement) const;
    // As those of ChunkSums. Not in stage 0, where every rank has all sums of gradients.
    [[nodiscard]] PlacedSums all_sums(Stream& stream, const PlacedSums& own,
                                      std::span<const int32_t> parameters);
    void decline_sums() const;
    // Of the weights that every rank has, for the agreement of step number `step`: none where they are not due, or in stage 3.
    [[nodiscard]] std::unique_ptr<ContentHash> weights_hash(Stream& stream, int64_t step) const;
    // After a step: every rank has all weights again, or none has (stage 3).
    void publish(Stream& stream);

    // Waits for what the device orders, or until the other ranks' deadline; what is under way besides is dropped.
    void end() noexcept;

    // Stage 3; nothing in other stages. The same calls in the same order on every rank.
    void begin_gather(Stream& stream, std::span<const int32_t> parameters);
    // Waits for gathers until all of these have their memory.
    void wait_gather(Stream& stream, std::span<const int32_t> parameters);
    void release(Stream& stream, std::span<const int32_t> parameters);

    // Bytes of this rank's gradient sums, beside the tensors; of them the host's.
    [[nodiscard]] int64_t gradient_bytes() const noexcept;
    [[nodiscard]] int64_t host_gradient_bytes() const noexcept {
        return cut_->buckets->host_bytes();
    }
    // What moves on between calls.
    [[nodiscard]] ShardProgress& progress() const noexcept { return progress_; }

  private:
    [[nodiscard]] std::unique_ptr<ShardCut> make_plan(std::vector<ShardedTensor> tensors) const;
    void fill(const std::shared_ptr<Context>& context, Stream& stream, ShardCut& cut,
              const ShardCut* before) const;
    comm::Advance step(Stream& stream);
    // A call that moves something: refuses where an exchange has failed, and in a capture.
    void use(Stream& stream);
    void change_to(Stream& stream);
    // Where no thread does it.
    void move_on(Stream& stream);

    ShardingOptions options_;
    bool zeroes_gradients_;
    std::shared_ptr<HostLane> lane_; // or null
    ShardGroups groups_;
    mutable ShardProgress progress_;    // before what keeps scratch memory of its stream
    Stream* between_ = nullptr;         // as GradientForm's; progress_ has it
    std::weak_ptr<Stream> last_stream_; // of the last call that moved something
    std::unique_ptr<ShardCut> cut_;
};

} // namespace mp::shard
