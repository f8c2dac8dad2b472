// SPDX-License-Identifier: Apache-2.0
// Parameters on ranks: what they share, memory that comes and goes (--zero 2 and 3), gradients on their way, and what
// all that should cost. On a single rank only gradients of own kernels are left of it.
#include <cstring>

#include "params.hpp"

namespace train {

// A bucket of gradients leaves once it has so many elements. Small beside the library's default: so are the models.
constexpr int64_t kBucketElements = 1 << 20;

// States with one scale for a tensor cannot be cut.
static bool has_scaled_states(const mp_recipe* recipe) {
    bool scaled = false;
    for (const char* key : {MP_RECIPE_WEIGHT_DTYPE, MP_RECIPE_MASTER_DTYPE, MP_RECIPE_EXP_AVG_DTYPE,
                            MP_RECIPE_EXP_AVG_SQ_DTYPE}) {
        scaled = scaled || recipe_string(recipe, key).find("_scaled") != std::string::npos;
    }
    return scaled;
}

void Params::create_on_ranks(const mp_optimizer_desc& desc) {
    sharding_.kind = has_scaled_states(recipe) ? MP_SHARD_GREEDY : MP_SHARD_FLAT;
    sharding_.flags |= MP_SHARDING_SUM_GRADIENTS; // each loss is divided by the number of passes
    sharding_.stage = static_cast<int32_t>(options.zero);
    sharding_.bucket_elements = kBucketElements;
    sharding_.wire_dtype = options.wire_dtype;
    sharding_.order = options.order;
    sharding_.slots = have_slots() ? static_cast<int32_t>(options.accum) : 0;
    sharding_.shard_ranks = static_cast<int32_t>(options.shard_ranks);
    sharding_.node_ranks = static_cast<int32_t>(options.node_ranks);
    MP_CHECK(mp_optimizer_create_sharded(context, recipe, &desc, ranks.comm, &sharding_,
                                         out(optimizer)));
}

mp_memory_report Params::sharded_memory() const {
    std::vector<int64_t> counts;
    for (const Param& p : list) {
        counts.push_back(p.elements());
    }
    mp_memory_report report{};
    report.struct_size = sizeof report;
    MP_CHECK(mp_recipe_plan_memory_sharded(recipe, MP_RULE_ADAMW, counts.data(),
                                           static_cast<int32_t>(counts.size()), &sharding_,
                                           ranks.rank, ranks.count, &report));
    return report;
}

std::span<Param> Params::group(int64_t which) {
    return which == kEmbeddings      ? std::span(list).first(kBlocks)
           : which == options.layers ? std::span(list).last(kBehindBlocks)
                                     : std::span(block(which), kPerBlock);
}

std::vector<int32_t> Params::indices(int64_t which) {
    std::vector<int32_t> numbers;
    for (const Param& p : group(which)) {
        numbers.push_back(p.index);
    }
    return numbers;
}

// Bytes of one element of a weight between ranks.
double Params::gathered_bytes(const Param& p) const {
    int32_t dtype = MP_DTYPE_FP32;
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    if (mp_tensor_get_desc(p.weight.tensor.get(), &desc) >= 0) {
        dtype = desc.dtype;
    }
    const auto size = real(mp_dtype_size(dtype));
    if (dtype != dtype_ || scaled_) {
        return size;
    }
    const int32_t narrow = dtype_by_name(recipe_string(recipe, MP_RECIPE_WEIGHT_GATHER_DTYPE));
    return narrow == MP_DTYPE_NONE ? size : std::min(size, real(mp_dtype_size(narrow)));
}

void Params::gather_begin(int64_t which) {
    if (!come_and_go()) {
        return;
    }
    const std::vector<int32_t> all = indices(which);
    MP_CHECK(mp_optimizer_gather_begin(optimizer.get(), nullptr, all.data(),
                                       static_cast<int32_t>(all.size())));
    for (const Param& p : group(which)) {
        gathered_ += real(p.elements()) * gathered_bytes(p);
    }
}

void Params::gather_wait(int64_t which) {
    if (!come_and_go()) {
        return;
    }
    const std::vector<int32_t> all = indices(which);
    MP_CHECK(mp_optimizer_gather_wait(optimizer.get(), nullptr, all.data(),
                                      static_cast<int32_t>(all.size())));
    for (Param& p : group(which)) {
        MP_CHECK(mp_tensor_get_data(p.weight.tensor.get(), &p.weight.memory));
        if (p.copy.tensor) {
            MP_CHECK(mp_tensor_cast(p.weight.tensor.get(), nullptr, p.copy.tensor.get(), nullptr));
        }
    }
}

void Params::release(int64_t which) {
    if (come_and_go()) {
        const std::vector<int32_t> all = indices(which);
        MP_CHECK(mp_optimizer_gather_free(optimizer.get(), nullptr, all.data(),
                                          static_cast<int32_t>(all.size())));
    }
}

void Params::begin_gradients(int64_t which, bool first) {
    for (Param& p : group(which)) {
        if (ranks.comm != nullptr && options.zero >= 2) {
            MP_CHECK(mp_optimizer_acquire_grad(optimizer.get(), nullptr, p.index));
            MP_CHECK(mp_tensor_get_data(p.grad.tensor.get(), &p.grad.memory));
        }
        if (p.own_kernels && (first || p.pass_grad.tensor)) {
            std::fill_n(p.gradient(), p.elements(), 0.0F);
        }
    }
}

// Rounds the fp32 gradient of a pass into the main one.
void Params::round_gradient(Param& p, bool first) {
    if (!p.pass_grad.tensor) {
        return;
    }
    if (!first) { // added in fp32, rounded once
        const Array so_far = wrap_array(context, scratch_.floats(), p.rows, p.cols);
        convert(p.grad.tensor.get(), so_far.tensor.get());
        for (int64_t j = 0; j < p.elements(); j++) {
            p.pass_grad.floats()[j] += so_far.floats()[j];
        }
    }
    convert(p.pass_grad.tensor.get(), p.grad.tensor.get());
}

void Params::end_gradients(int64_t which, bool first, bool last) {
    const std::span<Param> params = group(which);
    for (auto p = params.rbegin(); p != params.rend(); ++p) {
        round_gradient(*p, first);
        if (last && ranks.comm != nullptr && !have_slots()) {
            MP_CHECK(mp_optimizer_grad_ready(optimizer.get(), nullptr, p->index));
        }
    }
}

void Params::end_pass() {
    if (have_slots()) {
        MP_CHECK(mp_optimizer_end_microbatch(optimizer.get(), nullptr));
    }
}

// Bytes of one element's gradients from this rank to its owner. A rank with several slots sends partial sums: in order
// tree one in fp32 for each whole subtree of slots that are all its own, in order exact one of 8 bytes.
double Params::reduced_bytes(double wire) const {
    const int64_t first = ranks.first(options.accum), end = ranks.end(options.accum);
    if (options.order == MP_COMM_ORDER_RANK) {
        return wire;
    }
    if (options.order == MP_COMM_ORDER_EXACT) {
        return end - first > 1 ? 8.0 : wire;
    }
    double bytes = 0.0;
    for (int64_t slot = first; slot < end;) {
        int64_t size = 1;
        while (slot % (2 * size) == 0 && size < options.accum &&
               (slot + 2 * size <= end || end == options.accum)) {
            size *= 2;
        }
        const int64_t next = std::min(slot + size, end);
        bytes += next - slot > 1 ? 4.0 : wire;
        slot = next;
    }
    return bytes;
}

// Bytes of all gradients from this rank to their owners: those of its group, and then their sums in fp32 to the
// replicas and back; or, where the order would not be kept that way or sums are codes, those of every group.
double Params::gradient_bytes(double count, double bytes, const Wire& wire) const {
    const double all = ranks.count;
    const double group = options.shard_ranks > 0 ? real(options.shard_ranks) : all;
    const double groups = all / group;
    const auto slots = options.accum / static_cast<int64_t>(groups); // of a group
    const bool whole_subtree =
        options.accum % static_cast<int64_t>(groups) == 0 && (slots & (slots - 1)) == 0;
    const double each = reduced_bytes(bytes);
    if (groups > 1.0 &&
        (wire.scale == MP_COMM_SCALE_SHARED || options.order == MP_COMM_ORDER_EXACT ||
         (options.order == MP_COMM_ORDER_TREE && !whole_subtree))) {
        return each * count * (all - 1.0) / group;
    }
    if (options.node_ranks > 0) { // inside a node, then among nodes
        const double node = real(options.node_ranks), nodes = all / node;
        return each * count * ((node - 1.0) / node + (nodes - 1.0) / nodes / node);
    }
    const double across = 2.0 * 4.0 * (groups - 1.0) / groups / group;
    return count * (each * (group - 1.0) / group + across);
}

// What a gradient is reduced in: the option's type, or the recipe's; fp32 where that is fp8 and the parameter one of those
// that a recipe of codes keeps in fp32.
Params::Wire Params::wire_of(const Param& p) const {
    Wire wire = {options.wire_dtype, MP_COMM_SCALE_DEFAULT};
    if (wire.dtype == MP_DTYPE_NONE) {
        wire.dtype = dtype_by_name(recipe_string(recipe, MP_RECIPE_GRAD_REDUCE_DTYPE));
        const bool is_fp8 = mp_dtype_size(wire.dtype) == 1;
        const std::string scale = recipe_string(recipe, MP_RECIPE_GRAD_REDUCE_SCALE);
        wire.scale = !is_fp8             ? MP_COMM_SCALE_DEFAULT
                     : scale == "shared" ? MP_COMM_SCALE_SHARED
                     : scale == "mx"     ? MP_COMM_SCALE_MX
                                         : MP_COMM_SCALE_BLOCK;
    }
    bool scaled = false;
    (void)dtype_by_name(recipe_string(recipe, MP_RECIPE_GRAD_DTYPE), &scaled);
    if (mp_dtype_size(wire.dtype) == 1 && scaled && !is_in_recipe(p)) {
        wire = {MP_DTYPE_FP32, MP_COMM_SCALE_DEFAULT};
    }
    return wire;
}

double Params::expected_traffic() {
    if (ranks.comm == nullptr) {
        return 0.0;
    }
    const double all = ranks.count;
    const double group = options.shard_ranks > 0 ? real(options.shard_ranks) : all;
    int64_t total = 0;
    double weights = 0.0, gradients = 0.0;
    for (const Param& p : list) {
        const Wire wire = wire_of(p);
        int64_t wire_bytes = 0;
        MP_CHECK(mp_comm_get_wire_bytes(p.elements(), wire.dtype, wire.scale, &wire_bytes));
        const double count = real(p.elements());
        gradients += gradient_bytes(count, real(wire_bytes) / count, wire);
        total += p.elements();
        const double sum = wire.scale == MP_COMM_SCALE_SHARED ? 1.0 : 4.0;
        weights += count * (options.zero == 0 ? sum : gathered_bytes(p));
    }
    double bytes = gradients + (group - 1.0) / group * (options.zero == 3 ? gathered_ : weights);
    gathered_ = 0.0;
    if (options.order == MP_COMM_ORDER_EXACT && ranks.count > 1) {
        bytes += 4.0 * real(total) / 128.0 * all / group; // each block's magnitude
    }
    return bytes;
}

} // namespace train
