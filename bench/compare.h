/* SPDX-License-Identifier: Apache-2.0
 * What the programs of compare_steps.py have in common: rows that are timed when asked.
 *     PROGRAM THREADS              first writes the number of rows and their names
 *     reads  ROW MINIMUM_SECONDS   writes  SECONDS, the shortest of those that fit into that time */
#ifndef MIXEDPREC_BENCH_COMPARE_H
#define MIXEDPREC_BENCH_COMPARE_H

#include <mixedprec.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct Program {
    int count; /* of rows */
    void (*print_name)(int row);
    void (*prepare)(mp_context* context, int row); /* once, before it runs first */
    void (*run)(mp_context* context, int row);
} Program;

static void check(mp_status status, const char* what) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, mp_last_error_message());
        exit(1);
    }
}

#ifdef MP_STEP_ARGS_INIT /* since then the queue is the second argument */
#define CAST(source, destination, desc) mp_tensor_cast(source, NULL, destination, desc)
#else
#define CAST(source, destination, desc) mp_tensor_cast(NULL, source, destination, desc)
#endif

static inline mp_tensor_desc shape(int32_t dtype, int64_t height, int64_t width) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.ndim = 2;
    desc.shape[0] = height;
    desc.shape[1] = width;
    desc.dtype = dtype;
    return desc;
}

/* Of small numbers, none of them subnormal. */
static inline mp_tensor* make(mp_context* context, int32_t dtype, int64_t height, int64_t width) {
    const int64_t count = height * width;
    mp_tensor_desc desc = shape(MP_DTYPE_FP32, height, width);
    mp_tensor* wide = NULL;
    mp_tensor* tensor = NULL;
    float* values = malloc((size_t)count * sizeof *values);
    if (values == NULL) {
        exit(1);
    }
    for (int64_t i = 0; i < count; ++i) {
        values[i] = (float)((i * 37 + i / 61) % 127 - 63) / 64.0F;
    }
    check(mp_tensor_wrap(context, &desc, values, NULL, NULL, &wide), "mp_tensor_wrap");
    desc.dtype = dtype;
    check(mp_tensor_create(context, &desc, &tensor), "mp_tensor_create");
    check(CAST(wide, tensor, NULL), "mp_tensor_cast");
    mp_tensor_destroy(wide);
    free(values);
    return tensor;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double shortest_run(const Program* program, mp_context* context, int row, double seconds) {
    const double end = now() + seconds;
    double shortest = 1e30;
    do {
        const double begin = now();
        program->run(context, row);
        const double taken = now() - begin;
        shortest = taken < shortest ? taken : shortest;
    } while (now() < end);
    return shortest;
}

static int serve(const Program* program, int argc, char** argv) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    mp_context* context = NULL;
    char* is_ready = calloc((size_t)program->count, 1);
    int row = 0;
    double seconds = 0.0;
    desc.num_threads = argc > 1 ? atoi(argv[1]) : 0;
    check(mp_context_create(&desc, &context), "mp_context_create");
    printf("%d\n", program->count);
    for (int i = 0; i < program->count; ++i) {
        program->print_name(i);
        putchar('\n');
    }
    fflush(stdout);
    while (is_ready != NULL && scanf("%d %lf", &row, &seconds) == 2 && row >= 0 &&
           row < program->count) {
        if (!is_ready[row]) {
            program->prepare(context, row);
            is_ready[row] = 1;
        }
        printf("%.9e\n", shortest_run(program, context, row, seconds));
        fflush(stdout);
    }
    free(is_ready);
    mp_context_destroy(context);
    return 0;
}

#endif
