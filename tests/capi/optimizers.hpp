// SPDX-License-Identifier: Apache-2.0
// Groups and parameters of an optimizer in one line, and what it says of itself.
#pragma once

#include "support.hpp"

namespace mp_test {

// On ranks; an ordinary one where `comm` is NULL.
inline Optimizer make_optimizer_on(mp_comm* comm, mp_context* context, mp_recipe* recipe,
                                   const mp_optimizer_desc* desc = nullptr,
                                   const mp_sharding_desc* sharding = nullptr) {
    mp_optimizer* made = nullptr;
    EXPECT_TRUE(succeeded(comm == nullptr ? mp_optimizer_create(context, recipe, desc, &made)
                                          : mp_optimizer_create_sharded(context, recipe, desc, comm,
                                                                        sharding, &made)));
    return Optimizer(made);
}

inline int32_t add_group(mp_optimizer* optimizer, double lr = 1e-3, double weight_decay = 0.01,
                         double beta2 = 0.95) {
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    group.lr = lr;
    group.beta2 = beta2;
    group.weight_decay = weight_decay;
    int32_t index = -1;
    EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &group, &index)));
    return index;
}

inline mp_status add_param(mp_optimizer* optimizer, int32_t group, const char* name,
                           mp_tensor* param, mp_tensor* grad = nullptr, mp_tensor* init = nullptr,
                           int32_t* index = nullptr, uint32_t flags = 0) {
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.flags = flags;
    desc.name = name;
    desc.param = param;
    desc.grad = grad;
    desc.init_fp32 = init;
    return mp_optimizer_add_param(optimizer, group, &desc, index);
}

inline mp_status add_param_flags(mp_optimizer* optimizer, const char* name, mp_tensor* param,
                                 uint32_t flags) {
    return add_param(optimizer, 0, name, param, nullptr, nullptr, nullptr, flags);
}

inline Tensor state_of(mp_optimizer* optimizer, int32_t index, const std::string& name) {
    mp_tensor* tensor = nullptr;
    EXPECT_TRUE(succeeded(mp_optimizer_get_state(optimizer, index, name.c_str(), &tensor))) << name;
    return Tensor(tensor);
}

inline mp_optimizer_stats stats_of(mp_optimizer* optimizer) {
    mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
    EXPECT_TRUE(succeeded(mp_optimizer_get_stats(optimizer, nullptr, &stats)));
    return stats;
}

inline mp_sharding_progress progress_of(const mp_optimizer* optimizer) {
    mp_sharding_progress progress = MP_SHARDING_PROGRESS_INIT;
    EXPECT_TRUE(succeeded(mp_optimizer_get_progress(optimizer, &progress)));
    return progress;
}

// Of nothing yet. `comm` NULL: of one rank.
inline Checkpoint make_checkpoint(mp_context* context, mp_comm* comm = nullptr) {
    mp_checkpoint* made = nullptr;
    EXPECT_TRUE(succeeded(mp_checkpoint_create(context, comm, nullptr, &made)));
    return Checkpoint(made);
}

// Of this optimizer alone.
inline Checkpoint checkpoint_of(mp_context* context, mp_optimizer* optimizer,
                                mp_comm* comm = nullptr) {
    Checkpoint checkpoint = make_checkpoint(context, comm);
    EXPECT_TRUE(succeeded(mp_checkpoint_add_optimizer(checkpoint, optimizer)));
    return checkpoint;
}

} // namespace mp_test
