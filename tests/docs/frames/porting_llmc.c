/* SPDX-License-Identifier: Apache-2.0
 * docs/migrating/own-program.md: what llm.c calls, around one matrix product. The loss of y = x w^T + b towards a target
 * falls. */
#include "frame.h"
#include <math.h>

enum { B = 4, T = 16, C = 32, OC = 48, PARAMETERS = OC * C + OC };

/* llm.c's, as far as its update reads it. */
typedef struct {
    size_t num_parameters;
    float *params_memory, *grads_memory, *m_memory, *v_memory;
} GPT2;

static mp_context* context;
static mp_recipe* recipe;
static mp_linear* layer;

/* One weight here; a program of several looks its layer up by weight. */
static mp_linear* layer_of(const float* weight, const float* bias, int in, int out) {
    if (layer == NULL) {
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = in;
        desc.out_features = out;
        MP_TRY(mp_linear_create_pointers(context, recipe, &desc, weight, MP_DTYPE_FP32, bias,
                                         bias != NULL ? MP_DTYPE_FP32 : MP_DTYPE_NONE, &layer));
    }
    return layer;
}

/* snippet: matmuls */

static void gpt2_update(GPT2* model, float learning_rate, int t) {
    must(t >= 1, "t counts from 1");
    /* snippet: update */
}

int main(void) {
    static float params[PARAMETERS], grads[PARAMETERS], m[PARAMETERS], v[PARAMETERS];
    static float inp[B * T * C], out[B * T * OC], dinp[B * T * C], dout[B * T * OC],
        wanted[B * T * OC];
    GPT2 model = {PARAMETERS, params, grads, m, v};
    double first = 0.0, loss = 0.0;
    fill(params, PARAMETERS, 1);
    fill(inp, B * T * C, 2);
    fill(wanted, B * T * OC, 3);
    MP_TRY(mp_context_create(NULL, &context));
    MP_TRY(mp_recipe_create(context, "bf16_mixed", &recipe));
    for (int t = 1; t <= 30; t++) {
        matmul_forward(out, inp, params, params + OC * C, B, T, C, OC);
        if (t == 1) {
            double y = params[OC * C];
            for (int i = 0; i < C; i++) {
                y += (double)inp[i] * params[i];
            }
            must(fabs(y - out[0]) < 0.05, "the product is the loop's, but for bf16");
        }
        loss = 0.0;
        for (int i = 0; i < B * T * OC; i++) {
            dout[i] = (out[i] - wanted[i]) / (B * T);
            loss += 0.5 * (out[i] - wanted[i]) * (out[i] - wanted[i]) / (B * T);
        }
        first = t == 1 ? loss : first;
        memset(grads, 0, sizeof grads);
        matmul_backward(dinp, grads, grads + OC * C, dout, inp, params, B, T, C, OC);
        gpt2_update(&model, 0.01f, t);
        MP_TRY(mp_linear_end_step(&layer, 1, NULL, NULL));
    }
    must(loss < 0.7 * first, "the loss falls");
    mp_linear_destroy(layer);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    return 0;
}
