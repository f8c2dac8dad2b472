/* SPDX-License-Identifier: Apache-2.0 */
/* A program with OpenMP loops of its own beside the library: steps of a made-up training loop in turns, once with its own
 * AdamW and cast in OpenMP, once with the library's. Prints the times of both and the ratio own / library as a median with
 * its 95 % interval; above 1 the step with the library is faster. Then a product of 1024 cubed right after another, and right
 * after one of the program's loops: below 1 the loop's threads are in its way. First with the cores to itself, then with a
 * process that spins on each. Nothing is set in the environment: what counts is what a user gets.
 *
 *     mixedprec_neighbour [elements [pairs]]
 */
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <mixedprec.h>

enum { LOOPS = 12, MOST_PAIRS = 101, MOST_SPINNERS = 64, SIDE = 1024 };

typedef struct Model {
    int64_t count;
    float *weight, *grad, *m, *v;
    uint16_t* low; /* the weight as bf16 */
    float* activation;
    mp_context* context;
    mp_step_slot slot;
    mp_tensor *weight_tensor, *low_tensor;
    mp_gemm* product;
    mp_tensor* matrices[3];
    int64_t step;
} Model;

static void check(mp_status status, const char* what) {
    if (status < 0) {
        fprintf(stderr, "neighbour: %s: %s\n", what, mp_last_error_message());
        exit(1);
    }
}

static void* array(int64_t bytes) {
    void* memory = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
    if (memory == NULL) {
        fprintf(stderr, "neighbour: no memory\n");
        exit(1);
    }
    memset(memory, 0, (size_t)bytes);
    return memory;
}

/* What a model computes between two steps: loops of the program's own, with a barrier after each. */
static void own_loops(Model* model) {
    for (int loop = 0; loop < LOOPS; ++loop) {
#pragma omp parallel for
        for (int64_t i = 0; i < model->count; ++i) {
            const float x = model->activation[i];
            model->activation[i] = 0.5F * x + 0.1F * model->weight[i] / (1.0F + x * x);
        }
    }
#pragma omp parallel for
    for (int64_t i = 0; i < model->count; ++i) {
        model->grad[i] = 0.01F + 0.001F * model->activation[i];
    }
}

static uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffU + (u >> 16 & 1U)) >> 16);
}

static void own_step(Model* model) {
    const float c1 = 1.0F / (1.0F - powf(0.9F, (float)model->step));
    const float c2 = 1.0F / (1.0F - powf(0.999F, (float)model->step));
#pragma omp parallel for
    for (int64_t i = 0; i < model->count; ++i) {
        const float g = model->grad[i];
        const float m = 0.9F * model->m[i] + 0.1F * g;
        const float v = 0.999F * model->v[i] + 0.001F * g * g;
        model->m[i] = m;
        model->v[i] = v;
        model->weight[i] -= 1e-3F * (m * c1 / (sqrtf(v * c2) + 1e-8F) + 0.01F * model->weight[i]);
    }
#pragma omp parallel for
    for (int64_t i = 0; i < model->count; ++i) {
        model->low[i] = to_bf16(model->weight[i]);
    }
}

static void library_step(Model* model) {
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    args.step = model->step;
    args.weight_decay = 0.01;
    check(mp_optimizer_step_pointers(model->context, NULL, &args, &model->slot, 1, NULL, NULL),
          "the step");
    check(mp_tensor_cast(model->weight_tensor, NULL, model->low_tensor, NULL), "the cast");
}

static void make_product(Model* model) {
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    mp_tensor_desc shape = MP_TENSOR_DESC_INIT;
    desc.m = desc.n = desc.k = SIDE;
    desc.dtype_a = desc.dtype_b = desc.dtype_d = MP_DTYPE_FP32;
    check(mp_gemm_create(model->context, &desc, &model->product), "a product");
    shape.dtype = MP_DTYPE_FP32;
    shape.ndim = 2;
    shape.shape[0] = shape.shape[1] = SIDE;
    for (int i = 0; i < 3; ++i) {
        check(mp_tensor_create(model->context, &shape, &model->matrices[i]), "a matrix");
    }
}

static mp_tensor* wrap(mp_context* context, int32_t dtype, int64_t count, void* data) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.dtype = dtype;
    desc.ndim = 1;
    desc.shape[0] = count;
    check(mp_tensor_wrap(context, &desc, data, NULL, NULL, &tensor), "a tensor");
    return tensor;
}

static Model make_model(int64_t count) {
    Model model;
    memset(&model, 0, sizeof model);
    model.count = count;
    model.weight = array(count * 4);
    model.grad = array(count * 4);
    model.m = array(count * 4);
    model.v = array(count * 4);
    model.low = array(count * 2);
    model.activation = array(count * 4);
    check(mp_context_create(NULL, &model.context), "the context");
    model.slot.struct_size = sizeof model.slot;
    model.slot.param.dtype = model.slot.grad.dtype = MP_DTYPE_FP32;
    model.slot.states[0].dtype = model.slot.states[1].dtype = MP_DTYPE_FP32;
    model.slot.count = count;
    model.slot.param.data = model.weight;
    model.slot.grad.data = model.grad;
    model.slot.states[0].data = model.m;
    model.slot.states[1].data = model.v;
    model.weight_tensor = wrap(model.context, MP_DTYPE_FP32, count, model.weight);
    model.low_tensor = wrap(model.context, MP_DTYPE_BF16, count, model.low);
    make_product(&model);
    return model;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double timed(Model* model, void (*step)(Model*)) {
    const double begin = now();
    ++model->step;
    own_loops(model);
    step(model);
    return now() - begin;
}

static int compare_doubles(const void* a, const void* b) {
    const double x = *(const double*)a;
    const double y = *(const double*)b;
    return x < y ? -1 : x > y;
}

static double median(double* values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static double timed_product(Model* model) {
    const double begin = now();
    check(mp_gemm_run(model->product, NULL, model->matrices[0], model->matrices[1], NULL, NULL,
                      model->matrices[2]),
          "the product");
    return now() - begin;
}

/* The 95 % interval of a median by order statistics, in the normal approximation of the binomial. */
static void print(const char* first, double* a, const char* second, double* b, double* ratios,
                  int pairs) {
    const int away = (int)ceil(0.98 * sqrt((double)pairs));
    const double middle = median(ratios, pairs);
    const int low = pairs / 2 - away < 0 ? 0 : pairs / 2 - away;
    const int high = pairs / 2 + away >= pairs ? pairs - 1 : pairs / 2 + away;
    printf("   %s %8.3f ms   %s %8.3f ms   ratio %.3f [%.3f, %.3f]\n", first,
           1e3 * median(a, pairs), second, 1e3 * median(b, pairs), middle, ratios[low],
           ratios[high]);
    fflush(stdout);
}

static void measure(Model* model, int pairs, const char* what) {
    double first[MOST_PAIRS];
    double second[MOST_PAIRS];
    double ratios[MOST_PAIRS];
    puts(what);
    (void)timed(model, own_step);
    (void)timed(model, library_step);
    for (int i = 0; i < pairs; ++i) {
        first[i] = timed(model, own_step);
        second[i] = timed(model, library_step);
        ratios[i] = first[i] / second[i];
    }
    print("a step of its own", first, "with the library", second, ratios, pairs);
    for (int i = 0; i < pairs; ++i) {
        (void)timed_product(model);
        first[i] = timed_product(model);
        own_loops(model);
        second[i] = timed_product(model);
        ratios[i] = first[i] / second[i];
    }
    print("a product after another", first, "after a loop", second, ratios, pairs);
}

int main(int argc, char** argv) {
    const int64_t count = argc > 1 ? atoll(argv[1]) : 4 << 20;
    const int asked = argc > 2 ? atoi(argv[2]) : 31;
    const int pairs = asked < 3 ? 3 : asked > MOST_PAIRS ? MOST_PAIRS : asked;
    Model model = make_model(count > 0 ? count : 1);
    pid_t spinners[MOST_SPINNERS];
    int threads = 0;
    measure(&model, pairs, "idle cores");
    threads = omp_get_max_threads() < MOST_SPINNERS ? omp_get_max_threads() : MOST_SPINNERS;
    for (int i = 0; i < threads; ++i) {
        spinners[i] = fork();
        if (spinners[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where this program is ended early */
            for (volatile unsigned spin = 0;; ++spin) {
            }
        }
    }
    measure(&model, pairs, "a spinning process a core");
    for (int i = 0; i < threads; ++i) {
        if (spinners[i] > 0) {
            (void)kill(spinners[i], SIGKILL);
            (void)waitpid(spinners[i], NULL, 0);
        }
    }
    mp_tensor_destroy(model.weight_tensor);
    mp_tensor_destroy(model.low_tensor);
    mp_gemm_destroy(model.product);
    for (int i = 0; i < 3; ++i) {
        mp_tensor_destroy(model.matrices[i]);
    }
    mp_context_destroy(model.context);
    return 0;
}
