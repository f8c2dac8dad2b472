// SPDX-License-Identifier: Apache-2.0
#include "optim/memory_plan.hpp"

#include <algorithm>

#include "comm/reduce_scatter.hpp"
#include "numerics/part_sum.hpp"
#include "optim/staging.hpp"
#include "recipe/layer_rules.hpp"
#include "shard/shard_groups.hpp"
#include "shard/shared_scales.hpp"
#include "status/status.hpp"

namespace mp::optim {
namespace {

// And what lies with them.
void add_states(MemoryReport& report, const Layout& tensor, int64_t count) {
    const int64_t before = report.total();
    const StateFormats& formats = tensor.formats;
    report.master += format_bytes(formats.master, count);
    const numerics::RuleInfo rule = numerics::rule_info(formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        report.of(rule.states[k]) += format_bytes(formats.states[k], count);
    }
    report.compensation += format_bytes(formats.compensation, count);
    report.offload += tensor.host_weight.bytes(count);
    report.host += is_on_host(tensor.states_place) ? report.total() - before : 0;
}

// What its tensor is.
FormatId format_of_memory(const recipe::Recipe& recipe, const PlannedTensor& tensor) {
    return tensor.weight == DType::none
               ? recipe.weight
               : format_id(tensor.weight, is_fp8(tensor.weight) && !tensor.blocks.exists()
                                              ? Coding::scaled
                                              : Coding::plain);
}

void check_blocks(const PlannedTensor& tensor) {
    if (!tensor.is_frozen) {
        fail(Code::invalid_argument,
             "a planned weight has scales of blocks, rows or columns, which frozen ones "
             "(MP_PARAM_FROZEN) may have; leave scaling 0");
    }
    if (tensor.columns <= 0 || tensor.count % tensor.columns != 0) {
        fail(Code::invalid_argument,
             "a planned weight of %lld elements has %lld columns; where its scales are of blocks, "
             "rows or columns these say how they lie, and must divide the elements",
             static_cast<long long>(tensor.count), static_cast<long long>(tensor.columns));
    }
}

void check_grad(const PlannedTensor& tensor, const OptimizerOptions& optimizer, int32_t ranks) {
    const char* const why =
        tensor.is_frozen        ? "it is frozen (MP_PARAM_FROZEN)"
        : optimizer.grads_given ? "steps are given gradients (MP_OPTIMIZER_GRADS_GIVEN)"
        : optimizer.offload_grads && ranks == 1
            ? "gradients have memory that comes and goes (MP_OPTIMIZER_OFFLOAD_GRADS)"
            : nullptr;
    if (tensor.grad_stays && why != nullptr) {
        fail(
            Code::invalid_argument,
            "a planned tensor has a gradient in memory of the caller's (MP_PLANNED_GRAD_LENT), but "
            "%s; leave the flag out",
            why);
    }
}

void check_tensor(const recipe::Recipe& recipe, const PlannedTensor& tensor,
                  const shard::ShardingOptions& sharding, int32_t ranks) {
    if (tensor.blocks.exists()) {
        check_blocks(tensor);
        return;
    }
    const bool can_be_frozen =
        is_fp8(tensor.weight) || (format_roles(format_of_memory(recipe, tensor)) & kForParam) != 0;
    if (tensor.weight == DType::none || tensor.weight == DType::fp32 ||
        (tensor.is_frozen && can_be_frozen)) {
        return;
    }
    if (tensor.is_frozen) {
        fail(Code::invalid_dtype,
             "a planned frozen weight is %s; it must be none (the recipe's weight.dtype), fp32, "
             "fp16, bf16, fp8 (codes with one scale), or codes with a scaling",
             dtype_name(tensor.weight));
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

Layout layout_of(const recipe::Recipe& recipe, const PlannedTensor& tensor,
                 const LayoutOptions& options) {
    return make_layout(recipe,
                       {tensor.count, format_of_memory(recipe, tensor), tensor.is_vector,
                        tensor.rule, tensor.is_frozen, tensor.blocks, tensor.columns,
                        tensor.grad_stays},
                       options);
}

std::vector<Layout> plan_all(const recipe::Recipe& recipe, std::span<const PlannedTensor> tensors,
                             const OptimizerOptions& optimizer, int32_t ranks) {
    std::vector<Layout> all;
    all.reserve(tensors.size());
    const shard::ShardingOptions& sharding = optimizer.sharding;
    const LayoutOptions options = layout_options(optimizer, ranks > 1);
    recipe::Recipe own = recipe; // of the group of the tensor before
    const PlannedTensor plain;
    const PlannedTensor* before = &plain;
    for (const PlannedTensor& tensor : tensors) {
        check_tensor(recipe, tensor, sharding, ranks);
        check_grad(tensor, optimizer, ranks);
        if (!recipe.layers.empty()) {
            own = with_formats(recipe::for_parameter(recipe, tensor.name), tensor.formats,
                               tensor.rule);
        } else if (tensor.formats != before->formats || tensor.rule != before->rule) {
            own = with_formats(recipe, tensor.formats, tensor.rule);
        }
        before = &tensor;
        all.push_back(layout_of(own, tensor, options));
    }
    return all;
}

// How the tensors are cut: a slice, of the shard of its rank.
template <typename Visit>
void visit_cut(const std::vector<Layout>& tensors, const shard::ShardingOptions& sharding,
               int32_t sharers, const Visit& visit) {
    shard::ShardSizes sizes;
    for (const Layout& tensor : tensors) {
        sizes.counts.push_back(tensor.count);
        sizes.kinds.push_back(shard::bucket_kind(tensor.wire));
        sizes.units.push_back(tensor.unit());
    }
    shard::visit_slices({sharding.kind, sharers, sharding.bucket_elements}, sizes, visit);
}

const Layout& layout_of(const std::vector<Layout>& tensors, const shard::ShardSlice& slice) {
    return tensors[static_cast<std::size_t>(slice.parameter)];
}

// Of these elements of a tensor when they are stepped on the host: what comes there then, and leaves.
StagedArray staged(const Layout& tensor, int64_t count) {
    const LayoutArray& grad = tensor.stepped_grad();
    const bool comes = !is_on_host(grad.place);
    return {comes ? static_cast<std::size_t>(bytes_of(dtype_of(grad.format), count)) : 0,
            static_cast<std::size_t>(bytes_of(dtype_of(tensor.stepped()), count)),
            (comes && is_scaled(grad.format)) || is_scaled(tensor.stepped())};
}

void add_sums(MemoryReport& report, const LayoutArray& sum, int64_t count) {
    const int64_t bytes = bytes_of(dtype_of(sum.format), count);
    report.reduced_grad += bytes;
    report.host += is_on_host(sum.place) ? bytes : 0;
}

int64_t staging_bytes(std::span<const StagedArray> arrays) {
    const Staging staging = make_staging(arrays);
    return static_cast<int64_t>(staging.bytes[0] + staging.bytes[1]);
}

// Of one shard: what its rank stages of what it owns, in the order of the tensors.
int64_t own_staging(const std::vector<Layout>& tensors, const shard::ShardingOptions& sharding,
                    int32_t sharers, int32_t mine) {
    std::vector<shard::ShardSlice> slices;
    visit_cut(tensors, sharding, sharers, [&](const shard::ShardSlice& slice) {
        const Layout& tensor = layout_of(tensors, slice);
        if (slice.rank == mine && slice.count > 0 && !tensor.is_frozen &&
            tensor.states == Placement::slice) {
            slices.push_back(slice);
        }
    });
    std::sort(slices.begin(), slices.end(),
              [](const auto& a, const auto& b) { return a.parameter < b.parameter; });
    std::vector<StagedArray> arrays;
    arrays.reserve(slices.size());
    for (const shard::ShardSlice& slice : slices) {
        arrays.push_back(staged(layout_of(tensors, slice), slice.count));
    }
    return staging_bytes(arrays);
}

// What every rank stages where all of them step everything.
int64_t common_staging(const std::vector<Layout>& tensors) {
    std::vector<StagedArray> arrays;
    for (const Layout& tensor : tensors) {
        if (!tensor.is_frozen && tensor.states == Placement::whole) {
            arrays.push_back(staged(tensor, tensor.count));
        }
    }
    return staging_bytes(arrays);
}

// What every rank holds of a tensor, whoever owns its elements.
void add_common(MemoryReport& report, const Layout& tensor) {
    report.parameter_count += tensor.count;
    report.weight += tensor.weight.bytes(tensor.count);
    report.grad += tensor.grad.bytes(tensor.count);
    if (tensor.host_grad.exists()) {
        report.add_host_grad(host_gradient_bytes(tensor.host_grad.format, tensor.count));
    }
    if (tensor.is_summed_everywhere) {
        add_sums(report, tensor.sum, tensor.count);
    }
    if (tensor.states == Placement::whole) {
        add_states(report, tensor, tensor.count);
    }
}

// What the owner of some of its elements, at least one, holds for them.
void add_own(MemoryReport& report, const Layout& tensor, int64_t own) {
    report.weight += tensor.own_weight.bytes(own);
    add_sums(report, tensor.sum, shard::with_gap(own));
    if (tensor.states == Placement::slice) {
        add_states(report, tensor, own);
    }
}

// The shard that holds most on its device for what it owns, the first of equal ones: all shards at once, in one pass over the
// slices.
int32_t largest_shard(const std::vector<Layout>& tensors, const shard::ShardingOptions& sharding,
                      int32_t sharers) {
    shard::check_shard_count(sharers);
    std::vector<int64_t> bytes(static_cast<std::size_t>(sharers));
    visit_cut(tensors, sharding, sharers, [&](const shard::ShardSlice& slice) {
        MemoryReport one;
        add_own(one, layout_of(tensors, slice), slice.count);
        bytes[static_cast<std::size_t>(slice.rank)] += one.total() - one.host;
    });
    return static_cast<int32_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

// Bytes of a whole gradient as a rank sends it, in its share of the slots; the mean over the ranks.
double message_bytes(const Layout& tensor, const shard::ShardingOptions& sharding, int32_t ranks,
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

// A rank sends what is not its own. Where groups add first, replicas then add the groups' sums in
// fp32; else every owner of every group gets all contributions.
double gradient_traffic(const Layout& tensor, const shard::ShardingOptions& sharding, int32_t ranks,
                        bool adds_in_groups) {
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

bool shares_scales(const std::vector<Layout>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const Layout& tensor) { return comm::is_shared(tensor.wire); });
}

// What every rank holds of the scales that ranks share.
void add_shared_scales(MemoryReport& report, const std::vector<Layout>& tensors,
                       const OptimizerOptions& options, int32_t sharers) {
    if (!shares_scales(tensors)) {
        return;
    }
    int64_t words = std::count_if(tensors.begin(), tensors.end(), [](const Layout& tensor) {
        return comm::is_shared(tensor.wire);
    });
    visit_cut(tensors, options.sharding, sharers, [&](const shard::ShardSlice& slice) {
        words += comm::is_shared(layout_of(tensors, slice).wire) ? 1 : 0;
    });
    const auto count = static_cast<int64_t>(tensors.size());
    const int64_t on_host = options.offload_grads ? shard::SharedScales::host_bytes(count) : 0;
    report.reduced_grad += shard::SharedScales::device_bytes(count, words) + on_host;
    report.host += on_host;
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
                            const OptimizerOptions& options, const RankOf& rank) {
    if (rank.rank < kLargestRank || rank.rank >= rank.ranks) {
        fail(Code::invalid_argument,
             "rank is %d of %d; ranks count from 0, and -1 is the one that holds most", rank.rank,
             rank.ranks);
    }
    const shard::ShardingOptions& sharding = options.sharding;
    check_options(options, rank.ranks > 1 ? rank.ranks : 0);
    if (rank.ranks <= 1) { // as it would be among ranks
        shard::check_sharding(sharding, rank.ranks);
    }
    const std::vector<Layout> planned = plan_all(recipe, tensors, options, rank.ranks);
    MemoryReport report;
    for (const Layout& tensor : planned) {
        add_common(report, tensor);
    }
    report.add_staging(options.offload ? common_staging(planned) : 0);
    if (rank.ranks == 1) {
        return report; // nobody shares it
    }
    const int32_t sharers = sharding.shard_ranks > 0 ? sharding.shard_ranks : rank.ranks;
    const int32_t mine =
        rank.rank == kLargestRank ? largest_shard(planned, sharding, sharers) : rank.rank % sharers;
    report.add_staging(options.offload ? own_staging(planned, sharding, sharers, mine) : 0);
    visit_cut(planned, sharding, sharers, [&](const shard::ShardSlice& slice) {
        if (slice.rank == mine) {
            add_own(report, layout_of(planned, slice), slice.count);
        }
    });
    add_shared_scales(report, planned, options, sharers);
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
    OptimizerOptions options;
    options.sharding = sharding;
    const std::vector<Layout> planned = plan_all(recipe, tensors, options, ranks);
    const bool nests = shard::groups_add_first(sharding, ranks, shares_scales(planned));
    for (const Layout& tensor : planned) {
        if (tensor.is_frozen && sharding.stage != 3) {
            continue;
        }
        traffic.gradients +=
            tensor.is_frozen ? 0.0 : gradient_traffic(tensor, sharding, ranks, nests);
        const int64_t bytes =
            sharding.stage == 0                ? bytes_of(dtype_of(tensor.sum.format), tensor.count)
            : has_blocks(tensor.weight.blocks) ? tensor.own_weight.bytes(tensor.count)
                                               : bytes_of(tensor.gather, tensor.count);
        traffic.weights +=
            static_cast<double>(bytes) * (sharding.stage == 3 ? 2.0 : 1.0) * (group - 1.0) / group;
    }
    return traffic;
}

} // namespace mp::optim
