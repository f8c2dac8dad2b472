/* SPDX-License-Identifier: Apache-2.0
 * The network for one batch size: its layers over shared parameters, its activations, forward and backward passes.
 *
 *   x = wte[tokens] + wpe[positions]
 *   each block:  x += proj(attention(qkv(layernorm(x))));  x += fc2(gelu(fc(layernorm(x))))
 *   logits = head(layernorm(x)) */
#ifndef TRAIN_GPT_NETWORK_H
#define TRAIN_GPT_NETWORK_H

#include "attention.h"
#include "params.h"

typedef struct {
    LayerNorm ln1, ln2;
    mp_linear *qkv, *proj, *fc, *fc2;
    Array x1, x2; /* what each half of the block adds to */
    /* Inputs of the linear layers. One array for all blocks where the library keeps copies in its own types. */
    Array h1, attended, h2, activated;
    Blocked q, k, v, prob;
    Array derivative; /* first the input of GELU, then its derivative */
    Array statistics; /* of both normalizations */
} Block;

typedef struct {
    Params* params;
    int64_t batch, context, dim, layers;
    bool inference, shared_inputs, cached_weights;
    Attention attention;
    Block* blocks;
    LayerNorm lnf;
    mp_linear* head;
    mp_linear** linears; /* all of them: four for each block, then the head */
    int32_t linear_count;
    Array xf, hf, statistics, logits;
    /* Used again and again. */
    Array qkv, delta;
    Blocked heads;
    /* Backward only. */
    Array dx, dh, dwide, ln_scratch;
    Blocked dq, dk, dv, dscores;
} Network;

/* With inference there is no backward pass, and blocks share what they can. After a failure, network_destroy. */
bool network_create(Network* net, Params* params, const Options* options, int64_t batch,
                    bool inference);
void network_destroy(Network* net);

/* tokens and targets hold batch * context bytes. Fills logits; with targets, *loss is the mean cross-entropy and logits
 * become its gradient times scale (unless scale is 0). */
bool network_forward(Network* net, const uint8_t* tokens, const uint8_t* targets, float scale,
                     double* loss);

/* "h3.fc", say. */
void network_linear_name(const Network* net, int32_t index, char* name, size_t size);

/* The layers' scales and amax histories, where the recipe has such: to use a network without training it, or another
 * one in the state of this. *saved is the caller's to free. */
bool network_save_scaling(const Network* net, unsigned char** saved);
bool network_load_scaling(Network* net, const unsigned char* saved);

/* After a forward pass with a scale. Gradients overwrite the main gradients in the first pass of a step and are added
 * later. After the last pass ranks may begin to add them up. */
bool network_backward(Network* net, const uint8_t* tokens, bool first, bool last);

#endif
