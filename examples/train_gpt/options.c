/* SPDX-License-Identifier: Apache-2.0
 * The command line: one table of options, and checks that say what was expected, what came, and what to do. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mixedprec.h>

#ifndef TRAIN_GPT_DEFAULT_DATA
#define TRAIN_GPT_DEFAULT_DATA "corpus.txt"
#endif

typedef enum { TEXT, INTEGER, REAL, RECIPES, SETTING, FLAG } Kind;

typedef struct {
    const char* name;
    Kind kind;
    size_t offset;        /* of the field in Options */
    double low, high;     /* bounds of numbers, inclusive */
    const char* fallback; /* of a number that no other option decides */
    const char* text;
} Option;

#define FIELD(field) offsetof(Options, field)

static const Option kOptions[] = {
    {"data", TEXT, FIELD(data), 0, 0, NULL,
     "text to train on, any bytes; its last tenth is for validation"},
    {"recipe", RECIPES, 0, 0, 0, NULL, "recipe: a preset's name or a .json file (default fp32)"},
    {"set", SETTING, 0, 0, 0, NULL,
     "KEY=VALUE of the recipe instead of the preset's; may be repeated"},
    {"compare", RECIPES, 0, 0, 0, NULL,
     "several recipes A,B,... or all, one after another, each in a process of its own"},
    {"steps", INTEGER, FIELD(steps), 1, 1e9, "300", "optimizer steps"},
    {"layers", INTEGER, FIELD(layers), 1, 1000, "4", "transformer blocks"},
    {"dim", INTEGER, FIELD(dim), 1, 65536, "256", "width of the model, a multiple of --heads"},
    {"heads", INTEGER, FIELD(heads), 1, 1024, "4", "attention heads"},
    {"context", INTEGER, FIELD(context), 1, 65536, "128", "bytes of text seen at once"},
    {"batch", INTEGER, FIELD(batch), 1, 65536, "16", "texts in one pass"},
    {"accum", INTEGER, FIELD(accum), 1, 65536, "1",
     "passes whose gradients are added up for one step"},
    {"lr", REAL, FIELD(lr), 0, 1e6, "1e-3", "highest learning rate"},
    {"min-lr", REAL, FIELD(min_lr), 0, 1e6, NULL,
     "learning rate at the end of the cosine (a tenth of --lr)"},
    {"warmup", INTEGER, FIELD(warmup), 0, 1e9, NULL,
     "steps of linear warm-up (a tenth of --steps, at most 100)"},
    {"beta1", REAL, FIELD(beta1), 0, 1, "0.9", "AdamW"},
    {"beta2", REAL, FIELD(beta2), 0, 1, "0.95", "AdamW"},
    {"eps", REAL, FIELD(eps), 0, 1, "1e-8", "AdamW"},
    {"weight-decay", REAL, FIELD(weight_decay), 0, 100, "0.1", "AdamW, on matrices only"},
    {"clip", REAL, FIELD(clip), 0, 1e30, "1", "largest norm of the gradient; 0: no clipping"},
    {"seed", INTEGER, FIELD(seed), 0, 9e15, "1", "initial weights, batches and sampled text"},
    {"val-every", INTEGER, FIELD(val_every), 0, 1e9, "0",
     "steps between validations; 0: only at the end"},
    {"val-batches", INTEGER, FIELD(val_batches), 1, 1e6, "16", "batches of one validation"},
    {"monitor", INTEGER, FIELD(monitor), 0, 1e9, "0",
     "steps between looks at the layers' fp8 operands, for --out's monitor.csv; 0: none"},
    {"sample", INTEGER, FIELD(sample), 0, 100000, "200", "bytes of text to write at the end"},
    {"temperature", REAL, FIELD(temperature), 0.01, 100, "0.8",
     "of that text: low is safe, high is wild"},
    {"threads", INTEGER, FIELD(threads), 0, 4096, "0", "threads; 0: one for each physical core"},
    {"backend", TEXT, FIELD(backend), 0, 0, NULL,
     "the library's host backend: host (fast) or reference (host)"},
    {"out", TEXT, FIELD(out), 0, 0, NULL,
     "folder for losses.csv, losses.svg, results.json and monitor.csv"},
    {"save", TEXT, FIELD(save), 0, 0, NULL,
     "file to write the trained weights to, in fp32; *.safetensors: in their types (one recipe "
     "only)"},
    {"init", TEXT, FIELD(init), 0, 0, NULL,
     "file of weights to start from, made by --save for the same model"},
    {"ranks", INTEGER, FIELD(ranks), 1, 256, "1",
     "ranks that share a step, as threads of this process; their passes are --accum in all"},
    {"mpi", FLAG, FIELD(mpi), 0, 0, NULL, "ranks are the processes that mpirun started"},
    {"zero", INTEGER, FIELD(zero), 0, 3, NULL,
     "what ranks share out. 1: states, 2: gradients too, 3: weights too, 0: nothing (1)"},
    {"shard-ranks", INTEGER, FIELD(shard_ranks), 0, 256, "0",
     "groups of so many ranks share out a copy each, those of a node, say; 0: all one copy"},
    {"node-ranks", INTEGER, FIELD(node_ranks), 0, 256, "0",
     "add gradients among so many ranks, those of a node, first; 0: among all at once"},
    {"order", TEXT, FIELD(order_name), 0, 0, NULL,
     "of sums over ranks: rank; tree, exact: the same bits for every number of ranks (rank)"},
    {"wire-dtype", TEXT, FIELD(wire_name), 0, 0, NULL,
     "type of gradients between ranks, such as bf16 or fp8_e4m3 (the recipe's)"},
    {"checkpoint", TEXT, FIELD(checkpoint), 0, 0, NULL,
     "folder for checkpoints: one after the last step, or where it was interrupted (one recipe "
     "only)"},
    {"checkpoint-every", INTEGER, FIELD(checkpoint_every), 0, 1e9, "0",
     "steps between further checkpoints; 0: none"},
    {"keep", INTEGER, FIELD(keep), 0, 1e9, "0", "newest checkpoints to keep; 0: all"},
    {"resume", TEXT, FIELD(resume), 0, 0, NULL,
     "checkpoint, or folder of them, to go on from, with the same other options"},
    {"max-memory", INTEGER, FIELD(max_memory), 1, 1e9, "2048",
     "refuse models estimated to need more MiB"},
};
enum { OPTION_COUNT = sizeof kOptions / sizeof kOptions[0] };

int usage_error(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("train_gpt: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs(". See train_gpt --help\n", stderr);
    va_end(arguments);
    return EXIT_USAGE;
}

static void print_help(void) {
    puts("usage: train_gpt [options]\n"
         "Trains a small GPT on the bytes of a text, in the precision of a libmixedprec recipe.\n");
    for (int i = 0; i < OPTION_COUNT; i++) {
        static const char* const arguments[] = {"TEXT", "N", "X", "NAME", "KEY=VALUE", ""};
        char left[64];
        snprintf(left, sizeof left, "--%s %s", kOptions[i].name, arguments[kOptions[i].kind]);
        printf("  %-20s %s", left, kOptions[i].text);
        if (kOptions[i].fallback != NULL) {
            printf(" (%s)", kOptions[i].fallback);
        }
        putchar('\n');
    }
    printf("  %-20s %s\n  %-20s %s\n\n", "--list-recipes", "print the presets and what they are",
           "--help", "this text");
    puts("Default text: " TRAIN_GPT_DEFAULT_DATA " (written by scripts/corpus.sh).\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (the table so far is "
         "printed).");
}

/* Names of recipes that choose a preset by the device. */
static const char* const kAutomatic[] = {"auto", "auto_fp8"};

static void print_recipes(void) {
    for (int32_t i = 0; i < mp_recipe_preset_count(); i++) {
        const char *name = NULL, *text = NULL;
        if (mp_recipe_preset_info(i, &name, &text) == MP_STATUS_OK) {
            printf("%-26s %s\n", name, text);
        }
    }
    puts("auto, auto_fp8             the preset that suits the device, without and with fp8 "
         "products");
}

static bool is_file_name(const char* recipe) {
    const size_t length = strlen(recipe);
    return length > 5 && strcmp(recipe + length - 5, ".json") == 0;
}

static int check_recipe_name(const char* name) {
    if (is_file_name(name)) {
        return EXIT_OK;
    }
    for (size_t i = 0; i < sizeof kAutomatic / sizeof kAutomatic[0]; i++) {
        if (strcmp(kAutomatic[i], name) == 0) {
            return EXIT_OK;
        }
    }
    for (int32_t i = 0; i < mp_recipe_preset_count(); i++) {
        const char* known = NULL;
        if (mp_recipe_preset_info(i, &known, NULL) == MP_STATUS_OK && strcmp(known, name) == 0) {
            return EXIT_OK;
        }
    }
    return usage_error("unknown recipe '%s': expected a name of --list-recipes or a .json file",
                       name);
}

static int add_recipe(Options* options, const char* option, const char* name) {
    if (options->recipe_count == MAX_RECIPES) {
        return usage_error("--%s has more than %d names", option, MAX_RECIPES);
    }
    options->recipes[options->recipe_count++] = name;
    return EXIT_OK;
}

static int add_all_recipes(Options* options, const char* option) {
    int bad = EXIT_OK;
    for (int32_t i = 0; i < mp_recipe_preset_count() && bad == EXIT_OK; i++) {
        const char* name = NULL;
        if (mp_recipe_preset_info(i, &name, NULL) == MP_STATUS_OK) {
            bad = add_recipe(options, option, name);
        }
    }
    return bad;
}

/* Cuts the list in place: argv's strings are ours to change. */
static int parse_recipes(Options* options, const char* option, char* list, bool many) {
    options->recipe_count = 0;
    if (many && strcmp(list, "all") == 0) {
        return add_all_recipes(options, option);
    }
    for (char* name = list; name != NULL;) {
        char* comma = many ? strchr(name, ',') : NULL;
        if (comma != NULL) {
            *comma = '\0';
        }
        if (*name == '\0') {
            return usage_error(
                "--%s has an empty name: expected names with single commas between them", option);
        }
        int bad = check_recipe_name(name);
        if (bad == EXIT_OK) {
            bad = add_recipe(options, option, name);
        }
        if (bad != EXIT_OK) {
            return bad;
        }
        name = comma != NULL ? comma + 1 : NULL;
    }
    return EXIT_OK;
}

/* The recipe says later whether the key and the value are good. */
static int add_setting(Options* options, const char* setting) {
    if (options->setting_count == MAX_SETTINGS) {
        return usage_error("--set is there more than %d times", MAX_SETTINGS);
    }
    const char* equals = strchr(setting, '=');
    if (equals == NULL || equals == setting) {
        return usage_error("--set wants KEY=VALUE, not '%s'", setting);
    }
    options->settings[options->setting_count++] = setting;
    return EXIT_OK;
}

static int parse_number(Options* options, const Option* option, const char* value) {
    void* field = (char*)options + option->offset;
    char* end = NULL;
    double number = 0.0;
    errno = 0;
    if (option->kind == INTEGER) {
        const long long integer = strtoll(value, &end, 10);
        number = (double)integer;
        if (end != value && *end == '\0' && errno == 0) {
            *(int64_t*)field = integer;
        }
    } else {
        number = strtod(value, &end);
        *(double*)field = number;
    }
    if (end == value || *end != '\0' || isnan(number)) {
        return usage_error("--%s wants %s, not '%s'", option->name,
                           option->kind == INTEGER ? "a whole number" : "a number", value);
    }
    if (errno != 0 || number < option->low || number > option->high) {
        return usage_error("--%s must be from %.10g to %.10g, not %s", option->name, option->low,
                           option->high, value);
    }
    return EXIT_OK;
}

static const Option* find_option(const char* word) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strncmp(word, "--", 2) == 0 && strcmp(word + 2, kOptions[i].name) == 0) {
            return &kOptions[i];
        }
    }
    return NULL;
}

static int parse_value(Options* options, const Option* option, char* value) {
    switch (option->kind) {
    case TEXT:
        *(const char**)((char*)options + option->offset) = value;
        return EXIT_OK;
    case SETTING:
        return add_setting(options, value);
    case RECIPES:
        return parse_recipes(options, option->name, value, strcmp(option->name, "compare") == 0);
    default:
        return parse_number(options, option, value);
    }
}

double options_memory(const Options* o, int64_t* parameter_count) {
    const double layers = (double)o->layers, dim = (double)o->dim, context = (double)o->context;
    const double rows = (double)o->batch * context, heads = (double)(o->batch * o->heads);
    const double parameters =
        layers * (12.0 * dim * dim + 13.0 * dim) + (512.0 + context + 2.0) * dim;
    /* What one layer keeps for its backward pass, and what all layers share. */
    const double kept = layers * (rows * 16.0 * dim + heads * context * context);
    const double shared = rows * (16.0 * dim + 256.0) + heads * context * context;
    if (parameter_count != NULL) {
        *parameter_count = parameters < 9e18 ? (int64_t)parameters : INT64_MAX;
    }
    return 4.0 * (4.0 * parameters + kept + shared);
}

static int check_together(Options* o) {
    if (o->dim % o->heads != 0) {
        return usage_error("--dim %lld cannot be shared out to --heads %lld: it must be a multiple",
                           (long long)o->dim, (long long)o->heads);
    }
    if (o->min_lr > o->lr) {
        return usage_error("--min-lr is above --lr: the learning rate falls from --lr to --min-lr");
    }
    if (o->warmup > o->steps) {
        return usage_error("--warmup is above --steps: the warm-up would never end");
    }
    if (o->beta1 >= 1.0 || o->beta2 >= 1.0) {
        return usage_error("--beta1 and --beta2 must be below 1");
    }
    if (o->save != NULL && o->recipe_count > 1) {
        return usage_error(
            "--save wants a single recipe: with --compare every one would overwrite the last");
    }
    if ((o->checkpoint != NULL || o->resume != NULL) && o->recipe_count > 1) {
        return usage_error("--checkpoint and --resume want a single recipe");
    }
    if ((o->checkpoint_every > 0 || o->keep > 0) && o->checkpoint == NULL) {
        return usage_error("--checkpoint-every and --keep want --checkpoint: a folder to write to");
    }
    if (o->resume != NULL && o->init != NULL) {
        return usage_error("--resume has weights of its own: leave --init out");
    }
    if (o->monitor > 0 && o->out == NULL) {
        return usage_error("--monitor wants --out: a folder to write monitor.csv to");
    }
    const int bad = options_check_sharing(o);
    if (bad != EXIT_OK) {
        return bad;
    }
    const double mib = (double)o->ranks * options_memory(o, NULL) / 1048576.0;
    if (mib > (double)o->max_memory) {
        return usage_error(
            "this model would need about %.0f MiB and --max-memory is %lld: make --layers, --dim, "
            "--context or --batch smaller, or raise --max-memory",
            mib, (long long)o->max_memory);
    }
    return EXIT_OK;
}

int options_parse(Options* options, int argc, char** argv) {
    *options = (Options){.data = TRAIN_GPT_DEFAULT_DATA,
                         .recipes = {"fp32"},
                         .recipe_count = 1,
                         .min_lr = -1.0,
                         .warmup = -1,
                         .zero = -1};
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (kOptions[i].fallback != NULL) {
            parse_number(options, &kOptions[i], kOptions[i].fallback);
        }
    }
    for (int i = 1; i < argc; i++) {
        const char* word = argv[i];
        if (strcmp(word, "--help") == 0) {
            print_help();
            return -1;
        }
        if (strcmp(word, "--list-recipes") == 0) {
            print_recipes();
            return -1;
        }
        const Option* option = find_option(word);
        if (option == NULL) {
            return strncmp(word, "--", 2) == 0
                       ? usage_error("unknown option '%s'", word)
                       : usage_error("'%s' is not an option: options begin with --", word);
        }
        if (option->kind == FLAG) {
            *(bool*)((char*)options + option->offset) = true;
            continue;
        }
        if (++i == argc) {
            return usage_error("%s wants a value behind it", word);
        }
        const int status = parse_value(options, option, argv[i]);
        if (status != EXIT_OK) {
            return status;
        }
    }
    if (options->min_lr < 0.0) {
        options->min_lr = options->lr / 10.0;
    }
    if (options->warmup < 0) {
        options->warmup = options->steps / 10 < 100 ? options->steps / 10 : 100;
    }
    const int bad = options_parse_sharing(options);
    return bad != EXIT_OK ? bad : check_together(options);
}
