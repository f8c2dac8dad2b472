// SPDX-License-Identifier: Apache-2.0
// Which options of a sharding go together, and what follows from them alone.
#include "shard/sharding.hpp"

namespace mp::shard {

int32_t bucket_kind(const Format& wire) noexcept {
    return static_cast<int32_t>(wire.dtype) * 8 + static_cast<int32_t>(comm::wire_scale(wire));
}

bool groups_add_first(const ShardingOptions& options, int32_t ranks, bool shares_scales) noexcept {
    const int32_t groups = options.shard_ranks > 0 ? ranks / options.shard_ranks : 1;
    const int32_t slots = options.slots != 0 ? options.slots : ranks;
    return groups > 1 && !shares_scales && comm::traits(options.order).nests(slots, groups);
}

void check_sharding(const ShardingOptions& options, int32_t ranks) {
    if (options.stage < 0 || options.stage > 3) {
        fail(Code::invalid_argument, "sharding: stage is %d; it must be 0, 1, 2 or 3",
             options.stage);
    }
    comm::ReduceDesc desc;
    desc.wire = options.wire;
    desc.order = options.order;
    desc.slots = options.slots;
    comm::check_reduce(desc, DType::fp32, "sharding");
    if (options.bucket_elements < 1) {
        fail(Code::invalid_argument, "sharding: bucket_elements is %lld; it must be positive",
             static_cast<long long>(options.bucket_elements));
    }
    check_group_size("sharding", "shard_ranks", options.shard_ranks, ranks, "all");
    check_group_size("sharding", "node_ranks", options.node_ranks, ranks, "one level");
    if (options.node_ranks > 0 && (options.shard_ranks > 0 || comm::has_slots(options.order))) {
        fail(Code::unsupported,
             "sharding: node_ranks %d goes neither with shard_ranks, whose groups add first "
             "already, nor with order tree or exact, as sums of a node are rounded to the wire",
             options.node_ranks);
    }
    if (options.node_ranks > 0 && comm::is_shared(options.wire)) {
        fail(Code::unsupported,
             "sharding: node_ranks %d does not go with a scale that ranks share, as the sums of a "
             "node are rounded to the wire; use block scales",
             options.node_ranks);
    }
    if (options.check_every < 0) {
        fail(Code::invalid_argument, "sharding: check_every is %d; it must be >= 0",
             options.check_every);
    }
    if (options.slots != 0 && options.slots < ranks) {
        fail(Code::invalid_argument,
             "sharding: %d slots for %d ranks; each rank needs at least one", options.slots, ranks);
    }
}

} // namespace mp::shard
