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

/* ---- The model's arrays */

static float embed[BYTES * EMBED], embed_grad[BYTES * EMBED];
static float bias1[HIDDEN], bias1_grad[HIDDEN], bias2[BYTES], bias2_grad[BYTES];
static float values1[HIDDEN * IN], values2[BYTES * HIDDEN];
static float x[BATCH * IN], dx[BATCH * IN], h[BATCH * HIDDEN], dh[BATCH * HIDDEN];
static float logits[BATCH * BYTES], dlogits[BATCH * BYTES];

static mp_context* context;

static mp_tensor* wrap(float* data, int64_t rows, int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.dtype = MP_DTYPE_FP32;
    desc.ndim = columns ? 2 : 1;
    desc.shape[0] = rows;
    desc.shape[1] = columns;
    check(mp_tensor_wrap(context, &desc, data, NULL, NULL, &tensor));
    return tensor;
}

static int32_t add_param(mp_optimizer* optimizer, int32_t group, const char* name, mp_tensor* param,
                         mp_tensor* grad, mp_tensor* initial) {
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    int32_t index = 0;
    desc.name = name;
    desc.param = param;
    desc.grad = grad;
    desc.init_fp32 = initial;
    check(mp_optimizer_add_param(optimizer, group, &desc, &index));
    return index;
}

static mp_linear* make_linear(mp_recipe* recipe, int64_t in, int64_t out, mp_tensor* weight,
                              mp_tensor* bias) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    mp_linear* linear = NULL;
    desc.in_features = in;
    desc.out_features = out;
    check(mp_linear_create(context, recipe, &desc, weight, bias, &linear));
    return linear;
}

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

int main(int argc, char** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: train TEXT [RECIPE [STEPS [FOLDER]]]\n");
        return 2;
    }
    const char* name = argc > 2 ? argv[2] : "bf16_mixed";
    const int64_t steps = argc > 3 ? atoll(argv[3]) : 60;
    const char* folder = argc > 4 ? argv[4] : NULL;
    int64_t length = 0;
    uint8_t* text = read_file(argv[1], &length);

    mp_recipe* recipe = NULL;
    mp_scaler* scaler = NULL;
    mp_optimizer* optimizer = NULL;
    int32_t group = 0;
    check(mp_context_create(NULL, &context));
    check(mp_recipe_create(context, name, &recipe));
    check(mp_scaler_create_from_recipe(context, recipe, &scaler));
    check(mp_optimizer_create(context, recipe, NULL, &optimizer));
    mp_param_group_desc group_desc = MP_PARAM_GROUP_DESC_INIT;
    group_desc.lr = 1e-2;
    group_desc.weight_decay = 0.01;
    check(mp_optimizer_add_group(optimizer, &group_desc, &group));

    fill(embed, BYTES * EMBED, 1.0);
    fill(values1, HIDDEN * IN, sqrt(1.0 / IN));
    fill(values2, BYTES * HIDDEN, sqrt(1.0 / HIDDEN));
    const int64_t shape1[] = {HIDDEN, IN}, shape2[] = {BYTES, HIDDEN};
    mp_tensor *w1 = NULL, *w2 = NULL, *dw1 = NULL, *dw2 = NULL;
    check(mp_recipe_create_weight(context, recipe, 2, shape1, values1, &w1));
    check(mp_recipe_create_weight(context, recipe, 2, shape2, values2, &w2));
    mp_tensor* v1 = wrap(values1, HIDDEN, IN);
    mp_tensor* v2 = wrap(values2, BYTES, HIDDEN);
    mp_tensor *t_embed = wrap(embed, BYTES, EMBED), *t_embed_grad = wrap(embed_grad, BYTES, EMBED);
    mp_tensor *b1 = wrap(bias1, HIDDEN, 0), *db1 = wrap(bias1_grad, HIDDEN, 0);
    mp_tensor *b2 = wrap(bias2, BYTES, 0), *db2 = wrap(bias2_grad, BYTES, 0);
    add_param(optimizer, group, "embed", t_embed, t_embed_grad, NULL);
    check(mp_optimizer_get_state(optimizer, add_param(optimizer, group, "w1", w1, NULL, v1), "grad",
                                 &dw1));
    add_param(optimizer, group, "b1", b1, db1, NULL);
    check(mp_optimizer_get_state(optimizer, add_param(optimizer, group, "w2", w2, NULL, v2), "grad",
                                 &dw2));
    add_param(optimizer, group, "b2", b2, db2, NULL);
    mp_linear* linear1 = make_linear(recipe, IN, HIDDEN, w1, b1);
    mp_linear* linear2 = make_linear(recipe, HIDDEN, BYTES, w2, b2);
    mp_linear* linears[] = {linear1, linear2};
    check(mp_optimizer_set_linears(optimizer, linears, 2));

    mp_tensor *t_x = wrap(x, BATCH, IN), *t_dx = wrap(dx, BATCH, IN);
    mp_tensor *t_h = wrap(h, BATCH, HIDDEN), *t_dh = wrap(dh, BATCH, HIDDEN);
    mp_tensor *t_logits = wrap(logits, BATCH, BYTES), *t_dlogits = wrap(dlogits, BATCH, BYTES);

    mp_checkpoint* checkpoint = NULL;
    int64_t step = 0;
    if (folder != NULL) {
        mp_checkpoint_info info = MP_CHECKPOINT_INFO_INIT;
        check(mp_checkpoint_create(context, NULL, NULL, &checkpoint));
        check(mp_checkpoint_add_optimizer(checkpoint, optimizer));
        check(mp_checkpoint_add_scaler(checkpoint, scaler));
        check(mp_checkpoint_add_linear(checkpoint, "linear1", linear1));
        check(mp_checkpoint_add_linear(checkpoint, "linear2", linear2));
        check(mp_checkpoint_add_data(checkpoint, "random", &random_state, sizeof(random_state)));
        if (mp_checkpoint_inspect(folder, &info) >= 0) {
            check(mp_checkpoint_load(checkpoint, folder, 0, &info));
            step = info.step;
            printf("resumed at step %d\n", (int)step);
        }
    }

    while (step < steps) {
        int64_t position[BATCH];
        double scale = 0.0, loss = 0.0;
        check(mp_scaler_get_scale(scaler, NULL, &scale));
        for (int r = 0; r < BATCH; r++) {
            position[r] = next_random() % (length - CONTEXT);
            for (int c = 0; c < CONTEXT; c++) {
                memcpy(x + r * IN + c * EMBED, embed + text[position[r] + c] * EMBED,
                       EMBED * sizeof(float));
            }
        }
        check(mp_linear_forward(linear1, NULL, t_x, t_h));
        for (int i = 0; i < BATCH * HIDDEN; i++) {
            h[i] = h[i] > 0.0f ? h[i] : 0.0f;
        }
        check(mp_linear_forward(linear2, NULL, t_h, t_logits));
        for (int r = 0; r < BATCH; r++) {
            loss += cross_entropy(logits + r * BYTES, text[position[r] + CONTEXT], scale / BATCH,
                                  dlogits + r * BYTES);
        }

        check(mp_linear_backward(linear2, NULL, t_dlogits, t_dh, dw2, db2, 0));
        for (int i = 0; i < BATCH * HIDDEN; i++) {
            dh[i] = h[i] > 0.0f ? dh[i] : 0.0f;
        }
        check(mp_linear_backward(linear1, NULL, t_dh, t_dx, dw1, db1, 0));
        memset(embed_grad, 0, sizeof(embed_grad));
        for (int r = 0; r < BATCH; r++) {
            for (int i = 0; i < IN; i++) {
                embed_grad[text[position[r] + i / EMBED] * EMBED + i % EMBED] += dx[r * IN + i];
            }
        }
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

    mp_checkpoint_destroy(checkpoint);
    mp_tensor* tensors[] = {w1,  w2, dw1, dw2, v1,   v2,  t_embed, t_embed_grad, b1,
                            db1, b2, db2, t_x, t_dx, t_h, t_dh,    t_logits,     t_dlogits};
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        mp_tensor_destroy(tensors[i]);
    }
    mp_linear_destroy(linear1);
    mp_linear_destroy(linear2);
    mp_optimizer_destroy(optimizer);
    mp_scaler_destroy(scaler);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    free(text);
    return 0;
}
