// SPDX-License-Identifier: Apache-2.0
#include "optim/definition.hpp"

#include <algorithm>

#include "numerics/bits.hpp"
#include "recipe/keys.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

// Every key of the recipe and every option, by the names that a caller knows.
std::vector<shard::Common> settings_of(const recipe::Recipe& recipe,
                                       const OptimizerOptions& options) {
    std::vector<shard::Common> settings;
    for (const recipe::Key& key : recipe::recipe_keys()) {
        system::Fnv64 hash;
        std::string text = recipe::key_text(recipe, key);
        hash.add(text);
        settings.push_back({"the recipe's " + std::string(key.name), hash.value(), text});
    }
    const shard::ShardingOptions& s = options.sharding;
    const auto add = [&](const char* name, auto value) {
        settings.push_back({name, static_cast<uint64_t>(static_cast<int64_t>(value)), {}});
    };
    add("sharding.stage", s.stage);
    add("sharding.kind", s.kind);
    add("sharding.bucket_elements", s.bucket_elements);
    settings.push_back({"sharding.wire_dtype or its scale",
                        static_cast<uint64_t>(shard::bucket_kind(s.wire)),
                        comm::wire_text(s.wire)});
    add("sharding.order", s.order);
    add("sharding.slots", s.slots);
    add("sharding.shard_ranks", s.shard_ranks);
    add("sharding.node_ranks", s.node_ranks);
    add("sharding.check_every", s.check_every);
    add("MP_SHARDING_SUM_GRADIENTS", s.sum_gradients);
    add("MP_OPTIMIZER_CHECK_FINITE", options.check_finite);
    add("MP_OPTIMIZER_ZERO_GRAD", options.zero_grad);
    add("MP_OPTIMIZER_OFFLOAD_GRADS", options.offload_grads); // the sums of squares go another way
    add("the optimizer's seed", options.seed);
    settings.push_back({"the optimizer's max_grad_norm",
                        numerics::bits_from_double(options.max_grad_norm),
                        std::to_string(options.max_grad_norm)});
    return settings;
}

uint64_t hash_of(const Parameter& p) {
    system::Fnv64 hash;
    hash.add(p.name);
    hash.add(p.group);
    for (const FormatId format : p.layout.formats.states) {
        hash.add(static_cast<int64_t>(format));
    }
    hash.add(format_text(p.param->format()));
    hash.add(static_cast<int64_t>(p.param->format().policy.rule));
    hash.add(p.layout.is_frozen ? DType::none : p.grad->dtype());
    hash.add(p.init_fp32 != nullptr ? 1 : 0);
    hash.add(p.counts_elsewhere ? 1 : 0);
    hash.add(p.has_values ? 1 : 0);
    hash.add(p.param->shape().ndim);
    for (int32_t i = 0; i < p.param->shape().ndim; ++i) {
        hash.add(p.param->shape().sizes[static_cast<std::size_t>(i)]);
    }
    return hash.value();
}

// Which parameters are weights of fp8 products cannot be seen from numbers.
void check_gather(const recipe::Recipe& recipe, const shard::ShardingOptions& options,
                  const Parameters& parameters) {
    const bool gathers = recipe.fp8.gather && options.stage > 0 && options.comm->size() > 1 &&
                         parameters.count() > 0;
    const bool has_codes = std::any_of(parameters.begin(), parameters.end(),
                                       [](const Parameter& p) { return p.layout.is_codes; });
    if (gathers && !has_codes) {
        fail(Code::unsupported,
             "optimizer: the recipe's weight.gather.codes is on, but no parameter is a tensor of "
             "fp8 codes with one scale, so nothing would be gathered as fp8; make the weights of "
             "fp8 layers with mp_recipe_create_weight_codes, or set the key to off");
    }
}

} // namespace

shard::Common common_of(const Parameters& parameters, int32_t index) {
    const Parameter& p = parameters[index];
    return {"parameter " + std::to_string(index) + "'s name, shape, types or group", hash_of(p),
            p.name + ": " + p.param->shape().text() + " " + format_text(p.param->format()) +
                (p.layout.is_frozen ? std::string(", frozen")
                                    : std::string(", gradient ") + dtype_name(p.grad->dtype())) +
                ", group " + std::to_string(p.group)};
}

shard::Definition definition(const recipe::Recipe& recipe, const OptimizerOptions& options,
                             const Parameters& parameters) {
    shard::Definition definition{settings_of(recipe, options), {}};
    for (int32_t i = 0; i < parameters.count(); ++i) {
        definition.parameters.push_back(common_of(parameters, i));
    }
    return definition;
}

std::vector<shard::ShardedTensor> sharded_tensors(const recipe::Recipe& recipe,
                                                  const shard::ShardingOptions& options,
                                                  const Parameters& parameters) {
    check_gather(recipe, options, parameters);
    std::vector<shard::ShardedTensor> tensors;
    for (const Parameter& p : parameters) {
        const bool has_scales =
            !p.layout.is_frozen &&
            ((p.param->scales() != nullptr && !p.layout.is_codes) ||
             is_scaled(p.layout.formats.master) ||
             std::any_of(std::begin(p.layout.formats.states), std::end(p.layout.formats.states),
                         [](FormatId f) { return is_scaled(f); }));
        const bool is_whole = p.layout.states == Placement::whole;
        if (has_scales && !is_whole && options.kind != shard::ShardKind::greedy) {
            fail(Code::unsupported,
                 "optimizer: '%s' has states with one scale for the tensor, which ranks cannot "
                 "share; use the greedy plan, or stage 0",
                 p.name.c_str());
        }
        tensors.push_back({p.param, p.grad, p.layout.gather, p.layout.wire,
                           dtype_of(p.layout.sum.format),
                           p.layout.is_codes ? dtype_of(p.layout.kept) : DType::none, is_whole,
                           p.layout.own_weight.exists(), p.init_fp32, p.layout.unit()});
    }
    return tensors;
}

} // namespace mp::optim
