// SPDX-License-Identifier: Apache-2.0
// Calls of the optimizer, alone or shared by ranks, their arguments chosen by bytes.
#pragma once

#include "fuzz/capi_linears.hpp"

namespace mp::fuzz {

inline mp_optimizer* any_optimizer(Bytes& bytes, World& world) {
    return world.optimizers.pick(bytes, world.tensors.alive(0));
}

inline void ask_rule(Bytes& bytes, World& world) {
    const int32_t rule = any_int(bytes, 5);
    const int32_t index = any_int(bytes, 6);
    Sized<mp_rule_info> info(MP_RULE_INFO_INIT);
    Sized<mp_rule_state> state(MP_RULE_STATE_INIT);
    Sized<mp_rule_hyper> hyper(MP_RULE_HYPER_INIT);
    info.odd_size(bytes);
    state.odd_size(bytes);
    hyper.odd_size(bytes);
    int32_t number = 0;
    (void)MP_CALL(world, local, mp_rule_get_count, &number);
    (void)MP_CALL(world, local, mp_rule_get_info, rule, &info.value);
    (void)MP_CALL(world, local, mp_rule_get_state, rule, index, &state.value);
    (void)MP_CALL(world, local, mp_rule_get_hyper, rule, index, &hyper.value);
    (void)MP_CALL(world, local, mp_rule_get_number, index == 0 ? "lion" : "", &number);
}

inline void create_optimizer(Bytes& bytes, World& world) {
    mp_context* context = world.contexts.pick(bytes);
    mp_recipe* recipe = any_recipe(bytes, world);
    Sized<mp_optimizer_desc> desc(MP_OPTIMIZER_DESC_INIT);
    const std::size_t byte = bytes.next();
    desc.value.flags = static_cast<uint32_t>(byte % 3 == 0 ? any_int(bytes, 32) : 0);
    desc.value.seed = bytes.next();
    desc.value.max_grad_norm = byte % 2 == 0 ? 0.0 : any_double(bytes);
    desc.odd_size(bytes);
    mp_optimizer* made = nullptr;
    if (world.setting.ranks == 0 || byte < 64) {
        (void)MP_CALL(world, local, mp_optimizer_create, context, recipe, &desc.value, &made);
        world.optimizers.put(made);
        return;
    }
    Sized<mp_sharding_desc> zero(MP_SHARDING_DESC_INIT);
    zero.value.stage = any_int(bytes, 4);
    zero.value.kind = any_int(bytes, 3);
    const std::size_t odd = bytes.next();
    if (odd >= 160) {
        zero.value.flags = static_cast<uint32_t>(any_int(bytes, 4));
        zero.value.bucket_elements = any_int(bytes, 40);
        zero.value.wire_dtype = any_int(bytes, 6);
        zero.value.order = any_int(bytes, 4);
        zero.value.slots = any_int(bytes, 6);
        zero.value.shard_ranks = any_int(bytes, 4);
        zero.value.check_every = any_int(bytes, 3);
        zero.value.node_ranks = odd % 2 == 0 ? 0 : any_int(bytes, 4);
    }
    zero.odd_size(bytes);
    (void)MP_CALL(world, ranks, mp_optimizer_create_sharded, context, recipe, &desc.value,
                  world.comms.pick(bytes, world.tensors.alive(0)), &zero.value, &made);
    world.optimizers.put(made);
}

// A parameter's states are looked at from now on, unless other ranks write into it.
inline void watch(World& world, mp_optimizer* optimizer, int32_t index, const mp_param_desc& desc) {
    if (world.setting.ranks > 0) {
        world.share(desc.param);
        world.share(desc.grad);
        return;
    }
    for (const char* name : {"master", "exp_avg", "exp_avg_sq", "compensation"}) {
        mp_tensor* state = nullptr;
        if (mp_optimizer_get_state(optimizer, index, name, &state) == MP_STATUS_OK) {
            world.states.push_back(state);
        }
    }
}

inline void add_to_optimizer(Bytes& bytes, World& world) {
    constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "", "a.weight@0", "\xff\xfe"};
    mp_optimizer* optimizer = any_optimizer(bytes, world);
    const std::size_t byte = bytes.next();
    int32_t index = -9;
    if (byte < 80) {
        Sized<mp_param_group_desc> group(MP_PARAM_GROUP_DESC_INIT);
        group.value.lr = byte < 60 ? 1e-3 : any_double(bytes);
        group.value.beta2 = byte < 60 ? 0.99 : any_double(bytes);
        group.value.flags |= byte % 4 == 0 ? static_cast<uint32_t>(bytes.below(8)) << 9 : 0;
        group.odd_size(bytes);
        if (MP_CALL(world, local, mp_optimizer_add_group, optimizer,
                    byte % 9 == 0 ? nullptr : &group.value, &index)) {
            require(index == -9, "add_group fails without a number");
        }
        return;
    }
    mp_context* context = world.contexts.pick(bytes);
    Sized<mp_param_desc> desc(MP_PARAM_DESC_INIT);
    const std::size_t name = bytes.next();
    desc.value.name = name >= 250 ? nullptr : kNames[name % (name < 240 ? 5 : std::size(kNames))];
    const auto& shape = kShapes[bytes.below(std::size(kShapes))];
    const auto dtype = 1 + static_cast<int32_t>(byte % 3);
    const bool fits = byte < 225;
    desc.value.param =
        fits ? fresh(world, context, dtype, shape[0], shape[1]) : any_tensor(bytes, world);
    desc.value.grad = byte % 5 == 0   ? fresh(world, context, dtype, shape[0], shape[1])
                      : byte % 5 == 1 ? any_tensor(bytes, world)
                                      : nullptr;
    desc.value.init_fp32 = byte % 7 == 0 ? fresh(world, context, 1, shape[0], shape[1]) : nullptr;
    desc.odd_size(bytes);
    if (MP_CALL(world, local, mp_optimizer_add_param, optimizer, any_int(bytes, 2), &desc.value,
                &index)) {
        require(index == -9, "add_param fails without a number");
        return;
    }
    watch(world, optimizer, index, desc.value);
}

inline void set_optimizer(Bytes& bytes, World& world) {
    mp_optimizer* optimizer = any_optimizer(bytes, world);
    mp_queue* queue = any_queue(bytes, world);
    const int32_t group = any_int(bytes, 2);
    switch (bytes.below(10)) {
    case 0:
        (void)MP_CALL(world, local, mp_optimizer_set_lr, optimizer, group, any_double(bytes));
        break;
    case 1:
        (void)MP_CALL(world, local, mp_optimizer_set_enabled, optimizer, group, any_int(bytes, 2));
        break;
    case 2:
        (void)MP_CALL(world, local, mp_optimizer_set_lr_tensor, optimizer, group,
                      bytes.next() < 100 ? nullptr : any_tensor(bytes, world));
        break;
    case 3:
        (void)MP_CALL(world, local, mp_optimizer_set_grad_scale_tensor, optimizer,
                      bytes.next() < 100 ? nullptr : any_tensor(bytes, world));
        break;
    case 4:
        (void)MP_CALL(world, local, mp_optimizer_set_step, optimizer, queue, any_int(bytes, 50));
        break;
    case 5:
        (void)MP_CALL(world, local, mp_optimizer_set_group_step, optimizer, queue, group,
                      any_int(bytes, 50));
        break;
    case 6:
        (void)MP_CALL(world, local, mp_optimizer_zero_grad, optimizer, queue);
        break;
    case 7:
        (void)MP_CALL(world, local, mp_optimizer_sync_master, optimizer, queue, any_int(bytes, 4));
        break;
    case 8: {
        const int32_t indices[] = {any_int(bytes, 4), any_int(bytes, 4)};
        (void)MP_CALL(world, local, mp_optimizer_mark_unused, optimizer, queue, indices,
                      any_count(bytes, 2));
        break;
    }
    default: {
        mp_linear* both[] = {any_linear(bytes, world), any_linear(bytes, world)};
        (void)MP_CALL(world, ranks, mp_optimizer_set_linears, optimizer, both, any_count(bytes, 2));
        break;
    }
    }
}

inline void take_state(World& world, mp_optimizer* optimizer, int32_t index, const char* name) {
    mp_tensor* state = nullptr;
    (void)MP_CALL(world, local, mp_optimizer_get_state, optimizer, index, name, &state);
    if (world.setting.ranks == 0) {
        world.tensors.put(state);
    } else {
        mp_tensor_destroy(state); // another rank may have none
    }
}

inline void look_at_optimizer(Bytes& bytes, World& world) {
    constexpr const char* kStates[] = {"param",      "grad",   "exp_avg",      "exp_avg_sq",
                                       "fp32_param", "master", "compensation", "nonsense"};
    mp_optimizer* optimizer = any_optimizer(bytes, world);
    mp_queue* queue = any_queue(bytes, world);
    const char* name = kStates[bytes.below(std::size(kStates))];
    const int32_t index = any_int(bytes, 3);
    switch (bytes.below(7)) {
    case 0: {
        auto stats = marked<mp_optimizer_stats>(bytes);
        const auto before = stats;
        if (MP_CALL(world, local, mp_optimizer_get_stats, optimizer, queue, &stats.value)) {
            require(stats == before, "get_stats fails without a number");
        }
        break;
    }
    case 1: {
        auto report = marked<mp_memory_report>(bytes);
        const auto before = report;
        if (MP_CALL(world, local, mp_optimizer_get_memory, optimizer, &report.value)) {
            require(report == before, "memory fails without a number");
        }
        break;
    }
    case 2:
        take_state(world, optimizer, index, name);
        break;
    case 3:
        (void)MP_CALL(world, local, mp_optimizer_read_state, optimizer, queue, index, name,
                      any_tensor(bytes, world));
        break;
    case 4:
        (void)MP_CALL(world, local, mp_optimizer_write_state, optimizer, queue, index, name,
                      any_tensor(bytes, world));
        break;
    case 5: {
        int64_t start = -7;
        int64_t count = -7;
        if (MP_CALL(world, local, mp_optimizer_get_slice, optimizer, index, any_int(bytes, 3),
                    &start, &count)) {
            require(start == -7 && count == -7, "piece fails without a number");
        }
        break;
    }
    default: {
        int32_t count = -7;
        int64_t step = -7;
        if (MP_CALL(world, local, mp_optimizer_get_param_count, optimizer, &count)) {
            require(count == -7, "param_count fails without a number");
        }
        if (MP_CALL(world, local, mp_optimizer_get_group_step, optimizer, queue, index, &step)) {
            require(step == -7, "get_group_step fails without a number");
        }
        break;
    }
    }
}

inline void step_optimizer(Bytes& bytes, World& world) {
    mp_optimizer* optimizer = any_optimizer(bytes, world);
    mp_queue* queue = any_queue(bytes, world);
    const std::size_t byte = bytes.next();
    mp_scaler* scaler = byte % 3 == 0 ? any_scaler(bytes, world) : nullptr;
    const int32_t indices[] = {any_int(bytes, 3), any_int(bytes, 3)};
    const int32_t count = 1 + static_cast<int32_t>(byte % 2);
    switch (bytes.below(13)) {
    case 0:
        (void)MP_CALL(world, ranks, mp_optimizer_shard, optimizer, queue);
        break;
    case 1:
        (void)MP_CALL(world, local, mp_optimizer_acquire_grad, optimizer, queue, indices[0]);
        break;
    case 2:
        (void)MP_CALL(world, ranks, mp_optimizer_grad_ready, optimizer, queue, indices[0]);
        break;
    case 3:
        (void)MP_CALL(world, ranks, mp_optimizer_end_microbatch, optimizer, queue);
        break;
    case 4:
        (void)MP_CALL(world, ranks, mp_optimizer_gather_begin, optimizer, queue, indices, count);
        break;
    case 5:
        (void)MP_CALL(world, ranks, mp_optimizer_gather_wait, optimizer, queue, indices, count);
        break;
    case 6:
        (void)MP_CALL(world, ranks, mp_optimizer_gather_free, optimizer, queue, indices, count);
        break;
    case 7: {
        constexpr int32_t kCounts[] = {1, 1};
        (void)MP_CALL(world, local, mp_optimizer_set_layer_params, optimizer, count, kCounts,
                      indices, any_int(bytes, 3));
        break;
    }
    case 8:
        (void)MP_CALL(world, ranks, mp_optimizer_layer_begin, optimizer, queue, indices[0],
                      indices[1]);
        break;
    case 9:
        (void)MP_CALL(world, ranks, mp_optimizer_layer_end, optimizer, queue, indices[0],
                      indices[1]);
        break;
    default:
        (void)MP_CALL(world, ranks, mp_optimizer_step, optimizer, queue, scaler);
        break;
    }
}

} // namespace mp::fuzz
