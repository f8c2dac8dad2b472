/* SPDX-License-Identifier: Apache-2.0
 * Helpers for loops that the compiler turns into vector instructions. */
#ifndef MIXEDPREC_TRAIN_VECTOR_H
#define MIXEDPREC_TRAIN_VECTOR_H

#include <stdint.h>
#include <string.h>

/* Compiles a function for several instruction sets; the loader picks one. Thread sanitizers crash in that choice. */
#if defined(__SANITIZE_THREAD__)
#define MULTI_TARGET
#elif defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define MULTI_TARGET __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#endif
#ifndef MULTI_TARGET
#define MULTI_TARGET
#endif

/* Where fast_exp stops. In a file of its own: a compiler that knows the numbers computes both borders apart and blends,
 * where a minimum and a maximum do. */
extern const float fast_exp_low, fast_exp_high;

/* e^x with a relative error below 2e-7 for x in [-87, 88], the border's value outside, NaN for NaN. No branches and no
 * table, so that a loop over it becomes vector code: 2^n times a polynomial on [-log(2)/2, log(2)/2] (the one of
 * Cephes' expf). */
static inline float fast_exp(float x) {
    x = fast_exp_low > x ? fast_exp_low : x; /* in this order NaN stays NaN */
    x = fast_exp_high < x ? fast_exp_high : x;
    /* Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits. */
    const float shifted = x * 1.44269504088896341f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif
