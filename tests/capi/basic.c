/* SPDX-License-Identifier: Apache-2.0
 * A plain C99 program: the step on one's own pointers, from a zero-filled start, with no C++ anywhere. The
 * expected numbers are those of a computation in double. */
#include <math.h>
#include <stdio.h>

#include "mixedprec.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const mp_status status_ = (call);                                                          \
        if (status_ != MP_STATUS_OK) {                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, mp_status_string(status_),      \
                    mp_last_error_message());                                                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(void) {
    mp_context* context = NULL;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    mp_step_slot slot = {0};
    float p = 1.0F;
    float g = 0.0F;
    float m = 0.0F;
    float v = 0.0F;
    int t = 0;

    CHECK(mp_context_create(NULL, &context));
    args.weight_decay = 0.01;
    slot.struct_size = sizeof slot;
    slot.count = 1;
    slot.param.data = &p;
    slot.grad.data = &g;
    slot.states[0].data = &m;
    slot.states[1].data = &v;
    slot.param.dtype = MP_DTYPE_FP32;
    slot.grad.dtype = MP_DTYPE_FP32;
    slot.states[0].dtype = MP_DTYPE_FP32;
    slot.states[1].dtype = MP_DTYPE_FP32;
    for (t = 1; t <= 10; ++t) {
        g = (float)sin((double)t);
        args.step = t;
        CHECK(mp_optimizer_step_pointers(context, NULL, &args, &slot, 1, NULL, NULL));
    }
    mp_context_destroy(context);

    /* Two units in the last place (2^-24 in [0.5, 1)) from the rounded reference; ten exact steps, each rounded once,
     * are also two away. */
    if (fabsf(p - (float)0.99624567607096415) > 2.0F * 5.9604644775390625e-8F ||
        fabs((double)m - 0.074037644701848176) > 1e-8 ||
        fabs((double)v - 0.0049766045888604482) > 1e-9) {
        fprintf(stderr, "p = %.9g, m = %.9g, v = %.9g\n", (double)p, (double)m, (double)v);
        return 1;
    }
    return 0;
}
