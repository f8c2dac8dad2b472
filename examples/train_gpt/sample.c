/* SPDX-License-Identifier: Apache-2.0
 * Text from the model: each byte is drawn from the softmax of the logits, with one full forward pass a byte. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "run.h"

enum { PROMPT = 32 };

static int draw_byte(const float* logits, double temperature, double uniform) {
    double top = -INFINITY, sum = 0.0, weights[256];
    for (int i = 0; i < 256; i++) {
        top = fmax(top, (double)logits[i]);
    }
    for (int i = 0; i < 256; i++) {
        weights[i] = exp(((double)logits[i] - top) / temperature);
        sum += weights[i];
    }
    double left = uniform * sum;
    for (int i = 0; i < 255; i++) {
        left -= weights[i];
        if (left < 0.0) {
            return i;
        }
    }
    return 255;
}

/* The first bytes of the validation text start it off. */
static bool write_text(Network* net, char* out, const Options* o, const Text* text,
                       uint8_t* window) {
    const int64_t prompt = o->context < PROMPT ? o->context : PROMPT;
    const int64_t total = prompt + o->sample;
    memcpy(out, text->bytes + text->train_count, (size_t)prompt);
    /* Ranks that gather weights together do not stop one by one. */
    for (int64_t n = prompt; n < total && (!interrupted || params_come_and_go(net->params)); n++) {
        const int64_t seen = n < o->context ? n : o->context;
        memset(window, 0, (size_t)o->context);
        memcpy(window, out + n - seen, (size_t)seen);
        TRY_OWN(network_forward(net, window, NULL, 0.0f, NULL));
        const float* logits = floats(&net->logits) + (seen - 1) * 256;
        out[n] = (char)draw_byte(logits, o->temperature,
                                 random_uniform((uint64_t)o->seed, STREAM_SAMPLE, (uint64_t)n));
    }
    for (int64_t i = 0; i < total; i++) { /* nothing that steers a terminal */
        const unsigned char byte = (unsigned char)out[i];
        if ((byte < 32 && byte != '\n' && byte != '\t') || byte == 127) {
            out[i] = byte == 0 ? ' ' : '.';
        }
    }
    return true;
}

/* The trained network's scales go with its weights. */
static bool copy_scaling(Network* to, const Network* from) {
    unsigned char* saved = NULL;
    const bool good = network_save_scaling(from, &saved) && network_load_scaling(to, saved);
    free(saved);
    return good;
}

bool run_sample(Run* run, Params* params, const Network* trained, const Options* o,
                const Text* text) {
    Network net;
    uint8_t* window = malloc((size_t)o->context);
    run->sample = calloc((size_t)(PROMPT + o->sample + 1), 1);
    if (window == NULL || run->sample == NULL) {
        fputs("train_gpt: out of memory for the sampled text\n", stderr);
        free(window);
        return false;
    }
    const bool good = network_create(&net, params, o, 1, true) && copy_scaling(&net, trained) &&
                      write_text(&net, run->sample, o, text, window);
    network_destroy(&net);
    free(window);
    return good;
}
