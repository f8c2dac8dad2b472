/* SPDX-License-Identifier: Apache-2.0
 * README.md: the macro, and the loop over arrays of the program's own. */
#define FRAME_WITHOUT_TRY
#include "frame.h"

/* snippet: try */

enum { n = 1000, steps = 30 };
static uint16_t weights_bf16[n], grads_bf16[n], m_bf16[n], c_bf16[n];
static float v_fp32[n];

static float from_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/* The loss is the sum of (w - 1)^2 / 2. */
static void forward_and_backward(void) {
    for (int i = 0; i < n; i++) {
        const float gradient = from_bf16(weights_bf16[i]) - 1.0f;
        uint32_t bits;
        memcpy(&bits, &gradient, sizeof bits);
        grads_bf16[i] = (uint16_t)(bits >> 16);
    }
}

int main(void) {
    /* snippet: update */
    for (int i = 0; i < n; i++) {
        const float w = from_bf16(weights_bf16[i]);
        must(w > 0.025f && w < 0.031f, "30 steps of lr 1e-3 towards 1");
    }
    mp_context_destroy(context);
    return 0;
}
