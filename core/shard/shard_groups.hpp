// SPDX-License-Identifier: Apache-2.0
// ShardGroups: which ranks share one copy of the shards, and which hold copies of the same shard. Groups are runs of
// consecutive ranks, usually those of a node; ranks with the same place in their groups are replicas. Or all ranks share one
// copy, and groups are the nodes inside which gradients are added first.
#pragma once

#include <array>
#include <memory>

#include "comm/communicator.hpp"

namespace mp::shard {

// Groups of `size` ranks each: 0, or a divisor of the ranks. Throws otherwise, with the option's name and what `zero` says.
void check_group_size(const char* what, const char* option, int32_t size, int32_t ranks,
                      const char* zero);

class ShardGroups {
  public:
    // Both divide the ranks, and one of them at most is not 0. shard_ranks 0: all are one group; node_ranks 0: gradients are
    // added in one level. `has_auxiliary`: auxiliary() is wanted.
    ShardGroups(std::shared_ptr<comm::Communicator> all, int32_t shard_ranks, int32_t node_ranks,
                bool has_auxiliary);

    // Collective. Groups that differ from rank to rank must have been found before; does nothing where there is one.
    void join();

    [[nodiscard]] comm::Communicator& all() const noexcept { return *all_; }
    // This rank's group; after join().
    [[nodiscard]] comm::Communicator& shards() const noexcept {
        return own_shards_ != nullptr ? *own_shards_ : *all_;
    }
    // The ranks with this rank's shard, by group; null where it is the only one.
    [[nodiscard]] comm::Communicator* replicas() const noexcept { return replicas_.get(); }
    // The ranks of this rank's node, and those with its place on each node; null where there is one level.
    [[nodiscard]] comm::Communicator* node() const noexcept { return node_.get(); }
    [[nodiscard]] comm::Communicator* across_nodes() const noexcept { return across_nodes_.get(); }
    // All ranks once more, for messages that are not begun in the order of the calls; null where it was not wanted.
    [[nodiscard]] comm::Communicator* auxiliary() const noexcept { return auxiliary_.get(); }

    [[nodiscard]] int32_t shard_ranks() const noexcept { return shard_ranks_; }
    [[nodiscard]] int32_t group_count() const noexcept { return all_->size() / shard_ranks_; }
    [[nodiscard]] int32_t shard() const noexcept { return all_->rank() % shard_ranks_; }
    [[nodiscard]] int32_t group() const noexcept { return all_->rank() / shard_ranks_; }

    // The first failure of an exchange in any of this rank's groups, or ok.
    [[nodiscard]] Status status() const noexcept;
    // Whoever cannot go on says so in all its groups, so that nobody waits for it.
    void abort(const Status& reason) const noexcept;
    // Of this rank, in all its groups.
    [[nodiscard]] comm::Traffic traffic() const noexcept;

  private:
    [[nodiscard]] std::array<comm::Communicator*, 5> own() const noexcept; // some of them null

    std::shared_ptr<comm::Communicator> all_;
    int32_t shard_ranks_;
    int32_t node_ranks_;
    bool has_auxiliary_;
    std::unique_ptr<comm::Communicator> own_shards_; // null: all
    std::unique_ptr<comm::Communicator> replicas_;
    std::unique_ptr<comm::Communicator> node_;
    std::unique_ptr<comm::Communicator> across_nodes_;
    std::unique_ptr<comm::Communicator> auxiliary_;
};

} // namespace mp::shard
