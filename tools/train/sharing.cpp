// SPDX-License-Identifier: Apache-2.0
// Parameters on ranks: what they share, memory that comes and goes (--zero 2 and 3), gradients on their way, and what
// all that should cost. On a single rank only gradients of own kernels are left of it.
#include <utility>

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
    sharding_.stage = static_cast<int32_t>(options.zero) == 0 ? MP_SHARDING_STAGE_0
                                                              : static_cast<int32_t>(options.zero);
    sharding_.bucket_elements = kBucketElements;
    sharding_.wire_dtype = options.wire_dtype;
    sharding_.order = options.order;
    sharding_.slots = have_slots() ? static_cast<int32_t>(options.accum) : 0;
    sharding_.shard_ranks = static_cast<int32_t>(options.shard_ranks);
    sharding_.node_ranks = static_cast<int32_t>(options.node_ranks);
    MP_CHECK(mp_optimizer_create_sharded(context, recipe, &desc, ranks.comm, &sharding_,
                                         out(optimizer)));
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

void Params::gather_begin(int64_t which) {
    if (!come_and_go()) {
        return;
    }
    const std::vector<int32_t> all = indices(which);
    MP_CHECK(mp_optimizer_gather_begin(optimizer.get(), nullptr, all.data(),
                                       static_cast<int32_t>(all.size())));
    mp_comm_traffic traffic = MP_COMM_TRAFFIC_INIT;
    plan(group(which), nullptr, &traffic);
    gathered_ +=
        real(traffic.all_gather_bytes) / 2.0; // which has them for forward and for backward
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

double Params::expected_traffic() {
    if (ranks.comm == nullptr) {
        return 0.0;
    }
    mp_comm_traffic traffic = MP_COMM_TRAFFIC_INIT;
    plan(list, nullptr, &traffic);
    const double gathered = std::exchange(gathered_, 0.0);
    return real(traffic.all_to_all_bytes) +
           (options.zero == 3 ? gathered : real(traffic.all_gather_bytes));
}

} // namespace train
