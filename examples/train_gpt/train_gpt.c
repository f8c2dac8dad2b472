/* SPDX-License-Identifier: Apache-2.0
 * train_gpt: a small GPT that learns a text byte by byte, in any precision that libmixedprec knows. One file of C11.
 *
 * What the library does here, and nothing else of it is used:
 *   mp_recipe      which type every weight, gradient, moment and product has, by name: --recipe bf16_mixed, fp8_delayed, ...
 *   mp_linear      every matrix product of the model, forward and backward, in the recipe's types with the recipe's scales
 *   mp_optimizer   AdamW on all parameters, with gradient clipping, master weights or Kahan sums where the recipe has them
 *   mp_scaler      the loss scale of fp16 recipes; 1 for the others
 *   mp_checkpoint  stopping and going on with the same bits
 * Embeddings, layer normalization, attention, GELU and the loss are the plain loops below, in fp32. They and the vectors
 * they use stay fp32 under every recipe; the matrices of the linear layers are stored as the recipe says.
 *
 *   cc -std=c11 -O3 -fopenmp train_gpt.c $(pkg-config --cflags --libs mixedprec) -lm -o train_gpt     (OpenMP may be left out)
 *   ./train_gpt --data my.txt --recipe bf16_pure_kahan --steps 300
 *
 * The model, with n() for layer normalization:
 *   x = wte[byte] + wpe[position]; in each layer: x += proj(attention(qkv(n(x)))), x += fc2(gelu(fc(n(x)))); logits = head(n(x))
 *
 * Read main() first, then train_step(), forward() and backward(). */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mixedprec.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { BYTES = 256, MAX_CONTEXT = 4096, MAX_LAYERS = 64, VALIDATION_BATCHES = 8, SAMPLE = 200 };

/* ---- What the command line decides ---- */

typedef struct {
    const char *data, *recipe, *checkpoint, *resume;
    int64_t steps, batch, layers, dim, heads, context, seed, warmup, every, print;
    double lr, min_lr;
} Options;

/* clang-format off */
static Options opt = {.recipe = "fp32", .steps = 100, .batch = 8, .layers = 4, .dim = 128, .heads = 4, .context = 64,
                      .seed = 1, .warmup = 10, .every = 100, .print = 10, .lr = 1e-3, .min_lr = 1e-4};
/* clang-format on */

/* A failed call of the library ends the program: its message says what was expected, what came, and what to do. */
#define TRY(call) succeed((call), #call)
static void succeed(mp_status status, const char* call) {
    if (status < 0) {
        fprintf(stderr, "train_gpt: %.*s: %s\n", (int)strcspn(call, "("), call,
                mp_last_error_message());
        exit(1);
    }
}

static void* allocate(size_t count, size_t size) {
    void* memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "train_gpt: out of memory for %zu bytes\n", count * size);
        exit(1);
    }
    return memory;
}

/* ---- Random numbers: SplitMix64 by position, so that number i of a stream depends on (seed, stream, i) only ---- */

enum { STREAM_TRAIN, STREAM_VALIDATION, STREAM_SAMPLE, STREAM_PARAM = 16 };

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t random_bits(int64_t seed, uint64_t stream, uint64_t index) {
    const uint64_t gamma = 0x9E3779B97F4A7C15u;
    return mix(mix((uint64_t)seed + gamma * (stream + 1)) + gamma * (index + 1));
}

/* Mean 0, variance 1 (Box and Muller). */
static double random_normal(int64_t seed, uint64_t stream, uint64_t index) {
    const uint64_t bits = random_bits(seed, stream, index);
    const double radius = sqrt(-2.0 * log(((double)(bits >> 32) + 1.0) * 0x1p-32));
    return radius * cos(2.0 * 3.14159265358979323846 * ((double)(bits & 0xFFFFFFFFu) * 0x1p-32));
}

/* ---- Tensors: the library's handle, and its memory where our own loops use it ---- */

typedef struct {
    mp_tensor* handle;
    float* at; /* fp32 only */
} Tensor;

/* Every tensor made here or handed out to us, to give back at the end. */
static mp_tensor* tensors[48 * MAX_LAYERS + 64];
static int tensor_count;
static mp_tensor* keep(mp_tensor* tensor) { return tensors[tensor_count++] = tensor; }

static mp_tensor_desc shape_of(int32_t dtype, int64_t rows, int64_t cols) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = cols > 0 ? 2 : 1;
    desc.shape[0] = rows;
    desc.shape[1] = cols;
    return desc;
}

/* [rows, cols] of fp32 zeros, or [rows] with cols 0. */
static Tensor new_tensor(mp_context* context, int64_t rows, int64_t cols) {
    const mp_tensor_desc desc = shape_of(MP_DTYPE_FP32, rows, cols);
    Tensor t = {NULL, NULL};
    void* memory = NULL;
    TRY(mp_tensor_create(context, &desc, &t.handle));
    TRY(mp_tensor_get_data(t.handle, &memory));
    t.at = memory;
    keep(t.handle);
    return t;
}

/* ---- The model ---- */

/* A parameter of our own loops: fp32, with an fp32 gradient. */
typedef struct {
    Tensor weight, grad;
} Param;

/* A layer of the library's over a weight in the recipe's types, whose gradient the optimizer made. */
typedef struct {
    mp_linear* layer;
    mp_tensor *weight, *bias, *dweight, *dbias;
} Linear;

typedef struct {
    Param ln1_gain, ln1_bias, ln2_gain, ln2_bias;
    Linear qkv, proj, fc, fc2;
} Layer;

typedef struct {
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    mp_scaler* scaler;
    Param wte, wpe, lnf_gain, lnf_bias;
    Layer layers[MAX_LAYERS];
    Linear head;
    mp_linear* linears[4 * MAX_LAYERS + 1]; /* all of them, for the optimizer and for checkpoints */
    int32_t linear_count;
    uint64_t param_count;        /* so far: the next one's stream of random numbers */
    int32_t matrix_dtype;        /* how the recipe stores weights ... */
    bool matrix_scaled;          /* ... and whether as codes with a scale (MS-AMP) */
    mp_optimizer_stats progress; /* after the last step */
} Model;

/* The recipe's weight.dtype, "bf16" or "fp8_e4m3_scaled", as a number. */
static void find_matrix_dtype(Model* m) {
    const char* name = NULL;
    TRY(mp_recipe_get_string(m->recipe, MP_RECIPE_WEIGHT_DTYPE, &name));
    const char* suffix = strstr(name, "_scaled");
    const size_t length = suffix != NULL ? (size_t)(suffix - name) : strlen(name);
    m->matrix_scaled = suffix != NULL;
    for (int32_t i = MP_DTYPE_FP32; i <= MP_DTYPE_FP8_E5M2; i++) {
        if (strlen(mp_dtype_name(i)) == length && strncmp(mp_dtype_name(i), name, length) == 0) {
            m->matrix_dtype = i;
        }
    }
}

static mp_tensor* new_matrix(const Model* m, int64_t rows, int64_t cols) {
    const mp_tensor_desc desc = shape_of(m->matrix_dtype, rows, cols);
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.rule = MP_SCALE_RULE_MSAMP;
    mp_tensor* matrix = NULL;
    if (m->matrix_scaled) {
        TRY(mp_tensor_create_quantized(m->context, &desc, &quant, &matrix));
    } else {
        TRY(mp_tensor_create(m->context, &desc, &matrix));
    }
    return keep(matrix);
}

/* Hands a weight to the optimizer with initial values: random with deviation std, or all `constant`. The gradient comes
 * back, made by the library in the recipe's type unless there is one. Matrices decay (group 0), vectors do not (group 1). */
static mp_tensor* add_param(Model* m, const char* name, mp_tensor* weight, mp_tensor* grad,
                            int64_t rows, int64_t cols, double std, float constant) {
    const uint64_t stream = STREAM_PARAM + m->param_count++;
    const int64_t count = rows * (cols > 0 ? cols : 1);
    float* values = allocate((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        values[i] =
            std > 0.0 ? (float)(std * random_normal(opt.seed, stream, (uint64_t)i)) : constant;
    }
    const mp_tensor_desc shape = shape_of(MP_DTYPE_FP32, rows, cols);
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = name;
    desc.param = weight;
    desc.grad = grad;
    TRY(mp_tensor_wrap(m->context, &shape, values, NULL, NULL, &desc.init_fp32));
    int32_t index = 0;
    TRY(mp_optimizer_add_param(m->optimizer, cols > 0 ? 0 : 1, &desc, &index));
    if (grad == NULL) {
        TRY(mp_optimizer_get_state(m->optimizer, index, "grad", &grad));
        keep(grad);
    }
    mp_tensor_destroy(desc.init_fp32);
    free(values);
    return grad;
}

static void add_own(Model* m, Param* p, const char* name, int64_t rows, int64_t cols, double std,
                    float constant) {
    p->weight = new_tensor(m->context, rows, cols);
    p->grad = new_tensor(m->context, rows, cols);
    add_param(m, name, p->weight.handle, p->grad.handle, rows, cols, std, constant);
}

static void add_linear(Model* m, Linear* l, const char* name, int64_t out, int64_t in, double std,
                       bool has_bias, uint32_t flags) {
    char full[40];
    l->weight = new_matrix(m, out, in);
    snprintf(full, sizeof full, "%s.weight", name);
    l->dweight = add_param(m, full, l->weight, NULL, out, in, std, 0.0f);
    if (has_bias) {
        l->bias = new_tensor(m->context, out, 0).handle;
        l->dbias = new_tensor(m->context, out, 0).handle;
        snprintf(full, sizeof full, "%s.bias", name);
        add_param(m, full, l->bias, l->dbias, out, 0, 0.0, 0.0f);
    }
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.name = name; /* for the recipe's layers */
    desc.flags = flags;
    desc.in_features = in;
    desc.out_features = out;
    TRY(mp_linear_create(m->context, m->recipe, &desc, l->weight, l->bias, &l->layer));
    m->linears[m->linear_count++] = l->layer;
}

/* GPT-2's initial values: deviation 0.02, for matrices that write into the residual stream 0.02 / sqrt(2 layers). */
static void add_layer(Model* m, int64_t number) {
    const int64_t dim = opt.dim;
    const double std = 0.02, residual = 0.02 / sqrt(2.0 * (double)opt.layers);
    Layer* l = &m->layers[number];
    char names[8][24];
    static const char* const parts[] = {"ln1.gain", "ln1.bias", "qkv", "proj",
                                        "ln2.gain", "ln2.bias", "fc",  "fc2"};
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "h%d.%s", (int)number, parts[i]);
    }
    add_own(m, &l->ln1_gain, names[0], dim, 0, 0.0, 1.0f);
    add_own(m, &l->ln1_bias, names[1], dim, 0, 0.0, 0.0f);
    add_linear(m, &l->qkv, names[2], 3 * dim, dim, std, true, 0);
    add_linear(m, &l->proj, names[3], dim, dim, residual, true, 0);
    add_own(m, &l->ln2_gain, names[4], dim, 0, 0.0, 1.0f);
    add_own(m, &l->ln2_bias, names[5], dim, 0, 0.0, 0.0f);
    add_linear(m, &l->fc, names[6], 4 * dim, dim, std, true, 0);
    add_linear(m, &l->fc2, names[7], dim, 4 * dim, residual, true, 0);
}

static void create_optimizer(Model* m) {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.seed = (uint64_t)opt.seed; /* of stochastic rounding */
    desc.max_grad_norm = 1.0;
    TRY(mp_optimizer_create(m->context, m->recipe, &desc, &m->optimizer));
    for (int group = 0; group < 2; group++) {
        mp_param_group_desc g = MP_PARAM_GROUP_DESC_INIT;
        g.beta2 = 0.95;
        g.weight_decay = group == 0 ? 0.1 : 0.0;
        int32_t index = 0;
        TRY(mp_optimizer_add_group(m->optimizer, &g, &index));
    }
}

/* Everything the library makes for us: context, recipe, optimizer, scaler, layers. */
static void create_model(Model* m) {
    memset(m, 0, sizeof *m);
    TRY(mp_context_create(NULL, &m->context));
    if (mp_recipe_create(m->context, opt.recipe, &m->recipe) < 0) {
        fprintf(stderr, "train_gpt: --recipe: %s. train_gpt --list-recipes names them\n",
                mp_last_error_message());
        exit(2);
    }
    char reason[256];
    TRY(mp_recipe_get_reason(m->recipe, reason, sizeof reason, NULL)); /* of auto, what it chose */
    printf("recipe %s%s%s\n", opt.recipe, reason[0] != '\0' ? ": " : "", reason);
    find_matrix_dtype(m);
    create_optimizer(m);
    TRY(mp_scaler_create_from_recipe(m->context, m->recipe, &m->scaler));
    add_own(m, &m->wte, "wte", BYTES, opt.dim, 0.02, 0.0f);
    add_own(m, &m->wpe, "wpe", opt.context, opt.dim, 0.02, 0.0f);
    for (int64_t i = 0; i < opt.layers; i++) {
        add_layer(m, i);
    }
    add_own(m, &m->lnf_gain, "lnf.gain", opt.dim, 0, 0.0, 1.0f);
    add_own(m, &m->lnf_bias, "lnf.bias", opt.dim, 0, 0.0, 0.0f);
    add_linear(m, &m->head, "head", BYTES, opt.dim, 0.02, false, MP_LINEAR_FIRST_OR_LAST);
    /* Each optimizer step then ends the layers' step too: their fp8 scales move on. */
    TRY(mp_optimizer_set_linears(m->optimizer, m->linears, m->linear_count));
    m->progress.struct_size = sizeof m->progress;
    TRY(mp_optimizer_get_stats(m->optimizer, NULL, &m->progress));
    int32_t threads = 0;
    TRY(mp_context_get_num_threads(m->context, &threads));
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
}

static void destroy_model(Model* m) {
    for (int i = 0; i < tensor_count; i++) {
        mp_tensor_destroy(tensors[i]);
    }
    for (int32_t i = 0; i < m->linear_count; i++) {
        mp_linear_destroy(m->linears[i]);
    }
    mp_scaler_destroy(m->scaler);
    mp_optimizer_destroy(m->optimizer);
    mp_recipe_destroy(m->recipe);
    mp_context_destroy(m->context);
}

/* ---- Activations, for one batch size ---- */

typedef struct {
    Tensor x1, h1, qkv, prob, mixed, x2, h2, wide,
        active;        /* prob: [batch, heads, context, context] */
    Tensor statistics; /* of both normalizations: mean and 1 / deviation of each row */
} LayerActs;

typedef struct {
    int64_t batch, rows;
    LayerActs layers[MAX_LAYERS];
    Tensor xf, hf, statistics, logits;
    Tensor delta;               /* what a half of a layer adds to x */
    Tensor dx, dh, dwide, dqkv; /* backward */
    uint8_t *tokens, *targets;
} Acts;

static Acts* create_acts(const Model* m, int64_t batch) {
    mp_context* c = m->context;
    const int64_t rows = batch * opt.context, dim = opt.dim;
    Acts* a = allocate(1, sizeof *a);
    a->batch = batch;
    a->rows = rows;
    for (int64_t i = 0; i < opt.layers; i++) {
        a->layers[i] =
            (LayerActs){new_tensor(c, rows, dim),     new_tensor(c, rows, dim),
                        new_tensor(c, rows, 3 * dim), new_tensor(c, rows * opt.heads, opt.context),
                        new_tensor(c, rows, dim),     new_tensor(c, rows, dim),
                        new_tensor(c, rows, dim),     new_tensor(c, rows, 4 * dim),
                        new_tensor(c, rows, 4 * dim), new_tensor(c, 4, rows)};
    }
    a->xf = new_tensor(c, rows, dim);
    a->hf = new_tensor(c, rows, dim);
    a->statistics = new_tensor(c, 2, rows);
    a->logits = new_tensor(c, rows, BYTES);
    a->delta = new_tensor(c, rows, dim);
    a->dx = new_tensor(c, rows, dim);
    a->dh = new_tensor(c, rows, dim);
    a->dwide = new_tensor(c, rows, 4 * dim);
    a->dqkv = new_tensor(c, rows, 3 * dim);
    a->tokens = allocate((size_t)rows, 1);
    a->targets = allocate((size_t)rows, 1);
    return a;
}

static void destroy_acts(Acts* a) {
    free(a->tokens);
    free(a->targets);
    free(a);
}

/* ---- Our own loops. Each is parallel over rows, or over columns where rows meet in one sum ---- */

/* clang's analyzer thinks of models without a layer and its arrays. NOLINTBEGIN(clang-analyzer-core.NullDereference) */

static float dot(const float* a, const float* b, int64_t n) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(float* to, const float* from, float factor, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] += factor * from[i];
    }
}

static void embed(float* x, const float* wte, const float* wpe, const uint8_t* tokens, int64_t rows,
                  int64_t context, int64_t dim) {
#pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < dim; i++) {
            x[row * dim + i] = wte[tokens[row] * dim + i] + wpe[row % context * dim + i];
        }
    }
}

static void embed_backward(float* dwte, float* dwpe, const float* dx, const uint8_t* tokens,
                           int64_t rows, int64_t context, int64_t dim) {
#pragma omp parallel for
    for (int64_t i = 0; i < dim; i++) {
        for (int64_t row = 0; row < rows; row++) {
            dwte[tokens[row] * dim + i] += dx[row * dim + i];
            dwpe[row % context * dim + i] += dx[row * dim + i];
        }
    }
}

static void normalize(float* out, float* statistics, const float* x, const Param* gain,
                      const Param* bias, int64_t rows, int64_t dim) {
#pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        const float* in = x + row * dim;
        float mean = 0.0f, square = 0.0f;
        for (int64_t i = 0; i < dim; i++) {
            mean += in[i] / (float)dim;
        }
        for (int64_t i = 0; i < dim; i++) {
            square += (in[i] - mean) * (in[i] - mean);
        }
        const float rstd = 1.0f / sqrtf(square / (float)dim + 1e-5f);
        for (int64_t i = 0; i < dim; i++) {
            out[row * dim + i] = (in[i] - mean) * rstd * gain->weight.at[i] + bias->weight.at[i];
        }
        statistics[row] = mean;
        statistics[rows + row] = rstd;
    }
}

/* dx gets the gradient through the normalization of x added to it. With y = (x - mean) rstd and a = dout gain that is
 * rstd (a - mean(a) - y mean(a y)). */
static void normalize_backward(float* dx, const float* dout, const float* x,
                               const float* statistics, const Param* gain, const Param* bias,
                               int64_t rows, int64_t dim) {
    const float *mean = statistics, *rstd = statistics + rows;
#pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * dim, *d = dout + row * dim;
        float sum = 0.0f, product = 0.0f;
        for (int64_t i = 0; i < dim; i++) {
            const float a = d[i] * gain->weight.at[i];
            sum += a / (float)dim;
            product += a * (in[i] - mean[row]) * rstd[row] / (float)dim;
        }
        for (int64_t i = 0; i < dim; i++) {
            const float y = (in[i] - mean[row]) * rstd[row];
            dx[row * dim + i] += rstd[row] * (d[i] * gain->weight.at[i] - sum - y * product);
        }
    }
#pragma omp parallel for
    for (int64_t i = 0; i < dim; i++) {
        for (int64_t row = 0; row < rows; row++) {
            const float d = dout[row * dim + i];
            gain->grad.at[i] += d * (x[row * dim + i] - mean[row]) * rstd[row];
            bias->grad.at[i] += d;
        }
    }
}

/* Causal attention. Row t of qkv holds the query, key and value of all heads one behind the other. */
static void attend(float* mixed, float* prob, const float* qkv, int64_t batch) {
    const int64_t context = opt.context, dim = opt.dim, n = dim / opt.heads;
    const float scale = 1.0f / sqrtf((float)n);
#pragma omp parallel for
    for (int64_t bh = 0; bh < batch * opt.heads; bh++) {
        const float* q = qkv + bh / opt.heads * context * 3 * dim + bh % opt.heads * n;
        float* out = mixed + bh / opt.heads * context * dim + bh % opt.heads * n;
        for (int64_t t = 0; t < context; t++) {
            float* p = prob + (bh * context + t) * context;
            float top = -INFINITY, sum = 0.0f;
            for (int64_t s = 0; s <= t; s++) {
                p[s] = scale * dot(q + t * 3 * dim, q + s * 3 * dim + dim, n);
                top = p[s] > top ? p[s] : top;
            }
            for (int64_t s = 0; s <= t; s++) {
                p[s] = expf(p[s] - top);
                sum += p[s];
            }
            memset(out + t * dim, 0, sizeof(float) * (size_t)n);
            for (int64_t s = 0; s <= t; s++) {
                p[s] /= sum;
                add_scaled(out + t * dim, q + s * 3 * dim + 2 * dim, p[s], n);
            }
        }
    }
}

static void attend_backward(float* dqkv, const float* dmixed, const float* prob, const float* qkv,
                            int64_t batch) {
    const int64_t context = opt.context, dim = opt.dim, n = dim / opt.heads;
    const float scale = 1.0f / sqrtf((float)n);
    memset(dqkv, 0, sizeof(float) * (size_t)(batch * context * 3 * dim));
#pragma omp parallel for
    for (int64_t bh = 0; bh < batch * opt.heads; bh++) {
        const int64_t first = bh / opt.heads * context * 3 * dim + bh % opt.heads * n;
        const float* q = qkv + first;
        float* dq = dqkv + first;
        const float* dout = dmixed + bh / opt.heads * context * dim + bh % opt.heads * n;
        for (int64_t t = 0; t < context; t++) {
            const float* p = prob + (bh * context + t) * context;
            float dp[MAX_CONTEXT], sum = 0.0f;
            for (int64_t s = 0; s <= t; s++) {
                const int64_t value = s * 3 * dim + 2 * dim;
                dp[s] = dot(dout + t * dim, q + value, n);
                sum += p[s] * dp[s];
                add_scaled(dq + value, dout + t * dim, p[s], n);
            }
            for (int64_t s = 0; s <= t; s++) {
                const float dscore = scale * p[s] * (dp[s] - sum);
                add_scaled(dq + t * 3 * dim, q + s * 3 * dim + dim, dscore, n);
                add_scaled(dq + s * 3 * dim + dim, q + t * 3 * dim, dscore, n);
            }
        }
    }
}

/* The tanh form, with c = sqrt(2 / pi). */
static void gelu(float* out, const float* z, int64_t count) {
    const float c = 0.7978845608f;
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++) {
        out[i] = 0.5f * z[i] * (1.0f + tanhf(c * (z[i] + 0.044715f * z[i] * z[i] * z[i])));
    }
}

static void gelu_backward(float* d, const float* z, int64_t count) {
    const float c = 0.7978845608f;
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++) {
        const float t = tanhf(c * (z[i] + 0.044715f * z[i] * z[i] * z[i]));
        const float slope = c * (1.0f + 3.0f * 0.044715f * z[i] * z[i]);
        d[i] *= 0.5f * (1.0f + t) + 0.5f * z[i] * (1.0f - t * t) * slope;
    }
}

static void add(float* out, const float* a, const float* b, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++) {
        out[i] = a[i] + b[i];
    }
}

/* The mean of -log softmax(logits)[target]; logits become its gradient times scale. */
static double cross_entropy(float* logits, const uint8_t* targets, int64_t rows, double scale) {
    double loss = 0.0;
    const float part = (float)(scale / (double)rows);
#pragma omp parallel for reduction(+ : loss)
    for (int64_t row = 0; row < rows; row++) {
        float* l = logits + row * BYTES;
        float top = l[0], sum = 0.0f;
        for (int i = 1; i < BYTES; i++) {
            top = l[i] > top ? l[i] : top;
        }
        const float wanted = l[targets[row]] - top;
        for (int i = 0; i < BYTES; i++) {
            l[i] = expf(l[i] - top);
            sum += l[i];
        }
        for (int i = 0; i < BYTES; i++) {
            l[i] *= part / sum;
        }
        l[targets[row]] -= part;
        loss += log((double)sum) - (double)wanted;
    }
    return loss / (double)rows;
}

/* NOLINTEND(clang-analyzer-core.NullDereference) */

/* ---- Forward and backward: read them side by side ---- */

static void linear(const Linear* l, const Tensor* x, const Tensor* y) {
    TRY(mp_linear_forward(l->layer, NULL, x->handle, y->handle));
}

static void linear_backward(const Linear* l, const Tensor* dy, const Tensor* dx) {
    TRY(mp_linear_backward(l->layer, NULL, dy->handle, dx->handle, l->dweight, l->dbias, 0));
}

/* From a->tokens to a->logits. */
static void forward(Model* m, Acts* a) {
    const int64_t rows = a->rows, dim = opt.dim;
    embed(a->layers[0].x1.at, m->wte.weight.at, m->wpe.weight.at, a->tokens, rows, opt.context,
          dim);
    for (int64_t i = 0; i < opt.layers; i++) {
        const Layer* l = &m->layers[i];
        LayerActs* t = &a->layers[i];
        float* next = i + 1 < opt.layers ? a->layers[i + 1].x1.at : a->xf.at;
        normalize(t->h1.at, t->statistics.at, t->x1.at, &l->ln1_gain, &l->ln1_bias, rows, dim);
        linear(&l->qkv, &t->h1, &t->qkv);
        attend(t->mixed.at, t->prob.at, t->qkv.at, a->batch);
        linear(&l->proj, &t->mixed, &a->delta);
        add(t->x2.at, t->x1.at, a->delta.at, rows * dim);
        normalize(t->h2.at, t->statistics.at + 2 * rows, t->x2.at, &l->ln2_gain, &l->ln2_bias, rows,
                  dim);
        linear(&l->fc, &t->h2, &t->wide);
        gelu(t->active.at, t->wide.at, rows * 4 * dim);
        linear(&l->fc2, &t->active, &a->delta);
        add(next, t->x2.at, a->delta.at, rows * dim);
    }
    normalize(a->hf.at, a->statistics.at, a->xf.at, &m->lnf_gain, &m->lnf_bias, rows, dim);
    linear(&m->head, &a->hf, &a->logits);
}

/* From the gradient in a->logits to the gradients of all parameters. a->dx is the one of the residual stream. */
static void backward(Model* m, Acts* a) {
    const int64_t rows = a->rows, dim = opt.dim;
    TRY(mp_optimizer_zero_grad(m->optimizer, NULL)); /* our loops add to gradients */
    memset(a->dx.at, 0, sizeof(float) * (size_t)(rows * dim));
    linear_backward(&m->head, &a->logits, &a->dh);
    normalize_backward(a->dx.at, a->dh.at, a->xf.at, a->statistics.at, &m->lnf_gain, &m->lnf_bias,
                       rows, dim);
    for (int64_t i = opt.layers - 1; i >= 0; i--) {
        const Layer* l = &m->layers[i];
        LayerActs* t = &a->layers[i];
        linear_backward(&l->fc2, &a->dx, &a->dwide);
        gelu_backward(a->dwide.at, t->wide.at, rows * 4 * dim);
        linear_backward(&l->fc, &a->dwide, &a->dh);
        normalize_backward(a->dx.at, a->dh.at, t->x2.at, t->statistics.at + 2 * rows, &l->ln2_gain,
                           &l->ln2_bias, rows, dim);
        linear_backward(&l->proj, &a->dx, &a->dh);
        attend_backward(a->dqkv.at, a->dh.at, t->prob.at, t->qkv.at, a->batch);
        linear_backward(&l->qkv, &a->dqkv, &a->dh);
        normalize_backward(a->dx.at, a->dh.at, t->x1.at, t->statistics.at, &l->ln1_gain,
                           &l->ln1_bias, rows, dim);
    }
    embed_backward(m->wte.grad.at, m->wpe.grad.at, a->dx.at, a->tokens, rows, opt.context, dim);
}

/* ---- The text: nine tenths to learn from, the rest for validation ---- */

typedef struct {
    uint8_t* bytes;
    int64_t count, train_count;
} Text;

static void fail(const char* what, const char* remedy) {
    fprintf(stderr, "train_gpt: '%s' %s: %s\n", opt.data, what, remedy);
    exit(1);
}

static Text read_text(void) {
    Text text = {NULL, 0, 0};
    FILE* file = fopen(opt.data, "rb");
    if (file == NULL) {
        fail("cannot be opened", strerror(errno));
    }
    for (int64_t room = 1 << 16; text.count == room / 2 || text.bytes == NULL; room *= 2) {
        text.bytes = realloc(text.bytes, (size_t)room);
        if (text.bytes == NULL) {
            fail("does not fit into memory", "pass a shorter text");
        }
        text.count += (int64_t)fread(text.bytes + text.count, 1, (size_t)(room - text.count), file);
    }
    fclose(file);
    text.train_count = text.count - text.count / 10;
    if (text.count / 10 <= opt.context) {
        fail("is too short", "a tenth of it must hold more bytes than --context");
    }
    return text;
}

/* Batch number `index`: the same for the same seed, wherever training was resumed. */
static void read_batch(Acts* a, const Text* text, uint64_t stream, int64_t index) {
    const uint8_t* part = text->bytes + (stream == STREAM_TRAIN ? 0 : text->train_count);
    const int64_t count =
        stream == STREAM_TRAIN ? text->train_count : text->count - text->train_count;
    for (int64_t b = 0; b < a->batch; b++) {
        const uint64_t bits = random_bits(opt.seed, stream, (uint64_t)(index * a->batch + b));
        const uint8_t* start = part + bits % (uint64_t)(count - opt.context);
        memcpy(a->tokens + b * opt.context, start, (size_t)opt.context);
        memcpy(a->targets + b * opt.context, start + 1, (size_t)opt.context);
    }
}

/* ---- Training ---- */

/* Linear warm-up, then half a cosine down to min_lr. Skipped steps do not count. */
static double learning_rate(int64_t taken) {
    if (taken < opt.warmup) {
        return opt.lr * (double)(taken + 1) / (double)opt.warmup;
    }
    const double length = (double)(opt.steps > opt.warmup ? opt.steps - opt.warmup : 1);
    const double part = (double)(taken - opt.warmup) / length;
    return opt.min_lr + 0.5 * (opt.lr - opt.min_lr) * (1.0 + cos(3.14159265358979323846 * part));
}

/* The loss of one batch, after which the parameters have learnt from it. */
static double train_step(Model* m, Acts* a, double* scale) {
    TRY(mp_scaler_get_scale(m->scaler, NULL, scale));
    forward(m, a);
    const double loss = cross_entropy(a->logits.at, a->targets, a->rows, *scale);
    backward(m, a);
    TRY(mp_optimizer_set_lr(m->optimizer, -1, learning_rate(m->progress.step)));
    /* Divides the gradients by the scale, clips their norm, and leaves everything alone if one is not finite. */
    TRY(mp_optimizer_step(m->optimizer, NULL, m->scaler));
    TRY(mp_scaler_update(m->scaler, NULL));
    TRY(mp_optimizer_get_stats(m->optimizer, NULL, &m->progress));
    return loss;
}

static double validate(Model* m, Acts* a, const Text* text) {
    double loss = 0.0;
    for (int64_t i = 0; i < VALIDATION_BATCHES; i++) {
        read_batch(a, text, STREAM_VALIDATION, i);
        forward(m, a);
        loss += cross_entropy(a->logits.at, a->targets, a->rows, 1.0) / VALIDATION_BATCHES;
    }
    return loss;
}

/* The most likely byte would repeat itself: each is drawn from softmax(logits / 0.8). */
static uint8_t draw(const float* logits, double uniform) {
    double weights[BYTES], top = -INFINITY, sum = 0.0;
    for (int i = 0; i < BYTES; i++) {
        top = fmax(top, (double)logits[i]);
    }
    for (int i = 0; i < BYTES; i++) {
        weights[i] = exp(((double)logits[i] - top) / 0.8);
        sum += weights[i];
    }
    int byte = 0;
    for (double left = uniform * sum; byte < BYTES - 1 && left >= weights[byte]; byte++) {
        left -= weights[byte];
    }
    return (uint8_t)byte;
}

static void print_byte(uint8_t byte) {
    if (byte == '\n' || (byte >= ' ' && byte < 127)) {
        putchar(byte);
    } else {
        printf("\\x%02x", (unsigned)byte); /* half a character of UTF-8, say */
    }
}

/* Goes on from the first bytes of the validation text. */
static void print_sample(Model* m, const Text* text) {
    Acts* a = create_acts(m, 1);
    int64_t seen = opt.context < 16 ? opt.context : 16;
    memcpy(a->tokens, text->bytes + text->train_count, (size_t)seen);
    puts("--- sample ---");
    for (int64_t i = 0; i < seen; i++) {
        print_byte(a->tokens[i]);
    }
    for (int64_t i = 0; i < SAMPLE; i++) {
        forward(m, a);
        const uint64_t bits = random_bits(opt.seed, STREAM_SAMPLE, (uint64_t)i);
        const uint8_t byte =
            draw(a->logits.at + (seen - 1) * BYTES, (double)(bits >> 11) * 0x1p-53);
        print_byte(byte);
        if (seen == opt.context) {
            memmove(a->tokens, a->tokens + 1, (size_t)--seen);
        }
        a->tokens[seen++] = byte;
    }
    putchar('\n');
    destroy_acts(a);
}

/* ---- Checkpoints: weights, states, loss scale, fp8 scales, and the number of the next step ---- */

static mp_checkpoint* create_checkpoint(Model* m, int64_t* next_step) {
    mp_checkpoint* checkpoint = NULL;
    TRY(mp_checkpoint_create(m->context, NULL, NULL, &checkpoint));
    TRY(mp_checkpoint_add_optimizer(checkpoint, m->optimizer));
    TRY(mp_checkpoint_add_scaler(checkpoint, m->scaler));
    for (int32_t i = 0; i < m->linear_count; i++) {
        char name[24];
        snprintf(name, sizeof name, "linear%d", (int)i);
        TRY(mp_checkpoint_add_linear(checkpoint, name, m->linears[i]));
    }
    TRY(mp_checkpoint_add_data(checkpoint, "next_step", next_step, sizeof *next_step));
    return checkpoint;
}

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void train(Model* m, const Text* text) {
    Acts* a = create_acts(m, opt.batch);
    int64_t next_step = 0;
    mp_checkpoint* checkpoint = create_checkpoint(m, &next_step);
    if (opt.resume != NULL) {
        TRY(mp_checkpoint_load(checkpoint, opt.resume, 0, NULL));
        TRY(mp_optimizer_get_stats(m->optimizer, NULL, &m->progress));
        printf("resumed after step %lld\n", (long long)next_step);
    }
    double start = seconds();
    int64_t counted = 0;
    while (next_step < opt.steps) {
        double scale = 1.0;
        read_batch(a, text, STREAM_TRAIN, next_step);
        const double loss = train_step(m, a, &scale);
        next_step++;
        counted++;
        if (next_step % opt.print == 0 || next_step == opt.steps) {
            const double now = seconds();
            printf("step %5lld/%lld  loss %.6f  norm %.4f  scale %g  skipped %lld  %.0f tokens/s\n",
                   (long long)next_step, (long long)opt.steps, loss, m->progress.grad_norm, scale,
                   (long long)m->progress.skipped_steps,
                   (double)(counted * a->rows) / (now - start));
            fflush(stdout);
            start = now;
            counted = 0;
        }
        if (opt.checkpoint != NULL && (next_step % opt.every == 0 || next_step == opt.steps)) {
            TRY(mp_checkpoint_wait(
                checkpoint)); /* for the one before: they are written while training goes on */
            TRY(mp_checkpoint_save(checkpoint, opt.checkpoint, next_step, MP_SAVE_BACKGROUND));
        }
    }
    TRY(mp_checkpoint_wait(checkpoint));
    mp_checkpoint_destroy(checkpoint);
    printf("validation loss %.4f\n", validate(m, a, text));
    destroy_acts(a);
}

/* ---- The command line ---- */

/* One of the three pointers says where the value goes. */
typedef struct {
    const char* name;
    const char** text;
    int64_t* whole;
    double* real;
    double low, high;
    const char* help;
} Option;

/* clang-format off */
static const Option options[] = {
    {"--data", &opt.data, NULL, NULL, 0, 0, "FILE to learn from, any bytes"},
    {"--recipe", &opt.recipe, NULL, NULL, 0, 0, "NAME of a precision (fp32): see --list-recipes"},
    {"--steps", NULL, &opt.steps, NULL, 1, 1e9, "optimizer steps (100)"},
    {"--batch", NULL, &opt.batch, NULL, 1, 65536, "texts in a step (8)"},
    {"--context", NULL, &opt.context, NULL, 1, MAX_CONTEXT, "bytes seen at once (64)"},
    {"--layers", NULL, &opt.layers, NULL, 1, MAX_LAYERS, "transformer layers (4)"},
    {"--dim", NULL, &opt.dim, NULL, 1, 65536, "width, a multiple of --heads (128)"},
    {"--heads", NULL, &opt.heads, NULL, 1, 1024, "attention heads (4)"},
    {"--lr", NULL, NULL, &opt.lr, 0, 1e6, "highest learning rate (1e-3)"},
    {"--min-lr", NULL, NULL, &opt.min_lr, 0, 1e6, "learning rate at the end (1e-4)"},
    {"--warmup", NULL, &opt.warmup, NULL, 0, 1e9, "steps of linear warm-up (10)"},
    {"--seed", NULL, &opt.seed, NULL, 0, 9e15, "of weights, batches and the sample (1)"},
    {"--print", NULL, &opt.print, NULL, 1, 1e9, "steps between lines (10)"},
    {"--checkpoint", &opt.checkpoint, NULL, NULL, 0, 0, "FOLDER for checkpoints"},
    {"--every", NULL, &opt.every, NULL, 1, 1e9, "steps between checkpoints (100)"},
    {"--resume", &opt.resume, NULL, NULL, 0, 0, "FOLDER to go on from, with the other options as they were"},
};
/* clang-format on */
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

static void usage_error(const char* option, const char* expected, const char* came) {
    fprintf(stderr, "train_gpt: %s wants %s, not '%s'. train_gpt --help lists the options\n",
            option, expected, came);
    exit(2);
}

static void parse_value(const Option* option, const char* value) {
    char *end = NULL, expected[64];
    if (option->text != NULL) {
        *option->text = value;
        return;
    }
    const bool whole = option->whole != NULL;
    const double number = whole ? (double)strtoll(value, &end, 10) : strtod(value, &end);
    if (end == value || *end != '\0' || !(number >= option->low && number <= option->high)) {
        snprintf(expected, sizeof expected, "a %snumber from %g to %g", whole ? "whole " : "",
                 option->low, option->high);
        usage_error(option->name, expected, value);
    }
    if (whole) {
        *option->whole = (int64_t)number;
    } else {
        *option->real = number;
    }
}

static void print_help(void) {
    puts("usage: train_gpt --data FILE [options]");
    for (int i = 0; i < OPTION_COUNT; i++) {
        printf("  %-14s %s\n", options[i].name, options[i].help);
    }
    puts("  --list-recipes the precisions\nExit codes: 0 done, 1 failed, 2 wrong usage.");
}

static void print_recipes(void) {
    for (int32_t i = 0; i < mp_recipe_preset_count(); i++) {
        const char *name = NULL, *text = NULL;
        TRY(mp_recipe_get_preset_info(i, &name, &text));
        printf("%-26s %s\n", name, text);
    }
}

static void parse(int argc, char** argv) {
    for (int i = 1; i < argc; i++) {
        const bool help = strcmp(argv[i], "--help") == 0;
        if (help || strcmp(argv[i], "--list-recipes") == 0) {
            (help ? print_help : print_recipes)();
            exit(0);
        }
        int k = 0;
        while (k < OPTION_COUNT && strcmp(argv[i], options[k].name) != 0) {
            k++;
        }
        if (k == OPTION_COUNT) {
            usage_error("the command line", "options that --help lists", argv[i]);
        }
        if (i + 1 == argc) {
            usage_error(argv[i], "a value behind it", "");
        }
        parse_value(&options[k], argv[++i]);
    }
    if (opt.data == NULL) {
        usage_error("--data", "a text file: --data FILE", "");
    }
    if (opt.dim % opt.heads != 0) {
        usage_error("--dim", "a multiple of --heads", "a width that the heads cannot share");
    }
}

int main(int argc, char** argv) {
    static Model model;
    parse(argc, argv);
    const Text text = read_text();
    create_model(&model);
    mp_memory_report memory = {.struct_size = sizeof memory};
    TRY(mp_optimizer_get_memory(model.optimizer, &memory));
    printf("%lld parameters; weights, gradients and states take %.2f bytes for each\n",
           (long long)memory.parameter_count,
           (double)memory.total_bytes / (double)memory.parameter_count);
    train(&model, &text);
    print_sample(&model, &text);
    destroy_model(&model);
    free(text.bytes);
}
