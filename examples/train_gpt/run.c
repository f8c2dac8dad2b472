/* SPDX-License-Identifier: Apache-2.0
 * The training loop. */
#include "run.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "progress.h"
#include "random.h"

/* Everything alive while one recipe trains. */
typedef struct {
    const Options* options;
    const Text* text;
    mp_context* context;
    mp_recipe* recipe;
    mp_scaler* scaler;
    Params params;
    Network network;
    uint8_t *tokens, *targets;
    double* step_seconds;
    mp_optimizer_stats stats;
    Monitor monitor;
} Training;

static void print_log(int32_t level, const char* message, void* payload) {
    (void)payload;
    fprintf(stderr, "train_gpt: library %s: %s\n", level == MP_LOG_ERROR ? "error" : "warning",
            message);
}

static bool create_recipe(Training* t, const char* name) {
    const size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".json") == 0) {
        TRY(mp_recipe_create_from_file(t->context, name, &t->recipe));
    } else {
        TRY(mp_recipe_create(t->context, name, &t->recipe));
    }
    char reason[256];
    TRY(mp_recipe_reason(t->recipe, reason, sizeof reason, NULL));
    if (reason[0] != '\0') {
        printf("%s: %s\n", name, reason);
    }
    return true;
}

static bool create(Training* t, Run* run) {
    const Options* o = t->options;
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = (int32_t)o->threads;
    desc.backend = o->backend;
    desc.log = print_log;
    TRY(mp_context_create(&desc, &t->context));
    TRY(mp_context_num_threads(t->context, &run->threads));
    omp_set_num_threads(run->threads);
    TRY_OWN(create_recipe(t, run->recipe));
    TRY(mp_scaler_create_from_recipe(t->context, t->recipe, &t->scaler));
    TRY_OWN(params_create(&t->params, t->context, t->recipe, o));
    TRY_OWN(network_create(&t->network, &t->params, o, o->batch, false));
    const size_t tokens = (size_t)(o->batch * o->context), steps = (size_t)o->steps;
    t->tokens = malloc(tokens);
    t->targets = malloc(tokens);
    t->step_seconds = malloc(sizeof(double) * steps);
    run->losses = calloc(steps, sizeof(float));
    run->val_losses = calloc(steps, sizeof(float));
    if (t->tokens == NULL || t->targets == NULL || t->step_seconds == NULL || run->losses == NULL ||
        run->val_losses == NULL) {
        fputs("train_gpt: out of memory for the curves\n", stderr);
        return false;
    }
    run->expected.struct_size = sizeof run->expected;
    run->measured.struct_size = sizeof run->measured;
    options_memory(o, &run->parameter_count);
    TRY_OWN(params_expected_memory(&t->params, &run->expected));
    TRY(mp_optimizer_memory(t->params.optimizer, &run->measured));
    t->stats.struct_size = sizeof t->stats;
    return monitor_start(&t->monitor, o, run->recipe, &t->network);
}

static void destroy(Training* t) {
    monitor_stop(&t->monitor);
    network_destroy(&t->network);
    params_destroy(&t->params);
    mp_scaler_destroy(t->scaler);
    mp_recipe_destroy(t->recipe);
    mp_context_destroy(t->context);
    free(t->tokens);
    free(t->targets);
    free(t->step_seconds);
}

/* Linear warm-up, then half a cosine. `taken` are the steps really taken: a skipped one does not count. */
static double learning_rate(const Options* o, int64_t taken) {
    if (taken < o->warmup) {
        return o->lr * (double)(taken + 1) / (double)o->warmup;
    }
    const int64_t length = o->steps > o->warmup ? o->steps - o->warmup : 1;
    const double progress = (double)(taken - o->warmup) / (double)length;
    return o->min_lr + 0.5 * (o->lr - o->min_lr) * (1.0 + cos(3.14159265358979323846 * progress));
}

static bool train_step(Training* t, int64_t step, double* loss, double* scale) {
    const Options* o = t->options;
    TRY(mp_optimizer_set_lr(t->params.optimizer, -1, learning_rate(o, t->stats.step)));
    TRY(mp_scaler_scale(t->scaler, NULL, scale));
    *loss = 0.0;
    for (int64_t pass = 0; pass < o->accum; pass++) {
        double one = 0.0;
        text_batch(t->text, o, STREAM_TRAIN, step * o->accum + pass, t->tokens, t->targets);
        TRY_OWN(network_forward(&t->network, t->tokens, t->targets,
                                (float)(*scale / (double)o->accum), &one));
        TRY_OWN(network_backward(&t->network, t->tokens, pass == 0));
        *loss += one / (double)o->accum;
    }
    TRY(mp_optimizer_step(t->params.optimizer, NULL, t->scaler));
    TRY(mp_scaler_update(t->scaler, NULL));
    t->monitor.step = step + 1;
    TRY_OWN(network_end_step(&t->network));
    TRY(mp_optimizer_get_stats(t->params.optimizer, NULL, &t->stats));
    return params_refresh(&t->params);
}

static bool validation_passes(Training* t, double* loss) {
    const Options* o = t->options;
    *loss = 0.0;
    for (int64_t i = 0; i < o->val_batches; i++) {
        double one = 0.0;
        text_batch(t->text, o, STREAM_VAL, i, t->tokens, t->targets);
        TRY_OWN(network_forward(&t->network, t->tokens, t->targets, 0.0f, &one));
        *loss += one / (double)o->val_batches;
    }
    return true;
}

/* What the layers see here must not move the scales of the training that goes on behind it. */
static bool validate(Training* t, double* loss) {
    unsigned char* scaling = NULL;
    const bool good = network_save_scaling(&t->network, &scaling) && validation_passes(t, loss) &&
                      network_load_scaling(&t->network, scaling);
    free(scaling);
    return good;
}

enum { MOST_BAD_LOSSES = 10 };

static bool train(Training* t, Run* run) {
    const Options* o = t->options;
    double training = 0.0;
    int64_t bad = 0;
    Progress progress;
    progress_begin(&progress, run->recipe, o->steps);
    for (int64_t step = 0; step < o->steps && !interrupted; step++) {
        double loss = 0.0, scale = 0.0, val = NAN;
        const double start = omp_get_wtime();
        TRY_OWN(train_step(t, step, &loss, &scale));
        t->step_seconds[step] = omp_get_wtime() - start;
        training += t->step_seconds[step];
        if (o->val_every > 0 && (step + 1) % o->val_every == 0) {
            TRY_OWN(validate(t, &val));
        }
        run->losses[step] = (float)loss;
        run->val_losses[step] = (float)val;
        run->steps = step + 1;
        run->skipped = t->stats.skipped_steps;
        run->tokens_per_second = (double)(run->steps * o->accum * o->batch * o->context) / training;
        progress_update(&progress, run->steps, loss, run->tokens_per_second, scale,
                        t->stats.grad_norm, run->skipped);
        bad = isfinite(loss) ? 0 : bad + 1;
        if (bad >= MOST_BAD_LOSSES) {
            progress_end(&progress);
            fprintf(stderr,
                    "train_gpt: %s: the last %d losses are not finite; try a smaller --lr or a "
                    "longer --warmup\n",
                    run->recipe, MOST_BAD_LOSSES);
            return false;
        }
    }
    progress_end(&progress);
    return true;
}

static int compare_doubles(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static void summarize(Training* t, Run* run) {
    const int64_t last = run->steps < 20 ? run->steps : 20;
    if (last == 0) {
        return;
    }
    for (int64_t i = run->steps - last; i < run->steps; i++) {
        run->train_loss += (double)run->losses[i] / (double)last;
    }
    qsort(t->step_seconds, (size_t)run->steps, sizeof(double), compare_doubles);
    run->step_seconds = t->step_seconds[run->steps / 2];
}

/* The most this process had resident: VmHWM where there is /proc, because getrusage's number survives exec. */
static int64_t peak_memory(void) {
    long long kib = -1;
    char line[256];
    FILE* file = fopen("/proc/self/status", "r");
    while (file != NULL && kib < 0 && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmHWM: %lld kB", &kib) != 1) {
            kib = -1;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    struct rusage usage;
    if (kib < 0 && getrusage(RUSAGE_SELF, &usage) == 0) {
        kib = (long long)usage.ru_maxrss;
    }
    return (int64_t)kib * 1024;
}

bool run_recipe(Run* run, const Options* options, const Text* text, const char* recipe) {
    Training t = {.options = options, .text = text};
    memset(run, 0, sizeof *run);
    snprintf(run->recipe, sizeof run->recipe, "%s", recipe);
    run->val_loss = NAN;
    bool good = create(&t, run) && train(&t, run);
    summarize(&t, run);
    if (good && !interrupted) {
        good = validate(&t, &run->val_loss);
    }
    run->peak_memory = peak_memory();
    if (good && !interrupted) {
        run->val_losses[run->steps - 1] = (float)run->val_loss;
        good = (options->save == NULL || params_save(&t.params, options, options->save)) &&
               (options->sample == 0 || run_sample(run, &t.params, &t.network, options, text));
    }
    good = monitor_finish(&t.monitor) && good;
    run->points = monitor_points(&t.monitor, &run->point_count);
    run->outcome = !good ? RUN_FAILED : interrupted ? RUN_INTERRUPTED : RUN_DONE;
    destroy(&t);
    return good;
}

void run_free(Run* run) {
    free(run->losses);
    free(run->val_losses);
    free(run->points);
    free(run->sample);
    memset(run, 0, sizeof *run);
}
