/* SPDX-License-Identifier: Apache-2.0
 * One file or folder that the library writes, by one of the calls that write, under what tests/system/writers.py has put in
 * its way. Meanwhile a thread prints to the standard streams' numbers, whatever those are.
 *
 * usage: writers save|background|export|history|load PATH REPORT [close=012] [limit=BYTES] [chdir=FOLDER] [swap=VICTIM] [keep=N]
 * REPORT, an absolute path, gets "ok" or the message. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <mixedprec.h>

enum { kCount = 200000 };

struct options {
    const char* writer;
    const char* path;
    const char* report;
    const char* closed;
    const char* folder;
    const char* victim;
    long limit;
    int keep;
};

struct training {
    mp_context* context;
    mp_recipe* recipe;
    mp_optimizer* optimizer;
    mp_checkpoint* checkpoint;
    float* weights;
    int64_t position;
};

static struct options options;
static atomic_int done;

static void limit_size(rlim_t most) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) {
        exit(2);
    }
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        exit(2);
    }
}

static void report(mp_status status) {
    limit_size(RLIM_INFINITY);
    FILE* file = fopen(options.report, "w");
    if (file == NULL) {
        exit(2);
    }
    fprintf(file, "%s\n", status >= 0 ? "ok" : mp_last_error_message());
    fclose(file);
    exit(0);
}

static void require(mp_status status) {
    if (status < 0) {
        report(status);
    }
}

static void* print(void* unused) {
    static const char kText[] = "text of the program\n";
    (void)unused;
    while (!atomic_load(&done)) {
        for (int stream = 0; stream < 3; ++stream) {
            const ssize_t written = write(stream, kText, sizeof kText - 1);
            (void)written;
        }
    }
    return NULL;
}

/* Somebody who may write there puts a link in the place of the folder that is being written. */
static void swap(int64_t written, int64_t total, void* payload) {
    static int swapped = 0;
    char command[4096];
    (void)written;
    (void)total;
    (void)payload;
    if (!swapped) {
        swapped = 1;
        (void)snprintf(command, sizeof command,
                       "cd '%s' && for t in .tmp-*; do mv $t aside && ln -s '%s' $t; done",
                       options.path, options.victim);
        if (system(command) != 0) {
            exit(3);
        }
    }
}

static void make(struct training* t) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    mp_tensor_desc shape = MP_TENSOR_DESC_INIT;
    mp_param_desc param = MP_PARAM_DESC_INIT;
    mp_checkpoint_desc saved = MP_CHECKPOINT_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.num_threads = 1;
    require(mp_context_create(&desc, &t->context));
    require(mp_recipe_create(t->context, "fp32", &t->recipe));
    require(mp_optimizer_create(t->context, t->recipe, NULL, &t->optimizer));
    require(mp_optimizer_add_group(t->optimizer, NULL, NULL));
    t->weights = malloc(kCount * sizeof(float));
    if (t->weights == NULL) {
        exit(2);
    }
    for (int i = 0; i < kCount; ++i) {
        t->weights[i] = strcmp(options.writer, "load") == 0 ? 0.0f : (float)i;
    }
    shape.dtype = MP_DTYPE_FP32;
    shape.ndim = 1;
    shape.shape[0] = kCount;
    require(mp_tensor_wrap(t->context, &shape, t->weights, NULL, NULL, &tensor));
    param.name = "w";
    param.param = tensor;
    require(mp_optimizer_add_param(t->optimizer, 0, &param, NULL));
    saved.keep = options.keep;
    saved.progress = options.victim != NULL ? swap : NULL;
    t->position = 41;
    require(mp_checkpoint_create(t->context, NULL, &saved, &t->checkpoint));
    require(mp_checkpoint_add_optimizer(t->checkpoint, t->optimizer));
    require(mp_checkpoint_add_data(t->checkpoint, "position", &t->position, sizeof t->position));
}

static void change_folder(void) {
    if (options.folder != NULL && chdir(options.folder) != 0) {
        exit(2);
    }
}

static mp_status save_in_background(struct training* t) {
    require(mp_checkpoint_save(t->checkpoint, options.path, 1, MP_SAVE_BACKGROUND));
    change_folder();
    for (int i = 0; i < kCount; ++i) {
        t->weights[i] = -1.0f;
    }
    return mp_checkpoint_wait(t->checkpoint);
}

/* The first step that is not finite writes it; a failure is not told. */
static mp_status write_history(struct training* t) {
    mp_guard_desc guard = MP_GUARD_DESC_INIT;
    mp_tensor* grad = NULL;
    float* values = calloc(kCount, sizeof(float));
    if (values == NULL) {
        exit(2);
    }
    values[0] = NAN;
    guard.window = 2;
    guard.max_grad_norm_z = 3.0;
    require(mp_optimizer_set_guard(t->optimizer, NULL, &guard));
    require(mp_optimizer_set_history(t->optimizer, 3, options.path));
    change_folder();
    require(mp_optimizer_get_state(t->optimizer, 0, "grad", &grad));
    require(mp_tensor_write(grad, NULL, values, kCount * sizeof(float)));
    return mp_optimizer_step(t->optimizer, NULL, NULL);
}

static mp_status load(struct training* t) {
    require(mp_checkpoint_load(t->checkpoint, options.path, MP_LOAD_VERIFY_ALL, NULL));
    for (int i = 0; i < kCount; ++i) {
        if (t->weights[i] != (float)i) {
            exit(4);
        }
    }
    return t->position == 41 ? MP_STATUS_OK : MP_STATUS_CORRUPT_DATA;
}

static void read_option(const char* word) {
    const char* value = strchr(word, '=') + 1;
    switch (word[0]) {
    case 'l':
        options.limit = atol(value);
        break;
    case 'k':
        options.keep = atoi(value);
        break;
    case 's':
        options.victim = value;
        break;
    default:
        *(word[1] == 'l' ? &options.closed : &options.folder) = value;
    }
}

int main(int argc, char** argv) {
    struct training t;
    pthread_t printer;
    mp_status status = MP_STATUS_OK;
    if (argc < 4) {
        return 2;
    }
    options.writer = argv[1];
    options.path = argv[2];
    options.report = argv[3];
    for (int i = 4; i < argc; ++i) {
        read_option(argv[i]);
    }
    for (const char* stream = options.closed; stream != NULL && *stream != '\0'; ++stream) {
        close(*stream - '0');
    }
    if (options.limit > 0) {
        (void)signal(SIGXFSZ, SIG_IGN);
        limit_size((rlim_t)options.limit);
    }
    make(&t);
    if (pthread_create(&printer, NULL, print, NULL) != 0) {
        return 2;
    }
    if (strcmp(options.writer, "save") == 0) {
        status = mp_checkpoint_save(t.checkpoint, options.path, 1, 0);
    } else if (strcmp(options.writer, "background") == 0) {
        status = save_in_background(&t);
    } else if (strcmp(options.writer, "export") == 0) {
        status = mp_checkpoint_export_weights(t.checkpoint, options.path);
    } else if (strcmp(options.writer, "history") == 0) {
        status = write_history(&t);
    } else {
        status = load(&t);
    }
    atomic_store(&done, 1);
    (void)pthread_join(printer, NULL);
    report(status);
}
