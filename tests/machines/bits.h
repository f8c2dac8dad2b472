/* SPDX-License-Identifier: Apache-2.0
 * What the parts of machines_bits share: numbers that are the same on every machine, tensors of them, and lines with a hash.
 * C99 and the public headers only, so that it also builds on an old machine and for another processor. */
#ifndef MACHINES_BITS_H
#define MACHINES_BITS_H

#include <stddef.h>
#include <stdint.h>

#include "mixedprec.h"

typedef struct Bits {
    mp_context* context;
    int with_products; /* write them; else they are only computed */
    int with_bounds;
} Bits;

/* Ends the program with the library's words where a call failed. */
void check(mp_status status, const char* call);
#define OK(call) check((call), #call)

/* A step of a generator of random bits. */
uint32_t next_bits(uint32_t* state);
/* Multiples of 2^-24 in [-size, size), size a power of two: no subnormals, which some processors' products take as 0. */
void fill_numbers(float* out, size_t count, uint32_t seed, float size);

/* "name hash" on the standard output. The name is a format. */
void show(const void* bytes, size_t count, const char* name, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;
void show_tensor(const char* group, const char* name, const mp_tensor* tensor);

/* rows 0: one dimension. */
mp_tensor* make(Bits* bits, int32_t dtype, int64_t rows, int64_t columns);
/* fill_numbers, rounded to the type. */
mp_tensor* make_numbers(Bits* bits, int32_t dtype, int64_t rows, int64_t columns, uint32_t seed,
                        float size);
/* NULL where the library refuses these parts together. */
mp_tensor* make_quantized(Bits* bits, int32_t dtype, int64_t rows, int64_t columns,
                          const mp_quant_desc* quant);
/* Rounds or quantizes the numbers of source into a tensor of the same shape. */
void assign(mp_tensor* to, const mp_tensor* from);
void* data_of(const mp_tensor* tensor);
size_t bytes_of(const mp_tensor* tensor);

void show_casts(Bits* bits);
void show_quantizers(Bits* bits);
void show_pointer_steps(Bits* bits);
void show_recipe_steps(Bits* bits);
void show_gemms(Bits* bits);
void show_linears(Bits* bits);

#endif /* MACHINES_BITS_H */
