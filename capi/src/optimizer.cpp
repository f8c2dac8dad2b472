// SPDX-License-Identifier: Apache-2.0
// optimizer.h and optimizer_state.h, but for steps on the caller's pointers.
#include <utility>
#include <vector>

#include "boundary.hpp"
#include "layer_list.hpp"
#include "layer_pass_of.hpp"
#include "memory_report.hpp"
#include "optim/step_memory.hpp"
#include "optimizer_options.hpp"
#include "recipe/keys.hpp"

using namespace mp;
using namespace mp::capi;

mp_status mp_optimizer_create(mp_context* context, mp_recipe* recipe, const mp_optimizer_desc* desc,
                              mp_optimizer** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        *out = make_handle<mp_optimizer>(
            std::make_shared<OptimizerObject>(owner, use_recipe(recipe), options_of(desc)));
    });
}

mp_status mp_optimizer_add_group(mp_optimizer* optimizer, const mp_param_group_desc* desc,
                                 int32_t* index) {
    return boundary([&]() -> mp_status {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        const auto source = read_optional_struct(desc, "desc");
        check_flags(source.flags, kRuleFlags, "desc.flags");
        const int32_t number =
            object.groups().add(hyper_of(source), formats_of(source.state_formats));
        if (index != nullptr) {
            *index = number;
        }
        if (const std::string warning = object.groups().warning(number); !warning.empty()) {
            return warn(warning);
        }
        return MP_STATUS_OK;
    });
}

mp_status mp_optimizer_set_lr(mp_optimizer* optimizer, int32_t group, double lr) {
    return boundary([&] { object_of(optimizer, "optimizer")->groups().set_lr(group, lr); });
}

mp_status mp_optimizer_set_lr_tensor(mp_optimizer* optimizer, int32_t group, mp_tensor* lr) {
    return boundary([&] {
        object_of(optimizer, "optimizer")
            ->set_lr_tensor(group, lr == nullptr ? nullptr : object_of(lr, "lr"));
    });
}

mp_status mp_optimizer_set_norm_comm(mp_optimizer* optimizer, mp_comm* comm) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        std::shared_ptr<comm::Communicator> ranks;
        if (comm != nullptr) {
            const std::shared_ptr<CommObject> owner = object_of(comm, "comm");
            ranks = {owner, owner->communicator.get()};
        }
        object.set_norm_comm(std::move(ranks));
    });
}

mp_status mp_optimizer_get_grad_norm_tensor(mp_optimizer* optimizer, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<OptimizerObject> owner = object_of(optimizer, "optimizer");
        *out = device_number(owner->context(), owner, &owner->tables().memory().state()->norm);
    });
}

mp_status mp_optimizer_get_found_inf_tensor(mp_optimizer* optimizer, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<OptimizerObject> owner = object_of(optimizer, "optimizer");
        *out = device_number(owner->context(), owner, &owner->tables().memory().state()->found_inf);
    });
}

mp_status mp_optimizer_set_grad_scale_tensor(mp_optimizer* optimizer, mp_tensor* grad_scale) {
    return boundary([&] {
        object_of(optimizer, "optimizer")
            ->set_grad_scale_tensor(grad_scale == nullptr ? nullptr
                                                          : object_of(grad_scale, "grad_scale"));
    });
}

mp_status mp_optimizer_set_max_grad_norm(mp_optimizer* optimizer, double max_grad_norm) {
    return boundary([&] { object_of(optimizer, "optimizer")->set_max_grad_norm(max_grad_norm); });
}

mp_status mp_optimizer_set_enabled(mp_optimizer* optimizer, int32_t group, int32_t enabled) {
    return boundary(
        [&] { object_of(optimizer, "optimizer")->groups().set_enabled(group, enabled != 0); });
}

mp_status mp_optimizer_sync_master(mp_optimizer* optimizer, mp_queue* queue, int32_t index) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.parameters().sync_master(stream_of(queue, *object.context()), index);
    });
}

namespace {

// A layer whose steps end with another optimizer's.
void refuse_driven(const LinearObject& layer, std::size_t number, const OptimizerObject& by) {
    const std::shared_ptr<const void> driver = layer.optimizer.lock();
    if (driver != nullptr && driver.get() != &by) {
        fail(Code::bad_state,
             "optimizer: the steps of layer %zu%s%s%s end with another optimizer's already, so its "
             "scales would move twice; let that one name others first (mp_optimizer_set_linears), "
             "or destroy it",
             number, layer.layer.options().name.empty() ? "" : " ('",
             layer.layer.options().name.c_str(), layer.layer.options().name.empty() ? "" : "')");
    }
}

} // namespace

mp_status mp_optimizer_set_linears(mp_optimizer* optimizer, mp_linear* const* linears,
                                   int32_t count) {
    return boundary([&] {
        const std::shared_ptr<OptimizerObject> owner = object_of(optimizer, "optimizer");
        OptimizerObject& object = *owner;
        std::vector<std::shared_ptr<LinearObject>> layers;
        object.set_layers([&] {
            layers = with_adapters(listed_layers(linears, count));
            std::vector<std::shared_ptr<linear::Linear>> inner;
            inner.reserve(layers.size());
            for (const auto& layer : layers) {
                refuse_driven(*layer, inner.size(), *owner);
                inner.emplace_back(layer, &layer->layer);
            }
            return inner;
        });
        for (const auto& layer : object.layers) {
            layer->optimizer.reset();
        }
        object.layers = std::move(layers);
        for (const auto& layer : object.layers) {
            layer->optimizer = owner;
        }
    });
}

mp_status mp_optimizer_zero_grad(mp_optimizer* optimizer, mp_queue* queue) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.tables().zero_grad(stream_of(queue, *object.context()));
    });
}

mp_status mp_optimizer_mark_unused(mp_optimizer* optimizer, mp_queue* queue, const int32_t* indices,
                                   int32_t count) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.tables().mark_unused(stream_of(queue, *object.context()),
                                    list_of(indices, count, "indices", "count"));
    });
}

mp_status mp_optimizer_get_stats(mp_optimizer* optimizer, mp_queue* queue,
                                 mp_optimizer_stats* stats) {
    return boundary([&] {
        const optim::Optimizer& object = *object_of(optimizer, "optimizer");
        write_stats(object.tables().read_state(stream_of(queue, *object.context())), stats);
    });
}

mp_status mp_optimizer_get_desc(const mp_optimizer* optimizer, mp_optimizer_desc* desc) {
    return boundary([&] {
        const std::shared_ptr<OptimizerObject> object = object_of(optimizer, "optimizer");
        const optim::OptimizerOptions& options = object->options();
        mp_optimizer_desc result{};
        result.flags = (options.check_finite ? MP_OPTIMIZER_CHECK_FINITE : 0U) |
                       (options.zero_grad ? MP_OPTIMIZER_ZERO_GRAD : 0U) |
                       (options.offload ? MP_OPTIMIZER_OFFLOAD : 0U) |
                       (options.offload_grads ? MP_OPTIMIZER_OFFLOAD_GRADS : 0U) |
                       (options.grads_given ? MP_OPTIMIZER_GRADS_GIVEN : 0U);
        result.seed = object->tables().seed();
        result.max_grad_norm = options.max_grad_norm;
        write_struct(desc, result, "desc");
    });
}

mp_status mp_optimizer_get_group_count(const mp_optimizer* optimizer, int32_t* count) {
    return boundary([&] {
        *required(count, "count") =
            static_cast<int32_t>(object_of(optimizer, "optimizer")->groups().size());
    });
}

mp_status mp_optimizer_get_group(const mp_optimizer* optimizer, int32_t group,
                                 mp_param_group_desc* desc) {
    return boundary([&] {
        const std::shared_ptr<OptimizerObject> object = object_of(optimizer, "optimizer");
        const optim::ParamGroups& groups = object->groups();
        groups.check(group, false);
        const numerics::GroupHyper& hyper = groups.hyper(group);
        const numerics::RuleInfo rule = numerics::rule_info(hyper.rule);
        mp_param_group_desc result{};
        result.flags = (hyper.maximize ? MP_RULE_MAXIMIZE : 0U) |
                       (hyper.bias_correction ? 0U : MP_RULE_NO_BIAS_CORRECTION);
        result.lr = hyper.lr;
        result.beta1 = hyper.beta1;
        result.beta2 = hyper.beta2;
        result.eps = hyper.eps;
        result.weight_decay = hyper.weight_decay;
        result.rule = static_cast<int32_t>(hyper.rule);
        for (int k = 0; k < rule.state_count; ++k) {
            // Where the recipe has rules by name, a format of the group's would go over them.
            const recipe::Recipe& recipe = groups.recipe(group);
            const bool is_own = !groups.formats(group)[static_cast<std::size_t>(k)].empty();
            result.state_formats[k] = recipe.layers.empty() || is_own
                                          ? format_name(recipe.state(rule.states[k]).format)
                                          : nullptr;
        }
        (void)size_of_struct(desc, "desc");
        std::vector<mp_hyper>& named = object->reported_hypers[group];
        named = meant_zeros(hyper);
        result.hypers = named.data();
        result.hyper_count = static_cast<int32_t>(named.size());
        write_struct(desc, result, "desc");
    });
}

mp_status mp_optimizer_get_enabled(const mp_optimizer* optimizer, int32_t group, int32_t* enabled) {
    return boundary([&] {
        const optim::ParamGroups& groups = object_of(optimizer, "optimizer")->groups();
        groups.check(group, false);
        *required(enabled, "enabled") = groups.hyper(group).enabled ? 1 : 0;
    });
}

mp_status mp_optimizer_get_param_name(const mp_optimizer* optimizer, int32_t index, char* buffer,
                                      size_t capacity, size_t* needed) {
    return boundary([&] {
        copy_text(object_of(optimizer, "optimizer")->parameters()[index].name, buffer, capacity,
                  needed);
    });
}

mp_status mp_optimizer_get_param_group(const mp_optimizer* optimizer, int32_t index,
                                       int32_t* group) {
    return boundary([&] {
        *required(group, "group") = object_of(optimizer, "optimizer")->parameters()[index].group;
    });
}

mp_status mp_optimizer_get_param_count(const mp_optimizer* optimizer, int32_t* count) {
    return boundary([&] {
        *required(count, "count") = object_of(optimizer, "optimizer")->parameters().count();
    });
}

mp_status mp_optimizer_get_state(mp_optimizer* optimizer, int32_t index, const char* state,
                                 mp_tensor** out) {
    return boundary([&] {
        output(out);
        *out = make_handle<mp_tensor>(
            object_of(optimizer, "optimizer")->parameters().state(index, required(state, "state")));
    });
}

mp_status mp_optimizer_read_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                  const char* state, mp_tensor* values) {
    return boundary([&] {
        const optim::Optimizer& object = *object_of(optimizer, "optimizer");
        optim::read_state(stream_of(queue, *object.context()), object.parameters(), index,
                          required(state, "state"), *object_of(values, "values"));
    });
}

mp_status mp_optimizer_write_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                   const char* state, mp_tensor* values) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        optim::write_state(stream_of(queue, *object.context()), object.parameters(), index,
                           required(state, "state"), *object_of(values, "values"));
    });
}

mp_status mp_optimizer_set_step(mp_optimizer* optimizer, mp_queue* queue, int64_t step) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.tables().set_step(stream_of(queue, *object.context()), step);
    });
}

mp_status mp_optimizer_get_group_step(mp_optimizer* optimizer, mp_queue* queue, int32_t group,
                                      int64_t* step) {
    return boundary([&] {
        const optim::Optimizer& object = *object_of(optimizer, "optimizer");
        (void)required(step, "step");
        *step = object.tables().group_step(stream_of(queue, *object.context()), group);
    });
}

mp_status mp_optimizer_set_group_step(mp_optimizer* optimizer, mp_queue* queue, int32_t group,
                                      int64_t step) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.tables().set_group_step(stream_of(queue, *object.context()), group, step);
    });
}

mp_status mp_optimizer_get_memory(const mp_optimizer* optimizer, mp_memory_report* report) {
    return boundary(
        [&] { write_report(object_of(optimizer, "optimizer")->tables().held(), report); });
}

mp_status mp_optimizer_get_offload_traffic(const mp_optimizer* optimizer,
                                           mp_offload_traffic* traffic) {
    return boundary([&] {
        const optim::OffloadTraffic moved =
            object_of(optimizer, "optimizer")->tables().offload_traffic();
        mp_offload_traffic result{};
        result.steps = moved.steps;
        result.to_host_bytes = moved.to_host;
        result.to_device_bytes = moved.to_device;
        result.step_ns = moved.step_time.count();
        result.waited_ns = moved.waited.count();
        write_struct(traffic, result, "traffic");
    });
}

void mp_optimizer_destroy(mp_optimizer* optimizer) { destroy_handle(optimizer); }
