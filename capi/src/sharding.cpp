// SPDX-License-Identifier: Apache-2.0
// sharding.h
#include "boundary.hpp"
#include "comm_traffic.hpp"
#include "memory_report.hpp"
#include "optimizer_options.hpp"
#include "quant_format.hpp"
#include "rule_number.hpp"
#include "sharding_of.hpp"
#include "wire_options.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

static_assert(MP_SHARD_FLAT == static_cast<int32_t>(shard::ShardKind::flat) &&
              MP_SHARD_PER_PARAMETER == static_cast<int32_t>(shard::ShardKind::per_parameter) &&
              MP_SHARD_GREEDY == static_cast<int32_t>(shard::ShardKind::greedy));

int32_t wire_scale(const recipe::Recipe& recipe) {
    if (!mp::is_fp8(recipe.grad_reduce)) {
        return MP_COMM_SCALE_DEFAULT;
    }
    switch (recipe.grad_reduce_scale) {
    case recipe::ReduceScale::shared:
        return MP_COMM_SCALE_SHARED;
    case recipe::ReduceScale::block:
        return MP_COMM_SCALE_BLOCK;
    case recipe::ReduceScale::mx:
        return MP_COMM_SCALE_MX;
    }
    return MP_COMM_SCALE_DEFAULT;
}

int32_t stage_of(int32_t stage) {
    if (stage < MP_SHARDING_STAGE_0 || stage > 3) {
        fail(Code::invalid_argument,
             "sharding.stage is %d; it must be MP_SHARDING_STAGE_0, 1, 2 or 3, or 0 for 1",
             static_cast<int>(stage));
    }
    return stage == MP_SHARDING_STAGE_0 ? 0 : std::max(stage, 1);
}

shard::ShardingOptions options_of(const mp_sharding_desc* desc, const recipe::Recipe& recipe) {
    const auto source = read_optional_struct(desc, "sharding");
    check_flags(source.flags, MP_SHARDING_SUM_GRADIENTS | MP_SHARDING_NO_PROGRESS_THREAD,
                "sharding.flags");
    shard::ShardingOptions options;
    options.stage = stage_of(source.stage);
    options.kind = static_cast<shard::ShardKind>(
        in_range(source.kind, MP_SHARD_GREEDY, "sharding.kind", "MP_SHARD_*"));
    if (source.bucket_elements != 0) {
        options.bucket_elements = source.bucket_elements;
    }
    const bool is_recipes =
        source.wire_dtype == MP_DTYPE_NONE && source.wire_scale == MP_COMM_SCALE_DEFAULT;
    options.wire = wire_of(source.wire_dtype, is_recipes ? wire_scale(recipe) : source.wire_scale,
                           recipe.grad_reduce, "sharding.wire_dtype", MP_COMM_SCALE_SHARED);
    options.order = order_of(source.order, "sharding.order");
    options.slots = source.slots;
    options.shard_ranks = source.shard_ranks;
    options.check_every = source.check_every;
    options.node_ranks = source.node_ranks;
    options.sum_gradients = (source.flags & MP_SHARDING_SUM_GRADIENTS) != 0;
    options.progress_thread = (source.flags & MP_SHARDING_NO_PROGRESS_THREAD) == 0;
    return options;
}

optim::Optimizer& optimizer_of(const mp_optimizer* handle) {
    return *object_of(handle, "optimizer");
}

int32_t checked_index(const optim::Optimizer& optimizer, int32_t index) {
    (void)optimizer.parameters()[index];
    return index;
}

// Of a parameter that has a gradient.
int32_t trained_index(const optim::Optimizer& optimizer, int32_t index) {
    const optim::Parameter& parameter = optimizer.parameters()[index];
    if (parameter.layout.is_frozen) {
        fail(Code::bad_state, "optimizer: '%s' is frozen, so it has no gradient",
             parameter.name.c_str());
    }
    return index;
}

void set_scaling(optim::PlannedTensor& tensor, const mp_planned_tensor& source) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.scaling = source.scaling;
    const Format format = capi::format_of(tensor.weight, &quant);
    check_format(format, "tensors");
    if (has_blocks(format.grid)) {
        tensor.blocks = format.grid;
        tensor.columns = source.columns;
    }
}

std::vector<optim::PlannedTensor> planned_of(const mp_planned_tensor* tensors, int64_t count) {
    (void)list_of(tensors, count, "tensors", "tensor_count");
    std::vector<optim::PlannedTensor> all;
    std::vector<int64_t> counts;
    for (const mp_planned_tensor& source : read_structs(tensors, count, "tensors")) {
        if (source.ndim < 0 || source.ndim > MP_MAX_DIMS) {
            fail(Code::invalid_argument, "tensors[%zu].ndim is %d; it must be 0..%d", all.size(),
                 source.ndim, MP_MAX_DIMS);
        }
        optim::PlannedTensor tensor;
        tensor.count = source.count;
        tensor.weight = dtype_of(source.weight_dtype, "tensors.weight_dtype", true);
        tensor.is_vector =
            source.ndim == 1 || (source.ndim == 0 && source.weight_dtype == MP_DTYPE_FP32);
        tensor.rule = rule_of(source.rule);
        tensor.formats = formats_of(source.state_formats);
        check_flags(source.flags, MP_PARAM_FROZEN | MP_PLANNED_GRAD_LENT, "tensors.flags");
        if (source.scaling != 0) {
            set_scaling(tensor, source);
        }
        tensor.is_frozen = (source.flags & MP_PARAM_FROZEN) != 0;
        tensor.grad_stays = (source.flags & MP_PLANNED_GRAD_LENT) != 0;
        tensor.name = source.name != nullptr ? source.name : "";
        all.push_back(std::move(tensor));
        counts.push_back(source.count);
    }
    (void)checked_counts(counts.data(), count);
    return all;
}

// For calls that have nothing to do where nobody shares; null then.
shard::Sharding* sharding_if_any(const optim::Optimizer& optimizer) {
    return optimizer.options().is_sharded() ? &sharding_of(optimizer) : nullptr;
}

std::span<const int32_t> checked_indices(const optim::Optimizer& optimizer, const int32_t* indices,
                                         int32_t count) {
    const std::span<const int32_t> all = list_of(indices, count, "indices", "count");
    for (const int32_t index : all) {
        (void)checked_index(optimizer, index);
    }
    return all;
}

// Runs a body with the sharding and the stream, or does nothing.
template <typename Body>
mp_status on_sharding(mp_optimizer* handle, mp_queue* queue, const Body& body) {
    return boundary([&] {
        OptimizerObject& optimizer = *object_of(handle, "optimizer");
        Stream& stream = stream_of(queue, *optimizer.context());
        if (shard::Sharding* sharding = sharding_if_any(optimizer)) {
            body(optimizer, *sharding, stream);
        }
    });
}

} // namespace

mp_status mp_optimizer_create_sharded(mp_context* context, mp_recipe* recipe,
                                      const mp_optimizer_desc* desc, mp_comm* comm,
                                      const mp_sharding_desc* sharding, mp_optimizer** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        optim::OptimizerOptions options = mp::capi::options_of(desc);
        const std::shared_ptr<CommObject>& ranks = object_of(comm, "comm");
        const recipe::Recipe& checked = use_recipe(recipe);
        options.sharding = ::options_of(sharding, checked);
        optim::check_options(options,
                             ranks->communicator->size()); // before any rank is asked
        std::unique_ptr<mp::comm::Communicator> own;
        check(ready(*ranks).split(0, ranks->communicator->rank(), &own));
        // The transport may need the device that its communicator was made on.
        options.sharding.comm = {own.release(), [device = ranks->context](
                                                    mp::comm::Communicator* last) { delete last; }};
        *out =
            make_handle<mp_optimizer>(std::make_shared<OptimizerObject>(owner, checked, options));
    });
}

mp_status mp_optimizer_shard(mp_optimizer* optimizer, mp_queue* queue) {
    return boundary([&] {
        optim::Optimizer& object = optimizer_of(optimizer);
        if (!object.options().is_sharded()) {
            fail(Code::bad_state,
                 "optimizer: no ranks share it; make it with mp_optimizer_create_sharded");
        }
        object.shard(stream_of(queue, *object.context()));
    });
}

mp_status mp_optimizer_get_slice(const mp_optimizer* optimizer, int32_t index, int32_t rank,
                                 int64_t* start, int64_t* count) {
    return boundary([&] {
        const optim::Optimizer& object = optimizer_of(optimizer);
        (void)required(start, "start");
        (void)required(count, "count");
        const shard::Sharding& sharding = sharding_of(object);
        const shard::ShardGroups& groups = sharding.groups();
        if (rank < 0 || rank >= groups.all().size()) {
            fail(Code::invalid_argument, "rank is %d; there are %d", static_cast<int>(rank),
                 groups.all().size());
        }
        const optim::Layout& layout = object.parameters()[index].layout;
        const shard::ShardSlice slice =
            layout.is_frozen && layout.states == optim::Placement::whole
                ? shard::ShardSlice{index, rank, 0, layout.count}
                : sharding.plan().slice_on(index, rank % groups.shard_ranks());
        *start = slice.start;
        *count = slice.count;
    });
}

mp_status mp_optimizer_acquire_grad(mp_optimizer* optimizer, mp_queue* queue, int32_t index) {
    return boundary([&] {
        optim::Optimizer& object = optimizer_of(optimizer);
        Stream& stream = stream_of(queue, *object.context());
        (void)trained_index(object, index);
        object.parameters().acquire_grad(stream, index);
    });
}

mp_status mp_optimizer_grad_ready(mp_optimizer* optimizer, mp_queue* queue, int32_t index) {
    return boundary([&] {
        optim::Optimizer& object = optimizer_of(optimizer);
        Stream& stream = stream_of(queue, *object.context());
        if (sharding_if_any(object) != nullptr || object.parameters().moves_gradients()) {
            object.parameters().grad_ready(stream, trained_index(object, index));
        }
    });
}

mp_status mp_optimizer_end_microbatch(mp_optimizer* optimizer, mp_queue* queue) {
    return on_sharding(optimizer, queue,
                       [&](optim::Optimizer& /*object*/, shard::Sharding& sharding, Stream& on) {
                           sharding.end_microbatch(on);
                       });
}

mp_status mp_optimizer_gather_begin(mp_optimizer* optimizer, mp_queue* queue,
                                    const int32_t* indices, int32_t count) {
    return on_sharding(optimizer, queue,
                       [&](optim::Optimizer& object, shard::Sharding& sharding, Stream& on) {
                           sharding.begin_gather(on, checked_indices(object, indices, count));
                       });
}

mp_status mp_optimizer_gather_wait(mp_optimizer* optimizer, mp_queue* queue, const int32_t* indices,
                                   int32_t count) {
    return on_sharding(optimizer, queue,
                       [&](optim::Optimizer& object, shard::Sharding& sharding, Stream& on) {
                           sharding.wait_gather(on, checked_indices(object, indices, count));
                       });
}

mp_status mp_optimizer_gather_free(mp_optimizer* optimizer, mp_queue* queue, const int32_t* indices,
                                   int32_t count) {
    return on_sharding(optimizer, queue,
                       [&](optim::Optimizer& object, shard::Sharding& sharding, Stream& on) {
                           sharding.release(on, checked_indices(object, indices, count));
                       });
}

mp_status mp_optimizer_get_progress(const mp_optimizer* optimizer, mp_sharding_progress* progress) {
    return boundary([&] {
        const shard::Sharding& sharding = sharding_of(optimizer_of(optimizer));
        const comm::MessageCounts& messages = sharding.progress().messages();
        const char* reason = sharding.progress().why_no_thread();
        mp_sharding_progress copy{};
        copy.has_thread = reason == nullptr ? 1 : 0;
        copy.finished_by_thread = messages.finished_by_thread; // in the order that keeps <=
        copy.finished = messages.finished;
        copy.begun = messages.begun;
        copy.reason = reason == nullptr ? "" : reason;
        write_struct(progress, copy, "progress");
    });
}

mp_status mp_optimizer_get_grad_mu(const mp_optimizer* optimizer, int32_t index, double* mu) {
    return boundary([&] {
        const optim::Optimizer& object = optimizer_of(optimizer);
        (void)required(mu, "mu");
        (void)sharding_of(object);
        *mu = object.grad_scales().mu(checked_index(object, index));
    });
}

mp_status mp_optimizer_get_traffic(const mp_optimizer* optimizer, mp_comm_traffic* traffic) {
    return boundary([&] {
        const optim::Optimizer& object = optimizer_of(optimizer);
        if (!object.options().is_sharded()) {
            fail(Code::bad_state, "optimizer: no ranks share it");
        }
        write_traffic(object.sharding() != nullptr ? object.sharding()->groups().traffic()
                                                   : object.options().sharding.comm->traffic(),
                      traffic);
    });
}

mp_status mp_recipe_plan_memory_sharded(const mp_recipe* recipe, int32_t rule,
                                        const int64_t* counts, int64_t tensor_count,
                                        const mp_sharding_desc* sharding, int32_t rank,
                                        int32_t ranks, mp_memory_report* report) {
    return boundary([&] {
        const recipe::Recipe& source = object_of(recipe, "recipe")->recipe;
        const shard::ShardingOptions options = ::options_of(sharding, source);
        const std::vector<optim::PlannedTensor> tensors =
            optim::planned_tensors(checked_counts(counts, tensor_count), rule_of(rule));
        optim::OptimizerOptions optimizer;
        optimizer.sharding = options;
        write_report(optim::planned_memory(source, tensors, optimizer, {rank, ranks}), report);
    });
}

mp_status mp_recipe_plan_tensors(const mp_recipe* recipe, const mp_optimizer_desc* desc,
                                 const mp_planned_tensor* tensors, int64_t tensor_count,
                                 const mp_sharding_desc* sharding, int32_t rank, int32_t ranks,
                                 mp_memory_report* memory, mp_comm_traffic* traffic) {
    return boundary([&] {
        const recipe::Recipe& source = object_of(recipe, "recipe")->recipe;
        const shard::ShardingOptions options = ::options_of(sharding, source);
        optim::OptimizerOptions optimizer = mp::capi::options_of(desc);
        optimizer.sharding = options;
        const std::vector<optim::PlannedTensor> planned = planned_of(tensors, tensor_count);
        // Both are known, and both places are looked at, before one is written.
        const optim::MemoryReport held =
            optim::planned_memory(source, planned, optimizer, {rank, ranks});
        const optim::PlannedTraffic sent =
            traffic != nullptr ? optim::planned_traffic(source, planned, options, ranks)
                               : optim::PlannedTraffic{};
        if (memory != nullptr && traffic != nullptr) {
            (void)size_of_struct(traffic, "traffic");
        }
        if (memory != nullptr) {
            write_report(held, memory);
        }
        if (traffic != nullptr) {
            mp_comm_traffic result{};
            result.all_to_all_bytes = std::llround(sent.gradients);
            result.all_gather_bytes = std::llround(sent.weights);
            result.total_bytes = result.all_to_all_bytes + result.all_gather_bytes;
            write_struct(traffic, result, "traffic");
        }
    });
}
