/* SPDX-License-Identifier: Apache-2.0
 * The generator behind initial weights, batches and sampled text: SplitMix64 (Steele, Lea, Flood 2014) used by position,
 * so that number i of a stream depends on (seed, stream, i) only. bench/torch_gpt.py has the same few lines. */
#ifndef MIXEDPREC_TRAIN_RANDOM_H
#define MIXEDPREC_TRAIN_RANDOM_H

#include <math.h>
#include <stdint.h>

enum {
    STREAM_TRAIN = 0,  /* where training batches start */
    STREAM_VAL = 1,    /* where validation batches start */
    STREAM_SAMPLE = 2, /* which byte comes next in the sampled text */
    STREAM_PARAM = 16  /* + number of the parameter: its initial values */
};

static inline uint64_t random_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* 64 random bits: number `index` of a stream. */
static inline uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    const uint64_t gamma = 0x9E3779B97F4A7C15u;
    return random_mix(random_mix(seed + gamma * (stream + 1)) + gamma * (index + 1));
}

/* In [0, 1). */
static inline double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return (double)(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

/* Mean 0, variance 1, by Box and Muller: the upper 32 bits give the radius, the lower 32 the angle. */
static inline double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    const uint64_t bits = random_bits(seed, stream, index);
    const double radius = sqrt(-2.0 * log(((double)(bits >> 32) + 1.0) * 0x1p-32));
    return radius * cos(2.0 * 3.14159265358979323846 * ((double)(bits & 0xFFFFFFFFu) * 0x1p-32));
}

#endif
