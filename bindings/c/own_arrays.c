/* SPDX-License-Identifier: Apache-2.0
 *
 * Only the optimizer and the loss scaler, on arrays of the program's own: AdamW moves p to a target. Gradients overflow
 * at step 20: the scaler skips that step and halves its scale. Prints what the same program prints in every language. */
#include <math.h>
#include <mixedprec.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static void check(mp_status status) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", mp_status_string(status), mp_last_error_message());
        exit(1);
    }
}

static float p[COUNT], grad[COUNT], exp_avg[COUNT], exp_avg_sq[COUNT];

int main(void) {
    mp_context* context = NULL;
    mp_scaler* scaler = NULL;
    mp_step_args args = MP_STEP_ARGS_INIT;
    mp_step_slot slot = MP_STEP_SLOT_INIT;
    mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;

    check(mp_context_create(NULL, &context));
    check(mp_scaler_create(context, NULL, &scaler));
    slot.count = COUNT;
    slot.param.data = p, slot.param.dtype = MP_DTYPE_FP32;
    slot.grad.data = grad, slot.grad.dtype = MP_DTYPE_FP32;
    slot.states[0].data = exp_avg, slot.states[0].dtype = MP_DTYPE_FP32;
    slot.states[1].data = exp_avg_sq, slot.states[1].dtype = MP_DTYPE_FP32;
    args.lr = 0.1;
    for (int i = 1; i <= 100; i++) {
        double scale = 0.0;
        check(mp_scaler_get_scale(scaler, NULL, &scale));
        for (int j = 0; j < COUNT; j++) {
            grad[j] = (p[j] - (float)(j % 7 - 3)) * (float)scale;
        }
        if (i == 20) {
            grad[5] = INFINITY;
        }
        check(mp_optimizer_step_pointers(context, NULL, &args, &slot, 1, scaler, &stats));
        args.step += !stats.found_inf;
        check(mp_scaler_update(scaler, NULL));
    }

    double sum = 0.0, scale = 0.0;
    for (int j = 0; j < COUNT; j++) {
        sum += fabs((double)p[j]);
    }
    check(mp_scaler_get_scale(scaler, NULL, &scale));
    printf("steps %d  skipped %d  scale %.0f  sum %.9f  p[1] %.9f\n", (int)args.step - 1,
           100 - ((int)args.step - 1), scale, sum, (double)p[1]);
    mp_scaler_destroy(scaler);
    mp_context_destroy(context);
    return 0;
}
