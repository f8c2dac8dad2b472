/* SPDX-License-Identifier: Apache-2.0 */
#include "saver.h"

#include <stdio.h>
#include <string.h>

static bool add_all(Saver* s, Params* params, mp_scaler* scaler, Network* network,
                    const Curve* curves, int curve_count) {
    TRY(mp_checkpoint_add_optimizer(s->checkpoint, params->optimizer));
    TRY(mp_checkpoint_add_scaler(s->checkpoint, scaler));
    for (int32_t i = 0; i < network->linear_count; i++) {
        char name[32];
        network_linear_name(network, i, name, sizeof name);
        TRY(mp_checkpoint_add_linear(s->checkpoint, name, network->linears[i]));
    }
    TRY(mp_checkpoint_add_data(s->checkpoint, "next_step", &s->next_step, sizeof s->next_step));
    for (int i = 0; i < curve_count; i++) {
        TRY(mp_checkpoint_add_data(s->checkpoint, curves[i].name, curves[i].values,
                                   curves[i].element_size * (size_t)s->options->steps));
    }
    return true;
}

static bool resume(Saver* s, Params* params) {
    mp_checkpoint_info info = {.struct_size = sizeof info};
    const mp_status status = mp_checkpoint_load(s->checkpoint, s->options->resume, 0, &info);
    if (status == MP_STATUS_WARNING) {
        fprintf(stderr, "train_gpt: note: %s\n", mp_last_error_message());
    }
    TRY_STATUS(status, "mp_checkpoint_load");
    if (s->next_step < 0 || s->next_step > s->options->steps) {
        fprintf(stderr, "train_gpt: '%s' is at step %lld of %lld\n", s->options->resume,
                (long long)s->next_step, (long long)s->options->steps);
        return false;
    }
    s->saved_step = s->next_step;
    if (params->ranks->rank == 0) {
        printf("resumed after step %lld\n", (long long)s->next_step);
    }
    return params_refresh(params);
}

bool saver_create(Saver* s, const Options* options, mp_context* context, Params* params,
                  mp_scaler* scaler, Network* network, const Curve* curves, int curve_count) {
    *s = (Saver){.options = options, .saved_step = -1};
    if (options->checkpoint == NULL && options->resume == NULL) {
        return true;
    }
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.keep = (int32_t)options->keep;
    TRY(mp_checkpoint_create(context, params->ranks->comm, &desc, &s->checkpoint));
    TRY_OWN(add_all(s, params, scaler, network, curves, curve_count));
    return options->resume == NULL || resume(s, params);
}

static bool save(Saver* s, int64_t taken) {
    s->next_step = taken;
    s->saved_step = taken;
    TRY(mp_checkpoint_wait(s->checkpoint)); /* the one before */
    TRY(mp_checkpoint_save(s->checkpoint, s->options->checkpoint, taken, MP_CHECKPOINT_BACKGROUND));
    return true;
}

bool saver_step(Saver* s, int64_t taken) {
    const int64_t every = s->options->checkpoint_every;
    if (s->options->checkpoint == NULL || every == 0 || taken % every != 0) {
        return true;
    }
    return save(s, taken);
}

bool saver_finish(Saver* s, int64_t taken) {
    if (s->options->checkpoint == NULL) {
        return true;
    }
    if (s->saved_step != taken) {
        TRY_OWN(save(s, taken));
    }
    TRY(mp_checkpoint_wait(s->checkpoint));
    return true;
}

void saver_destroy(Saver* s) { mp_checkpoint_destroy(s->checkpoint); }

bool saver_is_safetensors(const char* path) {
    static const char ending[] = ".safetensors";
    const size_t length = strlen(path);
    return length > sizeof ending - 1 && strcmp(path + length - (sizeof ending - 1), ending) == 0;
}

bool saver_export(Params* params, const char* path) {
    mp_checkpoint* checkpoint = NULL;
    TRY(mp_checkpoint_create(params->context, NULL, NULL, &checkpoint));
    mp_status status = mp_checkpoint_add_optimizer(checkpoint, params->optimizer);
    if (status >= 0) {
        status = mp_checkpoint_export_weights(checkpoint, path);
    }
    if (status < 0) {
        fprintf(stderr, "train_gpt: cannot write the weights: %s\n", mp_last_error_message());
    }
    mp_checkpoint_destroy(checkpoint);
    return status >= 0;
}
