// SPDX-License-Identifier: Apache-2.0
// ShardCut: what ranks share of one list of parameters: who owns which elements of them, and the ways of gradients and weights.
// A list that changes gets another cut, while the ranks stay.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shard/chunk_sums.hpp"
#include "shard/gradient_buckets.hpp"
#include "shard/sharded_weights.hpp"
#include "tensor/content_hash.hpp"

namespace mp::shard {

struct ShardCut {
    ShardCut(std::vector<ShardedTensor> list, const ShardOptions& options);
    ShardCut(const ShardCut&) = delete; // its parts know each other
    ShardCut& operator=(const ShardCut&) = delete;
    ~ShardCut() = default;

    std::vector<ShardedTensor> tensors;
    ShardPlan plan; // of each group
    std::unique_ptr<ChunkSums> sums;
    LentMemory lent; // of what comes and goes, from stage 2 on
    std::unique_ptr<GradientBuckets> buckets;
    std::unique_ptr<ShardedWeights> weights;
    std::vector<std::shared_ptr<Tensor>> full_sums; // stage 0: by parameter

    // Whether any gradient is reduced as codes under a scale that ranks share.
    [[nodiscard]] bool shares_scales() const;
    // Among the ranks that share one copy.
    void make_sums(comm::Communicator& shards);
    // From stage 2 on gradients have no memory between steps, but for those that stay; nor in stage 3 weights.
    void drop_gradients(Stream& stream) const;
    void keep_lent(int32_t stage);
    // Of the sums of stage 0; those of `before`, or null, serve again. Frozen parameters have none.
    void make_full_sums(const std::shared_ptr<Context>& context, Stream& stream,
                        const ShardCut* before);
};

// All that a tensor's numbers depend on.
void add_all(ContentHash& hash, const Tensor& tensor);
// Of those that have values: what ranks compare before they share them.
[[nodiscard]] uint64_t first_values_hash(Stream& stream, std::span<const ShardedTensor> tensors);

} // namespace mp::shard
