// SPDX-License-Identifier: Apache-2.0
#include "shard/shard_cut.hpp"

#include <algorithm>

#include "shard/sharding.hpp"

namespace mp::shard {
namespace {

ShardSizes sizes_of(const std::vector<ShardedTensor>& tensors) {
    ShardSizes sizes;
    for (const ShardedTensor& tensor : tensors) {
        sizes.counts.push_back(tensor.param->count());
        sizes.kinds.push_back(bucket_kind(tensor.wire));
        sizes.units.push_back(tensor.unit);
    }
    return sizes;
}

std::vector<bool> trained_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<bool> trained;
    trained.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        trained.push_back(!tensor.is_frozen());
    }
    return trained;
}

} // namespace

ShardCut::ShardCut(std::vector<ShardedTensor> list, const ShardOptions& options)
    : tensors(std::move(list)), plan(options, sizes_of(tensors)) {}

void ShardCut::make_sums(comm::Communicator& shards) {
    sums = std::make_unique<ChunkSums>(shards, plan, trained_of(tensors));
}

bool ShardCut::shares_scales() const {
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const ShardedTensor& tensor) { return comm::is_shared(tensor.wire); });
}

void ShardCut::drop_gradients(Stream& stream) const {
    for (const ShardedTensor& tensor : tensors) {
        if (!tensor.is_frozen() && !stays(*tensor.grad)) {
            tensor.grad->drop_memory(stream);
        }
    }
}

void ShardCut::keep_lent(int32_t stage) {
    for (std::size_t i = 0; stage >= 2 && i < tensors.size(); ++i) {
        const ShardedTensor& tensor = tensors[i];
        if (!tensor.is_frozen() && stays(*tensor.grad)) {
            lent.keep(*tensor.grad, {"gradient", static_cast<int32_t>(i)});
        }
        if (stage == 2 && tensor.param->is_lent()) {
            lent.keep(*tensor.param, {"weight", static_cast<int32_t>(i)});
        }
    }
}

void ShardCut::make_full_sums(const std::shared_ptr<Context>& context, Stream& stream,
                              const ShardCut* before) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const ShardedTensor& tensor = tensors[i];
        const bool has_one =
            before != nullptr && i < before->full_sums.size() && before->full_sums[i] != nullptr;
        full_sums.push_back(tensor.is_frozen() ? nullptr
                            : has_one
                                ? before->full_sums[i]
                                : std::make_shared<Tensor>(context, stream, tensor.sum,
                                                           Shape{{tensor.param->count()}, 1}));
    }
}

void add_all(ContentHash& hash, const Tensor& tensor) {
    hash.add(tensor);
    if (tensor.scales() == nullptr) {
        return;
    }
    hash.add(*tensor.scales()->scale_inv);
    if (tensor.format().policy.rule == numerics::ScaleRule::nvfp4) {
        hash.add(*tensor.scales()->amax);
    }
}

uint64_t first_values_hash(Stream& stream, std::span<const ShardedTensor> tensors) {
    ContentHash hash(stream);
    for (const ShardedTensor& tensor : tensors) {
        const Tensor& values = tensor.init_fp32 != nullptr ? *tensor.init_fp32 : *tensor.param;
        if (values.has_memory()) { // a deferred one has none
            add_all(hash, values);
        }
    }
    return hash.value();
}

} // namespace mp::shard
