// SPDX-License-Identifier: Apache-2.0
#include "optim/memory_plan.hpp"

#include <algorithm>

#include "comm/reduce_scatter.hpp"
#include "numerics/part_sum.hpp"
#include "optim/step_memory.hpp"
#include "recipe/keys.hpp"
#include "shard/shard_groups.hpp"
#include "status/status.hpp"

namespace mp::optim {
namespace {

// What is kept in high precision has gradients and moments without scales.
FormatId unscaled(FormatId format) { return is_scaled(format) ? FormatId::fp32 : format; }

void add_states(MemoryReport& report, const StateFormats& formats, int64_t count) {
    report.master += format_bytes(formats.master, count);
    const numerics::RuleInfo rule = numerics::rule_info(formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        report.of(rule.states[k]) += format_bytes(formats.states[k], count);
    }
    report.compensation += format_bytes(formats.compensation, count);
}

} // namespace

StateFormats state_formats(const recipe::Recipe& recipe, FormatId weight, int64_t count,
                           numerics::RuleId rule) {
    const bool narrow = dtype_of(weight) != DType::fp32; // an fp32 parameter is its own master
    const auto choose = [&](FormatId format) { return narrow ? format : unscaled(format); };
    StateFormats formats;
    formats.grad = choose(recipe.grad);
    formats.rule = rule;
    const numerics::RuleInfo info = numerics::rule_info(rule);
    for (int k = 0; k < info.state_count; ++k) {
        formats.states[k] = state_format(choose(recipe.state(info.states[k]).format), count,
                                         recipe.block_min_elements);
    }
    if (narrow) {
        formats.compensation = state_format(recipe.compensation, count, recipe.block_min_elements);
        formats.master = recipe.master;
        formats.half_away = recipe.master == FormatId::fp32 &&
                            recipe.weight_rounding == recipe::RoundingMode::nearest_away;
    }
    return formats;
}

recipe::Recipe with_formats(const recipe::Recipe& recipe, const FormatsOfGroup& formats,
                            numerics::RuleId rule) {
    const numerics::RuleInfo info = numerics::rule_info(rule);
    recipe::Recipe own = recipe;
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        const std::string& format = formats[static_cast<std::size_t>(k)];
        if (format.empty()) {
            continue;
        }
        if (k >= info.state_count) {
            fail(Code::invalid_argument,
                 "optimizer: state_formats[%d] is '%.64s', but %s keeps %d state(s); leave it NULL",
                 k, format.c_str(), info.name, info.state_count);
        }
        const std::string key = std::string("optimizer.") + info.state(k).name + ".dtype";
        recipe::set_key(own, recipe::find_key(key), format);
        recipe::StatePolicy& state = own.state(info.states[k]);
        if (state.format == FormatId::fp32) {
            state.rounding = recipe::RoundingMode::nearest;
        }
    }
    recipe::check_recipe(own);
    return own;
}

DType gather_dtype(const recipe::Recipe& recipe, FormatId weight, bool is_vector) {
    const bool is_narrower = dtype_size(recipe.weight_gather) < dtype_size(dtype_of(weight));
    return is_narrower && !is_vector && weight == recipe.weight && !is_scaled(weight)
               ? recipe.weight_gather
               : dtype_of(weight);
}

Format reduce_wire(const Format& wire, const recipe::Recipe& recipe, const StateFormats& formats) {
    const bool is_kept = is_scaled(recipe.grad) && !is_scaled(formats.grad);
    return is_fp8(wire.dtype) && is_kept ? comm::wire_format(DType::fp32) : wire;
}

namespace {

// A planned tensor as a parameter would be.
struct Planned {
    int64_t count = 0;
    FormatId weight = FormatId::none; // what the step keeps exactly
    StateFormats formats;
    Format wire = comm::wire_format(DType::bf16);
    bool is_codes = false;
    FormatId memory = FormatId::none; // of the parameter itself
    DType gather = DType::none;
};

Planned plan_one(const recipe::Recipe& recipe, const recipe::Recipe& of_group,
                 const PlannedTensor& tensor, const shard::ShardingOptions& sharding) {
    Planned planned;
    planned.count = tensor.count;
    planned.is_codes = is_fp8(tensor.weight);
    planned.weight = tensor.weight == DType::fp32 ? FormatId::fp32 : recipe.weight;
    planned.memory = planned.is_codes ? format_id(tensor.weight, Coding::scaled) : planned.weight;
    planned.formats = state_formats(of_group, planned.weight, tensor.count, tensor.rule);
    planned.wire = reduce_wire(sharding.wire, recipe, planned.formats);
    planned.gather =
        planned.is_codes ? tensor.weight : gather_dtype(recipe, planned.weight, tensor.is_vector);
    return planned;
}

void check_tensor(const recipe::Recipe& recipe, const PlannedTensor& tensor,
                  const shard::ShardingOptions& sharding, int32_t ranks) {
    if (tensor.weight == DType::none || tensor.weight == DType::fp32) {
        return;
    }
    if (!is_fp8(tensor.weight)) {
        fail(Code::invalid_dtype,
             "a planned weight is %s; it must be none (the recipe's weight.dtype), fp32, or fp8 "
             "codes",
             dtype_name(tensor.weight));
    }
    if (ranks == 1 || sharding.stage == 0 || !recipe.fp8.gather || is_scaled(recipe.weight)) {
        fail(Code::invalid_dtype,
             "a planned weight is %s, which is for ranks that gather codes: from stage 1 on, under "
             "weight.gather.codes",
             dtype_name(tensor.weight));
    }
}

std::vector<Planned> plan_all(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                              const shard::ShardingOptions& sharding, int32_t ranks) {
    std::vector<Planned> all;
    all.reserve(tensors.size());
    recipe::Recipe own = recipe; // of the group of the tensor before
    const PlannedTensor plain;
    const PlannedTensor* before = &plain;
    for (const PlannedTensor& tensor : tensors) {
        check_tensor(recipe, tensor, sharding, ranks);
        if (tensor.formats != before->formats || tensor.rule != before->rule) {
            own = with_formats(recipe, tensor.formats, tensor.rule);
        }
        before = &tensor;
        all.push_back(plan_one(recipe, own, tensor, sharding));
    }
    return all;
}

MemoryReport memory_alone(const std::vector<Planned>& tensors) {
    MemoryReport report;
    for (const Planned& tensor : tensors) {
        report.parameter_count += tensor.count;
        report.weight += format_bytes(tensor.memory, tensor.count);
        report.grad += format_bytes(tensor.formats.grad, tensor.count);
        add_states(report, tensor.formats, tensor.count);
    }
    return report;
}

// How the tensors are cut: parameter, shard, elements.
template <typename Visit>
void visit_cut(const std::vector<Planned>& tensors, const shard::ShardingOptions& sharding,
               int32_t sharers, const Visit& visit) {
    std::vector<int64_t> counts;
    std::vector<int32_t> kinds;
    for (const Planned& tensor : tensors) {
        counts.push_back(tensor.count);
        kinds.push_back(shard::bucket_kind(tensor.wire));
    }
    shard::visit_slices({sharding.kind, sharers, sharding.bucket_elements}, counts, kinds,
                        [&](const shard::ShardSlice& slice) {
                            visit(tensors[static_cast<std::size_t>(slice.parameter)], slice.rank,
                                  slice.count);
                        });
}

// What every rank holds of a tensor, whoever owns its elements.
void add_common(MemoryReport& report, const Planned& tensor, int32_t stage) {
    const int64_t all = tensor.count;
    const bool is_shared = comm::is_shared(tensor.wire);
    report.parameter_count += all;
    report.weight += format_bytes(tensor.memory, stage == 3 ? 0 : all);
    report.grad += format_bytes(tensor.formats.grad, stage >= 2 ? 0 : all);
    if (stage == 0) {
        report.reduced_grad += bytes_of(is_shared ? tensor.wire.dtype : DType::fp32, all);
        add_states(report, tensor.formats, all);
    }
}

// What the owner of some of its elements, at least one, holds for them.
void add_own(MemoryReport& report, const Planned& tensor, int32_t stage, int64_t own) {
    const bool has_copy =
        stage == 3 || tensor.is_codes || (stage > 0 && tensor.gather != dtype_of(tensor.weight));
    const bool is_shared = comm::is_shared(tensor.wire);
    report.weight += has_copy ? format_bytes(tensor.weight, own) : 0;
    report.reduced_grad +=
        bytes_of(is_shared ? tensor.wire.dtype : DType::fp32, shard::with_gap(own));
    if (stage > 0) {
        add_states(report, tensor.formats, own);
    }
}

// The shard that holds most for what it owns, the first of equal ones: all shards at once, in one pass over the slices.
int32_t largest_shard(const std::vector<Planned>& tensors, const shard::ShardingOptions& sharding,
                      int32_t sharers) {
    std::vector<int64_t> bytes(static_cast<std::size_t>(sharers));
    visit_cut(tensors, sharding, sharers, [&](const Planned& tensor, int32_t shard, int64_t own) {
        MemoryReport one;
        add_own(one, tensor, sharding.stage, own);
        bytes[static_cast<std::size_t>(shard)] += one.total();
    });
    return static_cast<int32_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

// Bytes of a whole gradient as a rank sends it, in its share of the slots; the mean over the ranks.
double message_bytes(const Planned& tensor, const shard::ShardingOptions& sharding, int32_t ranks,
                     int32_t slots) {
    comm::ReduceDesc desc;
    desc.wire = tensor.wire;
    desc.order = sharding.order;
    desc.slots = slots;
    const int32_t kinds = comm::has_slots(desc.order) ? ranks : 1; // else all ranks send alike
    double sum = 0.0;
    for (int32_t rank = 0; rank < kinds; ++rank) {
        sum += static_cast<double>(comm::message_layout(desc, rank, ranks, tensor.count).bytes);
    }
    return sum / kinds;
}

// A rank sends what is not its own. Where groups add first (Sharding::make_buckets), replicas then add the groups' sums in
// fp32; else every owner of every group gets all contributions.
double gradient_traffic(const Planned& tensor, const shard::ShardingOptions& sharding,
                        int32_t ranks, bool adds_in_groups) {
    const double all = ranks;
    const int32_t sharers = sharding.shard_ranks > 0 ? sharding.shard_ranks : ranks;
    const int32_t groups = ranks / sharers;
    const double group = sharers;
    const auto count = static_cast<double>(tensor.count);
    const double magnitudes =
        sharding.order == comm::SumOrder::exact
            ? 4.0 * count / static_cast<double>(numerics::kExactBlock) * all / group
            : 0.0; // of blocks
    if (groups > 1 && !adds_in_groups) {
        return message_bytes(tensor, sharding, ranks, sharding.slots) * (all - 1.0) / group +
               magnitudes;
    }
    const double each = message_bytes(tensor, sharding, sharers, sharding.slots / groups);
    if (sharding.node_ranks > 0) {
        const double node = sharding.node_ranks;
        const double nodes = all / node;
        return each * ((node - 1.0) / node + (nodes - 1.0) / nodes / node);
    }
    const double across = count * 2.0 * 4.0 * (groups - 1.0) / groups / group;
    return each * (group - 1.0) / group + across + magnitudes;
}

bool adds_in_groups(const std::vector<Planned>& tensors, const shard::ShardingOptions& sharding,
                    int32_t ranks) {
    const int32_t groups = sharding.shard_ranks > 0 ? ranks / sharding.shard_ranks : 1;
    const int32_t slots = sharding.slots != 0 ? sharding.slots : ranks;
    return comm::traits(sharding.order).nests(slots, groups) &&
           std::none_of(tensors.begin(), tensors.end(),
                        [](const Planned& tensor) { return comm::is_shared(tensor.wire); });
}

} // namespace

std::vector<PlannedTensor> planned_tensors(std::span<const int64_t> counts, numerics::RuleId rule) {
    std::vector<PlannedTensor> tensors(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
        tensors[i].count = counts[i];
        tensors[i].rule = rule;
    }
    return tensors;
}

MemoryReport planned_memory(const recipe::Recipe& recipe, std::span<const int64_t> counts,
                            numerics::RuleId rule) {
    return planned_memory(recipe, planned_tensors(counts, rule), {}, {});
}

MemoryReport planned_memory(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                            const shard::ShardingOptions& sharding, const RankOf& rank) {
    if (rank.rank < kLargestRank || rank.rank >= rank.ranks) {
        fail(Code::invalid_argument,
             "rank is %d of %d; ranks count from 0, and -1 is the one that holds most", rank.rank,
             rank.ranks);
    }
    shard::check_sharding(sharding, rank.ranks);
    const std::vector<Planned> planned = plan_all(recipe, tensors, sharding, rank.ranks);
    if (rank.ranks == 1) {
        return memory_alone(planned); // nobody shares it
    }
    const int32_t sharers = sharding.shard_ranks > 0 ? sharding.shard_ranks : rank.ranks;
    const int32_t mine =
        rank.rank == kLargestRank ? largest_shard(planned, sharding, sharers) : rank.rank % sharers;
    MemoryReport report;
    bool any_shared = false;
    for (const Planned& tensor : planned) {
        add_common(report, tensor, sharding.stage);
        any_shared = any_shared || comm::is_shared(tensor.wire);
    }
    visit_cut(planned, sharding, sharers, [&](const Planned& tensor, int32_t shard, int64_t own) {
        if (shard == mine) {
            add_own(report, tensor, sharding.stage, own);
        }
    });
    if (any_shared) { // a scale for each
        report.reduced_grad += bytes_of(DType::fp32, static_cast<int64_t>(planned.size()));
    }
    return report;
}

PlannedTraffic planned_traffic(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                               const shard::ShardingOptions& sharding, int32_t ranks) {
    shard::check_sharding(sharding, ranks);
    PlannedTraffic traffic;
    if (ranks == 1) {
        return traffic;
    }
    const double group = sharding.shard_ranks > 0 ? sharding.shard_ranks : ranks;
    const std::vector<Planned> planned = plan_all(recipe, tensors, sharding, ranks);
    const bool nests = adds_in_groups(planned, sharding, ranks);
    for (const Planned& tensor : planned) {
        traffic.gradients += gradient_traffic(tensor, sharding, ranks, nests);
        const bool is_shared = comm::is_shared(tensor.wire);
        const double bytes =
            sharding.stage == 0
                ? static_cast<double>(dtype_size(is_shared ? tensor.wire.dtype : DType::fp32))
                : static_cast<double>(dtype_size(tensor.gather)) *
                      (sharding.stage == 3 ? 2.0 : 1.0);
        traffic.weights += static_cast<double>(tensor.count) * bytes * (group - 1.0) / group;
    }
    return traffic;
}

} // namespace mp::optim
