/* SPDX-License-Identifier: Apache-2.0
 * Making the parameters and their optimizer, and moving own kernels' parameters between fp32 and the recipe's types. */
#include "params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

static void add(Params* params, Param p) { params->list[params->count++] = p; }

/* `prefix` is "h3." or "". */
static void add_matrix(Params* params, const char* prefix, const char* name, int64_t rows,
                       int64_t cols, double std, bool own) {
    Param p = {.rows = rows, .cols = cols, .std = std, .own_kernels = own};
    snprintf(p.name, sizeof p.name, "%s%s", prefix, name);
    add(params, p);
}

static void add_vector(Params* params, const char* prefix, const char* name, int64_t rows,
                       float constant, bool own) {
    Param p = {.rows = rows, .constant = constant, .own_kernels = own};
    snprintf(p.name, sizeof p.name, "%s%s", prefix, name);
    add(params, p);
}

/* GPT-2's initial values: deviation 0.02, for matrices that write into the residual stream 0.02 / sqrt(2 layers). */
static void list_params(Params* params, const Options* o) {
    const int64_t dim = o->dim;
    const double residual = 0.02 / sqrt(2.0 * (double)o->layers);
    add_matrix(params, "", "wte", 256, dim, 0.02, true);
    add_matrix(params, "", "wpe", o->context, dim, 0.02, true);
    for (int64_t block = 0; block < o->layers; block++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "h%d.", (int)block);
        add_vector(params, prefix, "ln1.gain", dim, 1.0f, true);
        add_vector(params, prefix, "ln1.bias", dim, 0.0f, true);
        add_matrix(params, prefix, "qkv.weight", 3 * dim, dim, 0.02, false);
        add_vector(params, prefix, "qkv.bias", 3 * dim, 0.0f, false);
        add_matrix(params, prefix, "proj.weight", dim, dim, residual, false);
        add_vector(params, prefix, "proj.bias", dim, 0.0f, false);
        add_vector(params, prefix, "ln2.gain", dim, 1.0f, true);
        add_vector(params, prefix, "ln2.bias", dim, 0.0f, true);
        add_matrix(params, prefix, "fc.weight", 4 * dim, dim, 0.02, false);
        add_vector(params, prefix, "fc.bias", 4 * dim, 0.0f, false);
        add_matrix(params, prefix, "fc2.weight", dim, 4 * dim, residual, false);
        add_vector(params, prefix, "fc2.bias", dim, 0.0f, false);
    }
    add_vector(params, "", "lnf.gain", dim, 1.0f, true);
    add_vector(params, "", "lnf.bias", dim, 0.0f, true);
    add_matrix(params, "", "head.weight", 256, dim, 0.02, false);
}

static int64_t elements(const Param* p) { return p->rows * (p->cols > 0 ? p->cols : 1); }

/* "bf16", or "fp8_e4m3_scaled". */
static int32_t dtype_by_name(const char* name, bool* scaled) {
    const char* suffix = strstr(name, "_scaled");
    const size_t length = suffix != NULL ? (size_t)(suffix - name) : strlen(name);
    *scaled = suffix != NULL;
    for (int32_t dtype = MP_DTYPE_FP32; dtype <= MP_DTYPE_FP8_E5M2; dtype++) {
        const char* known = mp_dtype_name(dtype);
        if (strlen(known) == length && strncmp(known, name, length) == 0) {
            return dtype;
        }
    }
    return MP_DTYPE_NONE;
}

/* Whether the parameter is stored as the recipe says; in fp32 otherwise. */
static bool is_in_recipe(const Params* params, const Param* p) {
    return !params->matrices_only || (p->cols > 0 && !p->own_kernels);
}

/* Group 0: matrices, with weight decay. Group 1: vectors, without. */
static bool create_optimizer(Params* params) {
    const Options* o = params->options;
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.seed = (uint64_t)o->seed;
    desc.max_grad_norm = o->clip;
    TRY_OWN(params_create_optimizer(params, &desc));
    for (int group = 0; group < 2; group++) {
        mp_param_group_desc g = MP_PARAM_GROUP_DESC_INIT;
        g.lr = o->lr;
        g.beta1 = o->beta1;
        g.beta2 = o->beta2;
        g.eps = o->eps;
        g.weight_decay = group == 0 ? o->weight_decay : 0.0;
        int32_t index = 0;
        const mp_status status = mp_optimizer_add_group(params->optimizer, &g, &index);
        if (status == MP_STATUS_WARNING && group == 0 && params->ranks->rank == 0) {
            fprintf(stderr, "train_gpt: note: %s\n", mp_last_error_message());
        }
        TRY_STATUS(status, "mp_optimizer_add_group");
    }
    return true;
}

static bool create_weight(Params* params, Param* p) {
    const int32_t dtype = is_in_recipe(params, p) ? params->dtype : MP_DTYPE_FP32;
    return params->scaled && is_in_recipe(params, p)
               ? array_create_scaled(&p->weight, params->context, dtype, p->rows, p->cols)
               : array_create(&p->weight, params->context, dtype, p->rows, p->cols);
}

static bool add_to_optimizer(Params* params, Param* p, const Array* initial) {
    TRY_OWN(create_weight(params, p));
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = p->name;
    desc.param = p->weight.tensor;
    desc.init_fp32 = initial->tensor;
    TRY(mp_optimizer_add_param(params->optimizer, p->cols > 0 ? 0 : 1, &desc, &p->index));
    TRY(mp_optimizer_state(params->optimizer, p->index, "grad", &p->grad.tensor));
    TRY(mp_tensor_data(p->grad.tensor, &p->grad.memory));
    p->grad.count = p->weight.count;
    mp_tensor_desc grad = MP_TENSOR_DESC_INIT;
    TRY(mp_tensor_get_desc(p->grad.tensor, &grad));
    if (p->own_kernels && !params->matrices_only && params->dtype != MP_DTYPE_FP32) {
        TRY_OWN(array_create(&p->value, params->context, MP_DTYPE_FP32, p->rows, p->cols));
    }
    if (p->own_kernels && grad.dtype != MP_DTYPE_FP32) {
        TRY_OWN(array_create(&p->gradient, params->context, MP_DTYPE_FP32, p->rows, p->cols));
    }
    return true;
}

static void fill_initial(float* values, const Param* p, uint64_t stream, uint64_t seed) {
    for (int64_t i = 0; i < elements(p); i++) {
        values[i] =
            p->std > 0.0 ? (float)(random_normal(seed, stream, (uint64_t)i) * p->std) : p->constant;
    }
}

static bool create_all(Params* params, const Options* o, float* initial, bool loaded) {
    const char* name = NULL;
    TRY(mp_recipe_get_string(params->recipe, MP_RECIPE_WEIGHT_DTYPE, &name));
    params->dtype = dtype_by_name(name, &params->scaled);
    if (params->dtype == MP_DTYPE_NONE) {
        fprintf(stderr,
                "train_gpt: the recipe stores weights as %s, which this program cannot use\n",
                name);
        return false;
    }
    bool scaled_gradients = false;
    TRY(mp_recipe_get_string(params->recipe, MP_RECIPE_GRAD_DTYPE, &name));
    (void)dtype_by_name(name, &scaled_gradients);
    params->matrices_only = params->scaled || scaled_gradients;
    TRY_OWN(create_optimizer(params));
    int64_t offset = 0, largest = 0;
    for (int i = 0; i < params->count; i++) {
        Param* p = &params->list[i];
        if (!loaded) {
            fill_initial(initial + offset, p, STREAM_PARAM + (uint64_t)i, (uint64_t)o->seed);
        }
        Array values = {0};
        const bool added =
            array_wrap(&values, params->context, initial + offset, p->rows, p->cols) &&
            add_to_optimizer(params, p, &values);
        array_destroy(&values);
        TRY_OWN(added);
        offset += elements(p);
        largest = p->own_kernels && elements(p) > largest ? elements(p) : largest;
    }
    TRY_OWN(array_create(&params->scratch, params->context, MP_DTYPE_FP32, largest, 0));
    return params_shard(params) && params_refresh(params);
}

bool params_create(Params* params, mp_context* context, mp_recipe* recipe, const Options* o,
                   const Ranks* ranks) {
    *params = (Params){.options = o, .ranks = ranks, .context = context, .recipe = recipe};
    const size_t count =
        (size_t)(PARAM_BLOCKS + o->layers * PARAMS_PER_BLOCK + PARAMS_BEHIND_BLOCKS);
    params->list = calloc(count, sizeof *params->list);
    if (params->list == NULL) {
        fputs("train_gpt: out of memory for the list of parameters\n", stderr);
        return false;
    }
    list_params(params, o);
    int64_t total = 0;
    options_memory(o, &total);
    float* initial =
        o->init != NULL ? weights_load(o->init, o, total) : malloc(sizeof(float) * (size_t)total);
    if (initial == NULL) {
        if (o->init == NULL) {
            fputs("train_gpt: out of memory for the initial weights\n", stderr);
        }
        return false;
    }
    const bool created = create_all(params, o, initial, o->init != NULL);
    free(initial);
    return created;
}

void params_destroy(Params* params) {
    for (int i = 0; i < params->count; i++) {
        Param* p = &params->list[i];
        array_destroy(&p->weight);
        array_destroy(&p->grad);
        array_destroy(&p->value);
        array_destroy(&p->gradient);
    }
    array_destroy(&params->scratch);
    mp_optimizer_destroy(params->optimizer);
    free(params->list);
    memset(params, 0, sizeof *params);
}

/* The recipe of the parameters that are fp32 beside scaled codes: their gradients and moments have no scales either. */
static bool create_high_precision(const Params* params, mp_recipe** out) {
    static const char* const keys[] = {MP_RECIPE_GRAD_DTYPE, MP_RECIPE_EXP_AVG_DTYPE,
                                       MP_RECIPE_EXP_AVG_SQ_DTYPE};
    TRY(mp_recipe_create(params->context, "fp32", out));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char* name = NULL;
        TRY(mp_recipe_get_string(params->recipe, keys[i], &name));
        if (strstr(name, "_scaled") == NULL) {
            TRY(mp_recipe_set_string(*out, keys[i], name));
        }
    }
    return true;
}

/* Adds what a recipe promises for the parameters that are in the recipe, or for the others. */
static bool add_memory(const Params* params, const mp_recipe* recipe, bool in_recipe,
                       int64_t* counts, mp_memory_report* sum) {
    mp_memory_report part = {.struct_size = sizeof part};
    int64_t tensors = 0;
    for (int i = 0; i < params->count; i++) {
        if (is_in_recipe(params, &params->list[i]) == in_recipe) {
            counts[tensors++] = elements(&params->list[i]);
        }
    }
    TRY(mp_recipe_memory_of_tensors(recipe, MP_RULE_ADAMW, counts, tensors, &part));
    sum->parameter_count += part.parameter_count;
    sum->weight_bytes += part.weight_bytes;
    sum->master_bytes += part.master_bytes;
    sum->grad_bytes += part.grad_bytes;
    sum->exp_avg_bytes += part.exp_avg_bytes;
    sum->exp_avg_sq_bytes += part.exp_avg_sq_bytes;
    sum->compensation_bytes += part.compensation_bytes;
    sum->reduced_grad_bytes += part.reduced_grad_bytes;
    sum->total_bytes += part.total_bytes;
    return true;
}

static bool add_all_memory(const Params* params, int64_t* counts, mp_memory_report* report) {
    mp_recipe* high_precision = NULL;
    const bool good = create_high_precision(params, &high_precision) &&
                      add_memory(params, params->recipe, true, counts, report) &&
                      add_memory(params, high_precision, false, counts, report);
    mp_recipe_destroy(high_precision);
    return good;
}

bool params_expected_memory(const Params* params, mp_memory_report* report, bool* known) {
    *report = (mp_memory_report){.struct_size = sizeof *report};
    int64_t* counts = malloc(sizeof(int64_t) * (size_t)params->count);
    if (counts == NULL) {
        fputs("train_gpt: out of memory for the sizes of parameters\n", stderr);
        return false;
    }
    for (int i = 0; i < params->count; i++) {
        counts[i] = elements(&params->list[i]);
    }
    const bool shared = params->ranks->comm != NULL;
    *known = !shared || (!params->matrices_only && params->ranks->count > 1);
    const bool good = !*known  ? true
                      : shared ? params_sharded_memory(params, counts, report)
                               : add_all_memory(params, counts, report);
    free(counts);
    return good;
}

bool params_refresh(Params* params) {
    if (params_come_and_go(params)) {
        return true; /* when they are gathered */
    }
    for (int i = 0; i < params->count; i++) {
        const Param* p = &params->list[i];
        if (p->value.tensor != NULL) {
            TRY(mp_tensor_cast(NULL, p->weight.tensor, p->value.tensor, NULL));
        }
    }
    return true;
}

/* A master weight kept as the 16 bits that a bf16 weight lacks: fp32 bits = (weight << 16) + remainder. */
static void join_remainders(float* values, const uint16_t* weights, const int16_t* remainders,
                            int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = ((uint32_t)weights[i] << 16) + (uint32_t)(int32_t)remainders[i];
        memcpy(&values[i], &bits, sizeof bits);
    }
}

/* Puts together what the optimizer calls "master". */
static bool master_values(const Param* p, const mp_tensor* master, mp_tensor* out, float* values) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    TRY(mp_tensor_get_desc(master, &desc));
    if (desc.dtype != MP_DTYPE_INT16) {
        return tensor_convert(master, out);
    }
    void* remainders = NULL;
    TRY(mp_tensor_data(master, &remainders));
    join_remainders(values, p->weight.memory, remainders, p->weight.count);
    return true;
}

/* The master weight where there is one, else the weight plus what Kahan summation holds back from it. */
static bool exact_values(Params* params, const Param* p, float* values) {
    Array out = {0};
    TRY_OWN(array_wrap(&out, params->context, values, p->rows, p->cols));
    mp_tensor* source = NULL;
    const bool has_master = mp_optimizer_state(params->optimizer, p->index, "master", &source) >= 0;
    const bool converted = has_master ? master_values(p, source, out.tensor, values)
                                      : tensor_convert(p->weight.tensor, out.tensor);
    mp_tensor_destroy(source);
    array_destroy(&out);
    TRY_OWN(converted);
    if (has_master ||
        mp_optimizer_state(params->optimizer, p->index, "compensation", &source) < 0) {
        return true;
    }
    Array rest = {0};
    const bool made = array_create(&rest, params->context, MP_DTYPE_FP32, p->rows, p->cols) &&
                      tensor_convert(source, rest.tensor);
    for (int64_t i = 0; made && i < rest.count; i++) {
        values[i] += floats(&rest)[i];
    }
    mp_tensor_destroy(source);
    array_destroy(&rest);
    return made;
}

bool params_save(Params* params, const Options* o, const char* path) {
    int64_t total = 0, offset = 0;
    options_memory(o, &total);
    float* values = malloc(sizeof(float) * (size_t)total);
    bool good = values != NULL;
    for (int i = 0; good && i < params->count; i++) {
        good = exact_values(params, &params->list[i], values + offset);
        offset += elements(&params->list[i]);
    }
    good = good && weights_save(path, o, values, total);
    free(values);
    return good;
}
