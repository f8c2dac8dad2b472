/* SPDX-License-Identifier: Apache-2.0
 *
 * A small language model on bytes, the same in every language: same text, same seed, same losses to the last digit.
 *
 *   train TEXT [RECIPE [STEPS [FOLDER]]]        recipe bf16_mixed, 60 steps; FOLDER: resume from there, save there
 *
 * Model: the last 8 bytes, each by an embedding of 16 -> linear 128 -> 128, bias, relu -> linear 128 -> 256, bias ->
 * softmax. The two products are the library's, in the recipe's dtypes; what is between them is here, in fp32, the loss in
 * double. Random numbers: s = 48271 s mod (2^31 - 1). */
#include <math.h>
#include <mixedprec.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 8, EMBED = 16, HIDDEN = 128, BYTES = 256, BATCH = 32, IN = CONTEXT * EMBED };

static void check(mp_status status) {
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", mp_status_string(status), mp_last_error_message());
        exit(1);
    }
}

/* ---- Random numbers and data */

static int64_t random_state = 1234;

static int64_t next_random(void) { return random_state = random_state * 48271 % 2147483647; }

static void fill(float* values, int64_t count, double bound) {
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)((2.0 * ((double)next_random() / 2147483647.0) - 1.0) * bound);
    }
}

static uint8_t* read_file(const char* path, int64_t* length) {
    FILE* file = fopen(path, "rb");
    if (file == NULL) {
        perror(path), exit(1);
    }
    fseek(file, 0, SEEK_END);
    *length = ftell(file);
    rewind(file);
    uint8_t* text = malloc((size_t)*length + 1);
    if (text == NULL || fread(text, 1, (size_t)*length, file) != (size_t)*length) {
        perror(path), exit(1);
    }
    fclose(file);
    return text;
}

/* ---- The model */

static float embed[BYTES * EMBED], embed_grad[BYTES * EMBED];
static float x[BATCH * IN], dx[BATCH * IN], h[BATCH * HIDDEN], dh[BATCH * HIDDEN];
static float logits[BATCH * BYTES], dlogits[BATCH * BYTES];
static float values1[HIDDEN * IN], bias1[HIDDEN], bias1_grad[HIDDEN];
static float values2[BYTES * HIDDEN], bias2[BYTES], bias2_grad[BYTES];

static mp_context* context;
static mp_recipe* recipe;
static mp_scaler* scaler;
static mp_optimizer* optimizer;
static mp_checkpoint* checkpoint;
static mp_tensor *t_x, *t_dx, *t_h, *t_dh, *t_logits, *t_dlogits;

/* A linear layer of the program's arrays; the tensors and the layer are made of them. */
typedef struct {
    const char *name, *weight_name, *bias_name;
    int64_t in, out;
    float *values, *bias, *bias_grad;
    mp_tensor *dw, *db;
    mp_linear* linear;
} layer;

static layer layers[] = {
    {"linear1", "w1", "b1", IN, HIDDEN, values1, bias1, bias1_grad, NULL, NULL, NULL},
    {"linear2", "w2", "b2", HIDDEN, BYTES, values2, bias2, bias2_grad, NULL, NULL, NULL}};

/* Tensors that are destroyed at the end. */
static mp_tensor* owned[18];
static int owned_count;

static mp_tensor* own(mp_tensor* tensor) { return owned[owned_count++] = tensor; }

static mp_tensor* wrap(float* data, int64_t rows, int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.dtype = MP_DTYPE_FP32;
    desc.ndim = columns ? 2 : 1;
    desc.shape[0] = rows;
    desc.shape[1] = columns;
    check(mp_tensor_wrap(context, &desc, data, NULL, NULL, &tensor));
    return own(tensor);
}

static int32_t add_param(const char* name, mp_tensor* param, mp_tensor* grad, mp_tensor* initial) {
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    int32_t index = 0;
    desc.name = name;
    desc.param = param;
    desc.grad = grad;
    desc.init_fp32 = initial;
    check(mp_optimizer_add_param(optimizer, 0, &desc, &index));
    return index;
}

static void make_layer(layer* l) {
    const int64_t shape[] = {l->out, l->in};
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    mp_tensor *weight = NULL, *bias = wrap(l->bias, l->out, 0);
    fill(l->values, l->in * l->out, sqrt(1.0 / (double)l->in));
    check(mp_recipe_create_weight(context, recipe, 2, shape, l->values, &weight));
    own(weight);
    l->db = wrap(l->bias_grad, l->out, 0);
    const int32_t index = add_param(l->weight_name, weight, NULL, wrap(l->values, l->out, l->in));
    check(mp_optimizer_get_state(optimizer, index, "grad", &l->dw));
    own(l->dw);
    add_param(l->bias_name, bias, l->db, NULL);
    desc.in_features = l->in;
    desc.out_features = l->out;
    check(mp_linear_create(context, recipe, &desc, weight, bias, &l->linear));
}

static void make_model(const char* recipe_name) {
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    int32_t index = 0;
    check(mp_context_create(NULL, &context));
    check(mp_recipe_create(context, recipe_name, &recipe));
    check(mp_scaler_create_from_recipe(context, recipe, &scaler));
    check(mp_optimizer_create(context, recipe, NULL, &optimizer));
    group.lr = 1e-2;
    group.weight_decay = 0.01;
    check(mp_optimizer_add_group(optimizer, &group, &index));

    fill(embed, BYTES * EMBED, 1.0);
    add_param("embed", wrap(embed, BYTES, EMBED), wrap(embed_grad, BYTES, EMBED), NULL);
    make_layer(&layers[0]);
    make_layer(&layers[1]);
    mp_linear* linears[] = {layers[0].linear, layers[1].linear};
    check(mp_optimizer_set_linears(optimizer, linears, 2));

    t_x = wrap(x, BATCH, IN), t_dx = wrap(dx, BATCH, IN);
    t_h = wrap(h, BATCH, HIDDEN), t_dh = wrap(dh, BATCH, HIDDEN);
    t_logits = wrap(logits, BATCH, BYTES), t_dlogits = wrap(dlogits, BATCH, BYTES);
}

static void destroy_model(void) {
    mp_checkpoint_destroy(checkpoint);
    while (owned_count > 0) {
        mp_tensor_destroy(owned[--owned_count]);
    }
    mp_linear_destroy(layers[0].linear);
    mp_linear_destroy(layers[1].linear);
    mp_optimizer_destroy(optimizer);
    mp_scaler_destroy(scaler);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
}

/* The step that is in the folder, 0 where there is none. */
static int64_t resume(const char* folder) {
    mp_checkpoint_info info = MP_CHECKPOINT_INFO_INIT;
    check(mp_checkpoint_create(context, NULL, NULL, &checkpoint));
    check(mp_checkpoint_add_optimizer(checkpoint, optimizer));
    check(mp_checkpoint_add_scaler(checkpoint, scaler));
    for (int i = 0; i < 2; i++) {
        check(mp_checkpoint_add_linear(checkpoint, layers[i].name, layers[i].linear));
    }
    check(mp_checkpoint_add_data(checkpoint, "random", &random_state, sizeof(random_state)));
    if (mp_checkpoint_inspect(folder, &info) < 0) {
        return 0;
    }
    check(mp_checkpoint_load(checkpoint, folder, 0, &info));
    printf("resumed at step %d\n", (int)info.step);
    return info.step;
}

/* ---- A step */

/* Loss of one row, and its gradient times `factor` in place of nothing else. */
static double cross_entropy(const float* row, int target, double factor, float* gradient) {
    double largest = row[0], sum = 0.0, e[BYTES];
    for (int j = 1; j < BYTES; j++) {
        largest = row[j] > largest ? row[j] : largest;
    }
    for (int j = 0; j < BYTES; j++) {
        e[j] = exp(row[j] - largest);
        sum += e[j];
    }
    for (int j = 0; j < BYTES; j++) {
        gradient[j] = (float)((e[j] / sum - (j == target ? 1.0 : 0.0)) * factor);
    }
    return log(sum) - (row[target] - largest);
}

static void relu_mask(float* values, const float* by) {
    for (int i = 0; i < BATCH * HIDDEN; i++) {
        values[i] = by[i] > 0.0f ? values[i] : 0.0f;
    }
}

/* Loss of a batch of the text, and the gradients times `scale`. */
static double forward_and_backward(const uint8_t* text, int64_t length, double scale) {
    int64_t position[BATCH];
    double loss = 0.0;
    for (int r = 0; r < BATCH; r++) {
        position[r] = next_random() % (length - CONTEXT);
        for (int c = 0; c < CONTEXT; c++) {
            memcpy(x + r * IN + c * EMBED, embed + text[position[r] + c] * EMBED,
                   EMBED * sizeof(float));
        }
    }
    check(mp_linear_forward(layers[0].linear, NULL, t_x, t_h));
    relu_mask(h, h);
    check(mp_linear_forward(layers[1].linear, NULL, t_h, t_logits));
    for (int r = 0; r < BATCH; r++) {
        loss += cross_entropy(logits + r * BYTES, text[position[r] + CONTEXT], scale / BATCH,
                              dlogits + r * BYTES);
    }

    check(
        mp_linear_backward(layers[1].linear, NULL, t_dlogits, t_dh, layers[1].dw, layers[1].db, 0));
    relu_mask(dh, h);
    check(mp_linear_backward(layers[0].linear, NULL, t_dh, t_dx, layers[0].dw, layers[0].db, 0));
    memset(embed_grad, 0, sizeof(embed_grad));
    for (int r = 0; r < BATCH; r++) {
        for (int i = 0; i < IN; i++) {
            embed_grad[text[position[r] + i / EMBED] * EMBED + i % EMBED] += dx[r * IN + i];
        }
    }
    return loss;
}

int main(int argc, char** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: train TEXT [RECIPE [STEPS [FOLDER]]]\n");
        return 2;
    }
    const int64_t steps = argc > 3 ? atoll(argv[3]) : 60;
    const char* folder = argc > 4 ? argv[4] : NULL;
    int64_t length = 0;
    uint8_t* text = read_file(argv[1], &length);
    make_model(argc > 2 ? argv[2] : "bf16_mixed");
    int64_t step = folder != NULL ? resume(folder) : 0;
    while (step < steps) {
        double scale = 0.0;
        check(mp_scaler_get_scale(scaler, NULL, &scale));
        const double loss = forward_and_backward(text, length, scale);
        check(mp_optimizer_step(optimizer, NULL, scaler));
        check(mp_scaler_update(scaler, NULL));
        step++;
        if (step % 10 == 0) {
            printf("step %3d  loss %.9f  scale %.0f\n", (int)step, loss / BATCH, scale);
        }
    }
    if (folder != NULL) {
        check(mp_checkpoint_save(checkpoint, folder, step, 0));
    }
    destroy_model();
    free(text);
    return 0;
}
