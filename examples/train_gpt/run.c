/* SPDX-License-Identifier: Apache-2.0
 * The training loop. */
#include "run.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"
#include "random.h"
#include "saver.h"

/* Everything alive while one recipe trains. */
typedef struct {
    const Options* options;
    const Text* text;
    const Ranks* ranks;
    mp_context* context;
    mp_recipe* recipe;
    mp_scaler* scaler;
    Params params;
    Network network;
    uint8_t *tokens, *targets;
    double* step_seconds;
    double* pass_losses; /* of a step, or of a validation, over all ranks */
    Sent sent;           /* by this rank */
    bool stop;           /* all ranks are to */
    mp_optimizer_stats stats;
    Monitor monitor;
    Saver saver;
} Training;

static bool is_first(const Training* t) { return t->ranks->rank == 0; }

/* What is the same on every rank is said once. */
static void print_log(int32_t level, const char* message, void* payload) {
    const Ranks* ranks = payload;
    if (ranks->rank > 0 && level != MP_LOG_ERROR) {
        return;
    }
    fprintf(stderr, "train_gpt: library %s: %s\n", level == MP_LOG_ERROR ? "error" : "warning",
            message);
}

/* KEY=VALUE, whatever the key holds; the library checks names and bounds. */
static bool set_key(mp_recipe* recipe, const char* setting) {
    const char* value = strchr(setting, '=') + 1;
    char key[128];
    snprintf(key, sizeof key, "%.*s", (int)(value - 1 - setting), setting);
    mp_recipe_key_desc desc = {.struct_size = sizeof desc};
    int32_t type = MP_RECIPE_TYPE_STRING; /* also of a key that does not exist */
    for (int32_t i = 0; i < mp_recipe_key_count(); i++) {
        TRY(mp_recipe_key_info(i, &desc));
        type = strcmp(desc.name, key) == 0 ? desc.type : type;
    }
    if (type == MP_RECIPE_TYPE_STRING) {
        TRY(mp_recipe_set_string(recipe, key, value));
        return true;
    }
    const bool is_whole = type == MP_RECIPE_TYPE_INT;
    char* end = NULL;
    const long whole = strtol(value, &end, 10);
    const double number = is_whole ? (double)whole : strtod(value, &end);
    if (end == value || *end != '\0') {
        fprintf(stderr, "train_gpt: --set %s: '%s' is not a %snumber\n", key, value,
                is_whole ? "whole " : "");
        return false;
    }
    if (is_whole) {
        TRY(mp_recipe_set_int(recipe, key, whole));
    } else {
        TRY(mp_recipe_set_float(recipe, key, number));
    }
    return true;
}

static bool create_recipe(Training* t, const char* name) {
    const size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".json") == 0) {
        TRY(mp_recipe_create_from_file(t->context, name, &t->recipe));
    } else {
        TRY(mp_recipe_create(t->context, name, &t->recipe));
    }
    for (int i = 0; i < t->options->setting_count; i++) {
        TRY_OWN(set_key(t->recipe, t->options->settings[i]));
    }
    char reason[256];
    TRY(mp_recipe_reason(t->recipe, reason, sizeof reason, NULL));
    if (reason[0] != '\0' && is_first(t)) {
        printf("%s: %s\n", name, reason);
    }
    return true;
}

/* Unless --threads says how many, the ranks of a machine share its cores. */
static bool create_context(Training* t, Run* run) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = (int32_t)t->options->threads;
    desc.backend = t->options->backend;
    desc.log = print_log;
    desc.log_payload = (void*)t->ranks;
    TRY(mp_context_create(&desc, &t->context));
    TRY(mp_context_num_threads(t->context, &run->threads));
    if (t->options->threads == 0 && t->ranks->neighbours > 1 && run->threads > 1) {
        mp_context_destroy(t->context);
        t->context = NULL;
        const int32_t share = run->threads / t->ranks->neighbours;
        desc.num_threads = share > 1 ? share : 1;
        TRY(mp_context_create(&desc, &t->context));
        TRY(mp_context_num_threads(t->context, &run->threads));
    }
    omp_set_num_threads(run->threads);
    return true;
}

static bool create_arrays(Training* t, Run* run) {
    const Options* o = t->options;
    const size_t tokens = (size_t)(o->batch * o->context), steps = (size_t)o->steps;
    t->tokens = malloc(tokens);
    t->targets = malloc(tokens);
    t->step_seconds = calloc(steps, sizeof(double));
    t->pass_losses =
        calloc((size_t)(o->accum > o->val_batches ? o->accum : o->val_batches), sizeof(double));
    run->losses = calloc(steps, sizeof(float));
    run->val_losses = calloc(steps, sizeof(float));
    if (t->tokens == NULL || t->targets == NULL || t->step_seconds == NULL ||
        t->pass_losses == NULL || run->losses == NULL || run->val_losses == NULL) {
        fputs("train_gpt: out of memory for the curves\n", stderr);
        return false;
    }
    return true;
}

static bool create(Training* t, Run* run) {
    const Options* o = t->options;
    TRY_OWN(create_context(t, run));
    TRY_OWN(create_recipe(t, run->recipe));
    TRY(mp_scaler_create_from_recipe(t->context, t->recipe, &t->scaler));
    TRY_OWN(params_create(&t->params, t->context, t->recipe, o, t->ranks));
    TRY_OWN(network_create(&t->network, &t->params, o, o->batch, false));
    TRY_OWN(create_arrays(t, run));
    run->expected.struct_size = sizeof run->expected;
    run->measured.struct_size = sizeof run->measured;
    options_memory(o, &run->parameter_count);
    TRY_OWN(params_expected_memory(&t->params, &run->expected, &run->memory_is_promised));
    TRY(mp_optimizer_memory(t->params.optimizer, &run->measured));
    t->stats.struct_size = sizeof t->stats;
    const Curve curves[] = {{"losses", run->losses, sizeof(float)},
                            {"val_losses", run->val_losses, sizeof(float)},
                            {"step_seconds", t->step_seconds, sizeof(double)}};
    TRY_OWN(saver_create(&t->saver, o, t->context, &t->params, t->scaler, &t->network, curves, 3));
    TRY(mp_optimizer_get_stats(t->params.optimizer, NULL, &t->stats));
    run->steps = t->saver.next_step;
    return !is_first(t) || monitor_start(&t->monitor, o, run->recipe, &t->network);
}

static void destroy(Training* t) {
    saver_destroy(&t->saver);
    monitor_stop(&t->monitor);
    network_destroy(&t->network);
    params_destroy(&t->params);
    mp_scaler_destroy(t->scaler);
    mp_recipe_destroy(t->recipe);
    mp_context_destroy(t->context);
    free(t->tokens);
    free(t->targets);
    free(t->step_seconds);
    free(t->pass_losses);
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

static double mean_of_passes(const Training* t, int64_t count) {
    double mean = 0.0;
    for (int64_t i = 0; i < count; i++) {
        mean += t->pass_losses[i] / (double)count;
    }
    return mean;
}

/* This rank's part of the step's passes. */
static bool passes(Training* t, int64_t step, double scale) {
    const Options* o = t->options;
    const int64_t first = ranks_first(t->ranks, o->accum), end = ranks_end(t->ranks, o->accum);
    const bool apart = params_have_slots(&t->params);
    for (int64_t pass = first; pass < end; pass++) {
        text_batch(t->text, o, STREAM_TRAIN, step * o->accum + pass, t->tokens, t->targets);
        TRY_OWN(network_forward(&t->network, t->tokens, t->targets,
                                (float)(scale / (double)o->accum), &t->pass_losses[pass]));
        TRY_OWN(network_backward(&t->network, t->tokens, apart || pass == first, pass + 1 == end));
    }
    return true;
}

static bool traffic(Training* t, double* bytes) {
    mp_comm_traffic total = {.struct_size = sizeof total};
    *bytes = 0.0;
    if (t->ranks->comm != NULL) {
        TRY(mp_optimizer_get_traffic(t->params.optimizer, &total));
        *bytes = (double)total.total_bytes;
    }
    return true;
}

static bool train_step(Training* t, int64_t step, double* loss, double* scale) {
    const Options* o = t->options;
    double before = 0.0, after = 0.0, expected = 0.0;
    TRY(mp_optimizer_set_lr(t->params.optimizer, -1, learning_rate(o, t->stats.step)));
    TRY(mp_scaler_scale(t->scaler, NULL, scale));
    TRY_OWN(traffic(t, &before) && params_expected_traffic(&t->params, &expected));
    TRY_OWN(passes(t, step, *scale));
    t->monitor.step = step + 1; /* whose rows the optimizer's step will write */
    TRY(mp_optimizer_step(t->params.optimizer, NULL, t->scaler));
    TRY(mp_scaler_update(t->scaler, NULL));
    TRY_OWN(traffic(t, &after) && params_expected_traffic(&t->params, &expected));
    t->sent.steps += 1.0;
    t->sent.counted += after - before;
    t->sent.expected += expected;
    TRY(mp_optimizer_get_stats(t->params.optimizer, NULL, &t->stats));
    TRY_OWN(ranks_share(t->ranks, t->pass_losses, o->accum));
    *loss = mean_of_passes(t, o->accum);
    return params_refresh(&t->params);
}

/* Where weights are gathered all ranks do as many passes, some of which do not count. */
static bool validation_passes(Training* t, double* loss) {
    const Options* o = t->options;
    const int64_t first = ranks_first(t->ranks, o->val_batches);
    const int64_t own = ranks_end(t->ranks, o->val_batches) - first;
    const int64_t most = (o->val_batches + t->ranks->count - 1) / t->ranks->count;
    for (int64_t i = 0; i < (params_come_and_go(&t->params) ? most : own); i++) {
        double one = 0.0;
        text_batch(t->text, o, STREAM_VAL, i < own ? first + i : 0, t->tokens, t->targets);
        TRY_OWN(network_forward(&t->network, t->tokens, t->targets, 0.0f, &one));
        if (i < own) {
            t->pass_losses[first + i] = one;
        }
    }
    TRY_OWN(ranks_share(t->ranks, t->pass_losses, o->val_batches));
    *loss = mean_of_passes(t, o->val_batches);
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

/* Ctrl-C reaches ranks at different times. */
static bool agree_to_stop(Training* t) { return ranks_any(t->ranks, interrupted != 0, &t->stop); }

static bool give_up(Training* t, const Run* run) {
    if (is_first(t)) {
        fprintf(stderr,
                "train_gpt: %s: the last %d losses are not finite; try a smaller --lr or a "
                "longer --warmup\n",
                run->recipe, MOST_BAD_LOSSES);
    }
    return false;
}

static bool train(Training* t, Run* run) {
    const Options* o = t->options;
    double training = 0.0;
    int64_t bad = 0;
    Progress progress;
    const int64_t first = run->steps; /* 0, or where a checkpoint was */
    progress_begin(&progress, run->recipe, o->steps);
    TRY_OWN(agree_to_stop(t));
    for (int64_t step = first; step < o->steps && !t->stop; step++) {
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
        run->tokens_per_second =
            (double)((run->steps - first) * o->accum * o->batch * o->context) / training;
        if (is_first(t)) {
            progress_update(&progress, run->steps, loss, run->tokens_per_second, scale,
                            t->stats.grad_norm, run->skipped);
        }
        bad = isfinite(loss) ? 0 : bad + 1;
        if (bad >= MOST_BAD_LOSSES) {
            progress_end(&progress);
            return give_up(t, run);
        }
        TRY_OWN(saver_step(&t->saver, run->steps));
        TRY_OWN(agree_to_stop(t));
    }
    progress_end(&progress);
    return saver_finish(&t->saver, run->steps);
}

/* What rank 0 does for all, or where weights are gathered all do, and rank 0 keeps. */
static bool finish(Training* t, Run* run) {
    const Options* o = t->options;
    if (o->save != NULL && !(saver_is_safetensors(o->save) ? saver_export(&t->params, o->save)
                                                           : params_save(&t->params, o, o->save))) {
        return false;
    }
    return o->sample == 0 || (!is_first(t) && !params_come_and_go(&t->params)) ||
           run_sample(run, &t->params, &t->network, o, t->text);
}

static bool run_as_rank(Run* run, const Options* options, const Text* text, const char* recipe,
                        const Ranks* ranks) {
    Training t = {.options = options, .text = text, .ranks = ranks};
    memset(run, 0, sizeof *run);
    snprintf(run->recipe, sizeof run->recipe, "%s", recipe);
    run->val_loss = NAN;
    bool good = create(&t, run) && train(&t, run);
    summary_of_steps(run, t.step_seconds);
    good = good && summary_of_ranks(run, ranks, t.sent);
    if (good && !t.stop) {
        good = validate(&t, &run->val_loss) && agree_to_stop(&t);
    }
    run->peak_memory = summary_peak_memory();
    if (good && !t.stop && run->steps > 0) {
        run->val_losses[run->steps - 1] = (float)run->val_loss;
        good = finish(&t, run);
    }
    good = monitor_finish(&t.monitor) && good;
    run->points = monitor_points(&t.monitor, &run->point_count);
    run->outcome = !good ? RUN_FAILED : t.stop ? RUN_INTERRUPTED : RUN_DONE;
    destroy(&t);
    return good;
}

typedef struct {
    Run* run;
    const Options* options;
    const Text* text;
    const char* recipe;
} Job;

static bool run_job(const Ranks* ranks, void* payload) {
    const Job* job = payload;
    Run other;
    Run* run = ranks->rank == 0 ? job->run : &other;
    const bool good = run_as_rank(run, job->options, job->text, job->recipe, ranks);
    if (run == &other) {
        run_free(&other);
    }
    return good;
}

bool run_recipe(Run* run, const Options* options, const Text* text, const char* recipe) {
    Job job = {run, options, text, recipe};
    memset(run, 0, sizeof *run);
    return ranks_run(options, run_job, &job);
}

void run_free(Run* run) {
    free(run->losses);
    free(run->val_losses);
    free(run->points);
    free(run->sample);
    memset(run, 0, sizeof *run);
}
