/* SPDX-License-Identifier: Apache-2.0
 * docs/sharding.md: layers that take turns in two places of the program's memory, for weights and for gradients.
 * snippet run: mpirun -n 2 */
#include "frame.h"

enum { layers = 5, count = 40000 };

static float weights[2][count], gradients[2][count];

static void backward(const float* weight, float* gradient) {
    for (int i = 0; i < count; i++) {
        gradient[i] += weight[i] < 0.5f ? -1.0f : 1.0f;
    }
}

int main(void) {
    static const char* const names[layers] = {"a", "b", "c", "d", "e"};
    mp_context* context;
    mp_recipe* recipe;
    mp_comm* comm;
    mp_optimizer* optimizer;
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp32", &recipe));
    MP_TRY(mp_comm_create_mpi(NULL, NULL, &comm));
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    sharding.stage = 3;
    sharding.bucket_elements = count;
    MP_TRY(mp_optimizer_create_sharded(context, recipe, NULL, comm, &sharding, &optimizer));
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    group.lr = 0x1p-4;
    MP_TRY(mp_optimizer_add_group(optimizer, &group, NULL));

    /* snippet: places */

    MP_TRY(mp_optimizer_shard(optimizer, NULL));
    mp_param_init inits[layers];
    int32_t counts[layers], indices[layers];
    for (int l = 0; l < layers; l++) {
        const mp_param_init constant = MP_PARAM_INIT_INIT;
        inits[l] = constant;
        inits[l].index = indices[l] = l;
        inits[l].kind = MP_INIT_CONSTANT;
        inits[l].a = l % 2; /* down to a half, or up to it */
        counts[l] = 1;
    }
    MP_TRY(mp_optimizer_init_params(optimizer, NULL, 1, inits, layers));
    MP_TRY(mp_optimizer_set_layer_params(optimizer, layers, counts, indices, 1));
    for (int step = 0; step < 3; step++) {
        /* snippet: backward */
        MP_TRY(mp_optimizer_step(optimizer, NULL, NULL));
    }
    for (int l = 0; l < layers; l++) {
        MP_TRY(mp_optimizer_layer_begin(optimizer, NULL, l, MP_PASS_FORWARD));
        const float moved = l % 2 == 0 ? weights[0][count - 1] : 1.0f - weights[1][count - 1];
        must(moved > 0.18f && moved < 0.19f, "three steps of a sixteenth towards a half");
        MP_TRY(mp_optimizer_layer_end(optimizer, NULL, l, MP_PASS_FORWARD));
    }
    mp_optimizer_destroy(optimizer);
    mp_comm_destroy(comm);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return mp_library_shutdown() == 0 ? 0 : 1;
}
