/* SPDX-License-Identifier: Apache-2.0
 * docs/sharding.md: an optimizer that ranks share. Each rank's gradient is another; all get the same weights.
 * snippet run: mpirun -n 2 */
#include "frame.h"

enum { count = 1000 };

int main(void) {
    static float weights[count], gradients[count];
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "fp32", &recipe));

    /* snippet: ranks */

    int32_t group, index, rank = 0;
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "w";
    param.param = wrapped(context, weights, 0, count);
    param.grad = wrapped(context, gradients, 0, count);
    MP_TRY(mp_optimizer_add_group(optimizer, NULL, &group));
    MP_TRY(mp_optimizer_add_param(optimizer, group, &param, &index));
    MP_TRY(mp_comm_get_rank(comm, &rank));
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < count; i++) {
            gradients[i] = rank == 0 ? 3.0f : -1.0f; /* their mean is 1 */
        }
        MP_TRY(mp_optimizer_step(optimizer, NULL, NULL));
    }
    must(weights[0] < -0.0029f && weights[0] > -0.0031f && weights[count - 1] == weights[0],
         "three steps of lr 1e-3 down a gradient of 1, on both ranks");
    mp_optimizer_destroy(optimizer);
    mp_tensor_destroy(param.param);
    mp_tensor_destroy(param.grad);
    mp_comm_destroy(comm);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return mp_library_shutdown() == 0 ? 0 : 1;
}
