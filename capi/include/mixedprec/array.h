/* SPDX-License-Identifier: Apache-2.0 */
/**
 * mp_array: numbers in the caller's memory, with what their codes need. */
#ifndef MIXEDPREC_ARRAY_H
#define MIXEDPREC_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "types.h"

/* How a moment or a compensation is coded. In blocks of the flattened tensor, with a scale each, in fp32 but where said:
 *   FP8_BLOCK     fp8_e4m3, blocks of 256: value = code * scale, scale = amax / 448 (torchao)
 *   FP8_BLOCK128  the same in blocks of 128 (LLMQ)
 *   DYNAMIC8      uint8, indices into a map of 256 values (bitsandbytes, torchao), blocks of 256: value = map[code] * scale,
 *                 scale = amax
 *   DYNAMIC4      uint8 with two indices, the even element's in the upper half; 16 values, blocks of 128
 *   COMPANDED8    uint8, blocks of 32 (FlashOptim). First moments and compensations: x = m / amax, y = 2x / (1 + |x|), the code
 *                 is 127 y, halves up, in two's complement. Second moments: 255 sqrt(v) / sqrt(amax). The scale, 16 bits, is
 *                 amax, of second moments its root: fp16 from 2^-17 to 65504, elsewhere bf16 with the sign bit set, which no
 *                 scale has. FlashOptim has fp16 alone
 * The least scale is 2^-126 (torchao's amax is at least 1e-12; zeros have that here, too, but 0 in COMPANDED8 and in second
 * moments in DYNAMIC4, whose codes have no zero).
 * A second moment that is not zero is never coded as zero, which those libraries do. */
#define MP_CODING_PLAIN 0     /* or one scale for the tensor, where scale_inv is not NULL */
#define MP_CODING_FP8_BLOCK 2 /* fp8_e4m3, blocks of 256 */
#define MP_CODING_DYNAMIC8 3  /* uint8, blocks of 256 */
#define MP_CODING_DYNAMIC4 4  /* uint8 with two codes, blocks of 128 */
/* A master weight as a bf16 parameter and the 16 bits it lacks: fp32 bits = (param << 16) + remainder. The parameter
 * is the nearest, halves away from zero. */
#define MP_CODING_REMAINDER 5
#define MP_CODING_FP8_BLOCK128 6 /* fp8_e4m3, blocks of 128 */
#define MP_CODING_COMPANDED8 7   /* uint8, blocks of 32 */

/** Plain where `coding` is MP_CODING_PLAIN and `scale_inv` NULL: elements of `dtype`. Else codes: value = code * scale_inv. */
typedef struct mp_array {
    /* NULL exactly where dtype is MP_DTYPE_NONE: there is no such array, and all else is 0. */
    void* data;
    /* One float; of a coding in blocks a scale for each, in its type. In the same memory as data. */
    void* scale_inv;
    /* One element in the context's device memory, or NULL. It becomes the largest of itself and of |x|, x as stored; NaN beats
     * infinity beats numbers, and a negative value counts as none. A skipped step leaves it. */
    float* amax;
    int32_t dtype;  /* MP_DTYPE_*; of codes in blocks what the coding has */
    int32_t coding; /* MP_CODING_* */
} mp_array;

#define MP_ARRAY_INIT                                                                              \
    { NULL, NULL, NULL, MP_DTYPE_NONE, MP_CODING_PLAIN }

#endif /* MIXEDPREC_ARRAY_H */
