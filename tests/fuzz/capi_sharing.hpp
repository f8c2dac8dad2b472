// SPDX-License-Identifier: Apache-2.0
// Calls of communicator and checkpoint, their arguments chosen by bytes, and a whole training for other calls to find.
#pragma once

#include "fuzz/capi_optimizer.hpp"

namespace mp::fuzz {

inline mp_comm* any_comm(Bytes& bytes, World& world) {
    return world.comms.pick(bytes, world.tensors.alive(1));
}

inline void use_comm(Bytes& bytes, World& world) {
    mp_comm* comm = any_comm(bytes, world);
    uint32_t values[] = {1, static_cast<uint32_t>(world.setting.rank)};
    switch (bytes.below(10)) {
    case 0:
    case 1:
        (void)MP_CALL(world, ranks, mp_comm_barrier, comm, nullptr);
        break;
    case 2:
    case 3:
        if (!MP_CALL(world, ranks, mp_comm_max_u32, comm, values, any_count(bytes, 2), nullptr)) {
            require(values[0] == 1, "the largest of ones is one");
        }
        break;
    case 4:
    case 5:
        (void)MP_CALL(world, ranks, mp_comm_broadcast, comm, any_queue(bytes, world), values,
                      4 * any_count(bytes, 2), any_int(bytes, 3), nullptr);
        break;
    case 6: {
        mp_comm* made = nullptr;
        (void)MP_CALL(world, ranks, mp_comm_split, comm, any_int(bytes, 3), any_int(bytes, 3),
                      &made);
        world.meet(); // before one that was put aside is destroyed
        world.comms.put(made);
        break;
    }
    case 7: {
        int32_t rank = -7;
        if (MP_CALL(world, local, mp_comm_get_rank, comm, &rank)) {
            require(rank == -7, "rank fails without a number");
        }
        (void)MP_CALL(world, local, mp_comm_get_size, comm, &rank);
        (void)MP_CALL(world, local, mp_comm_get_node, comm, any_int(bytes, 3), &rank);
        break;
    }
    case 8: {
        auto traffic = marked<mp_comm_traffic>(bytes);
        const auto before = traffic;
        if (MP_CALL(world, local, mp_comm_get_traffic, comm, &traffic.value)) {
            require(traffic == before, "get_traffic fails without a number");
        }
        break;
    }
    default:
        if (bytes.next() < 40) {
            world.meet();
            (void)MP_CALL(world, local, mp_comm_abort, comm,
                          bytes.next() < 128 ? "tired" : nullptr);
            world.meet();
        } else {
            (void)world.look().failed("mp_comm_get_status", mp_comm_get_status(comm), Kind::ranks);
        }
        break;
    }
}

inline void create_checkpoint(Bytes& bytes, World& world) {
    const std::size_t byte = bytes.next();
    if (byte < 80) {
        Sized<mp_checkpoint_desc> desc(MP_CHECKPOINT_DESC_INIT);
        desc.value.keep = any_int(bytes, 3);
        desc.odd_size(bytes);
        mp_checkpoint* made = nullptr;
        (void)MP_CALL(world, ranks, mp_checkpoint_create, world.contexts.pick(bytes),
                      world.setting.ranks == 0 ? nullptr : any_comm(bytes, world),
                      byte % 7 == 0 ? nullptr : &desc.value, &made);
        world.meet();
        world.checkpoints.put(made);
        return;
    }
    mp_checkpoint* checkpoint = world.checkpoints.pick(bytes, world.tensors.alive(2));
    switch (bytes.below(4)) {
    case 0:
        (void)MP_CALL(world, local, mp_checkpoint_add_scaler, checkpoint, any_scaler(bytes, world));
        break;
    case 1:
        (void)MP_CALL(world, local, mp_checkpoint_add_linear, checkpoint, byte < 250 ? "layer" : "",
                      any_linear(bytes, world));
        break;
    case 2:
        world.memory.push_back(std::make_unique<unsigned char[]>(16));
        (void)MP_CALL(world, local, mp_checkpoint_add_data, checkpoint, "data",
                      byte < 250 ? world.memory.back().get() : nullptr, bytes.below(17));
        break;
    default:
        (void)MP_CALL(world, local, mp_checkpoint_add_optimizer, checkpoint,
                      any_optimizer(bytes, world));
        break;
    }
}

inline void use_checkpoint(Bytes& bytes, World& world) {
    constexpr int64_t kMostSaves = 2;
    mp_checkpoint* checkpoint = world.checkpoints.pick(bytes, world.tensors.alive(2));
    const char* folder = bytes.next() < 250 ? world.setting.folder.c_str() : nullptr;
    auto info = marked<mp_checkpoint_info>(bytes);
    const auto before = info;
    switch (bytes.below(6)) {
    case 0:
    case 1:
        if (world.saves++ < kMostSaves) {
            (void)MP_CALL(world, ranks, mp_checkpoint_save, checkpoint, folder, any_int(bytes, 9),
                          static_cast<uint32_t>(any_int(bytes, 2)));
        }
        break;
    case 2:
    case 3:
        if (MP_CALL(world, ranks, mp_checkpoint_load, checkpoint, folder,
                    static_cast<uint32_t>(any_int(bytes, 8)), &info.value)) {
            require(info == before, "load fails without a number");
        }
        break;
    case 4:
        (void)MP_CALL(world, ranks, mp_checkpoint_wait, checkpoint);
        break;
    default:
        if (MP_CALL(world, files, mp_checkpoint_inspect, folder, &info.value)) {
            require(info == before, "inspect fails without a number");
        }
        (void)MP_CALL(world, files, mp_checkpoint_read_manifest, folder, nullptr, 0, nullptr);
        (void)MP_CALL(world, files, mp_checkpoint_verify, folder, any_int(bytes, 3) - 1, nullptr,
                      nullptr);
        break;
    }
}

// A whole training as a program begins it, for the calls after it to find something.
inline void start_training(Bytes& bytes, World& world) {
    create_context(bytes, world);
    create_recipe(bytes, world);
    mp_context* context = world.contexts.newest();
    mp_recipe* recipe = world.recipes.newest();
    const char* name = "fp32";
    (void)MP_CALL(world, local, mp_recipe_get_string, recipe, "weight.dtype", &name);
    int32_t dtype = MP_DTYPE_FP32;
    for (int32_t i = MP_DTYPE_FP16; i <= MP_DTYPE_BF16; ++i) {
        dtype = std::strcmp(name, mp_dtype_name(i)) == 0 ? i : dtype;
    }
    mp_optimizer* optimizer = nullptr;
    mp_sharding_desc zero = MP_SHARDING_DESC_INIT;
    zero.stage = static_cast<int32_t>(bytes.below(4)) == 0 ? MP_SHARDING_STAGE_0
                                                           : static_cast<int32_t>(bytes.below(4));
    zero.kind = static_cast<int32_t>(bytes.below(3));
    (void)(world.setting.ranks == 0
               ? MP_CALL(world, local, mp_optimizer_create, context, recipe, nullptr, &optimizer)
               : MP_CALL(world, ranks, mp_optimizer_create_sharded, context, recipe, nullptr,
                         world.comms.newest(), &zero, &optimizer));
    world.meet();
    world.optimizers.put(optimizer);
    int32_t group = 0;
    (void)MP_CALL(world, local, mp_optimizer_add_group, optimizer, nullptr, &group);
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "weight";
    param.param = fresh(world, context, dtype, 16, 32);
    if (!MP_CALL(world, local, mp_optimizer_add_param, optimizer, group, &param, nullptr)) {
        watch(world, optimizer, 0, param);
    }
    mp_linear_desc sizes = MP_LINEAR_DESC_INIT;
    sizes.in_features = 32;
    sizes.out_features = 16;
    mp_linear* linear = nullptr;
    (void)MP_CALL(world, local, mp_linear_create, context, recipe, &sizes, param.param, nullptr,
                  &linear);
    world.linears.put(linear);
    mp_scaler* scaler = nullptr;
    (void)MP_CALL(world, local, mp_scaler_create_from_recipe, context, recipe, &scaler);
    world.scalers.put(scaler);
    mp_checkpoint* checkpoint = nullptr;
    (void)MP_CALL(world, ranks, mp_checkpoint_create, context,
                  world.setting.ranks == 0 ? nullptr : world.comms.newest(), nullptr, &checkpoint);
    (void)MP_CALL(world, local, mp_checkpoint_add_optimizer, checkpoint, optimizer);
    world.meet();
    world.checkpoints.put(checkpoint);
}

} // namespace mp::fuzz
