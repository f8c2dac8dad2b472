/* SPDX-License-Identifier: Apache-2.0
 * docs/optimizers.md: a plan over two slices of one parameter, run three times in place of a capture and its replays. */
#include "frame.h"

enum { count = 2, elements = 512 };

static float w[count][elements], g[count][elements], m[count][elements], v[count][elements],
    amax[count];

static void set_arrays(mp_step_slot* slot, int i) {
    slot->count = elements;
    slot->param.data = w[i], slot->param.dtype = MP_DTYPE_FP32;
    slot->grad.data = g[i], slot->grad.dtype = MP_DTYPE_FP32;
    slot->states[0].data = m[i], slot->states[0].dtype = MP_DTYPE_FP32;
    slot->states[1].data = v[i], slot->states[1].dtype = MP_DTYPE_FP32;
}

int main(void) {
    static const double hyper[5] = {0.1, 0.9, 0.999, 1e-8, 0.0};
    static const uint64_t uid[count] = {7, 7};
    static const int64_t begin[count] = {0, elements};
    int64_t steps[1] = {0};
    mp_queue* queue = NULL;
    mp_context* context;
    mp_scaler* scaler;
    mp_step_slot slots[count];
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_scaler_create(context, NULL, &scaler));
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < elements; j++) {
            g[i][j] = 65.536f; /* 1e-3 under the first loss scale */
        }
    }
    /* snippet: plan */

    MP_TRY(mp_step_plan_run(plan, queue, scaler));
    MP_TRY(mp_step_plan_run(plan, queue, scaler));
    MP_TRY(mp_context_sync(context));
    must(steps[0] == 3, "the plan counts three steps");
    must(w[0][0] < -0.2f && w[0][0] > -0.31f && w[1][elements - 1] == w[0][0],
         "three steps of lr 0.1");
    must(amax[0] == -w[0][0] && amax[1] == amax[0], "the largest weight");
    mp_step_plan_destroy(plan);
    mp_scaler_destroy(scaler);
    mp_context_destroy(context);
    return 0;
}
