// SPDX-License-Identifier: Apache-2.0
#include "shard/shard_groups.hpp"

namespace mp::shard {

void check_group_size(const char* what, const char* option, int32_t size, int32_t ranks,
                      const char* zero) {
    if (size < 0 || (size > 0 && ranks % size != 0)) {
        fail(Code::invalid_argument, "%s: %s is %d; it must be 0 (%s) or divide the %d ranks", what,
             option, size, zero, ranks);
    }
}

ShardGroups::ShardGroups(std::shared_ptr<comm::Communicator> all, int32_t shard_ranks,
                         int32_t node_ranks, bool has_auxiliary)
    : all_(std::move(all)), shard_ranks_(shard_ranks == 0 ? all_->size() : shard_ranks),
      node_ranks_(node_ranks), has_auxiliary_(has_auxiliary) {}

void ShardGroups::join() {
    if (group_count() > 1) {
        check(all_->split(group(), all_->rank(), &own_shards_));
        check(all_->split(shard(), all_->rank(), &replicas_));
    }
    if (node_ranks_ > 0 && node_ranks_ < all_->size()) {
        check(all_->split(all_->rank() / node_ranks_, all_->rank(), &node_));
        check(all_->split(all_->rank() % node_ranks_, all_->rank(), &across_nodes_));
    }
    if (has_auxiliary_) {
        check(all_->split(0, all_->rank(), &auxiliary_));
    }
}

std::array<comm::Communicator*, 5> ShardGroups::own() const noexcept {
    return {own_shards_.get(), replicas_.get(), node_.get(), across_nodes_.get(), auxiliary_.get()};
}

Status ShardGroups::status() const noexcept {
    for (const comm::Communicator* group : own()) {
        if (group != nullptr && !group->status().ok()) {
            return group->status();
        }
    }
    return all_->status();
}

void ShardGroups::abort(const Status& reason) const noexcept {
    all_->abort(reason);
    for (comm::Communicator* group : own()) {
        if (group != nullptr) {
            group->abort(reason);
        }
    }
}

comm::Traffic ShardGroups::traffic() const noexcept {
    comm::Traffic sum = all_->traffic();
    for (const comm::Communicator* group : own()) {
        for (std::size_t i = 0; group != nullptr && i < sum.calls.size(); ++i) {
            sum.calls[i] += group->traffic().calls[i];
            sum.bytes[i] += group->traffic().bytes[i];
        }
    }
    return sum;
}

} // namespace mp::shard
