/* SPDX-License-Identifier: Apache-2.0
 * The table, the samples, CSV and JSON. */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COLUMNS = 17, PLAIN_COLUMNS = 13, CELL = 64 };

static const char* const kHeads[COLUMNS] = {
    "recipe",   "train loss", "vs fp32",  "val loss",   "vs fp32", "tokens/s",
    "vs fp32",  "weights",    "master",   "grads",      "states",  "total",
    "peak MiB", "MB sent",    "expected", "MiB a rank", "planned"};

const Run* report_baseline(const Run* runs, int count) {
    for (int i = 0; i < count; i++) {
        if (strcmp(runs[i].recipe, "fp32") == 0 && runs[i].outcome == RUN_DONE) {
            return &runs[i];
        }
    }
    return NULL;
}

static void format_gap(char* cell, double loss, double baseline) {
    if (isfinite(loss) && isfinite(baseline)) {
        snprintf(cell, CELL, "%+.2f %%", (loss / baseline - 1.0) * 100.0);
    }
}

/* expected below 0: nobody promised anything. */
static void format_bytes(char* cell, int64_t measured, int64_t expected, int64_t count) {
    const double each = count > 0 ? (double)measured / (double)count : 0.0;
    if (measured == expected || expected < 0) {
        snprintf(cell, CELL, "%.4g", each);
    } else {
        snprintf(cell, CELL, "%.4g (not %.4g)", each, (double)expected / (double)count);
    }
}

static int64_t states(const mp_memory_report* m) {
    return m->exp_avg_bytes + m->exp_avg_sq_bytes + m->compensation_bytes;
}

static int64_t gradients(const mp_memory_report* m) {
    return m->grad_bytes + m->reduced_grad_bytes;
}

static void fill_memory(char cells[COLUMNS][CELL], const Run* run) {
    const mp_memory_report *m = &run->measured, *e = &run->expected;
    const int64_t measured[] = {m->weight_bytes, m->master_bytes, gradients(m), states(m),
                                m->total_bytes};
    const int64_t expected[] = {e->weight_bytes, e->master_bytes, gradients(e), states(e),
                                e->total_bytes};
    for (int i = 0; i < 5; i++) {
        format_bytes(cells[7 + i], measured[i], run->memory_is_promised ? expected[i] : -1,
                     run->parameter_count);
    }
    snprintf(cells[12], CELL, "%.0f", (double)run->peak_memory / 1048576.0);
    if (run->ranks > 0) {
        snprintf(cells[13], CELL, "%.4g", run->wire_counted / 1e6);
        snprintf(cells[14], CELL, "%.4g", run->wire_expected / 1e6);
        snprintf(cells[15], CELL, "%.4g", run->rank_bytes_held / 1048576.0);
    }
    if (run->ranks > 0 && run->memory_is_promised) {
        snprintf(cells[16], CELL, "%.4g", run->rank_bytes_planned / 1048576.0);
    }
}

static void fill_row(char cells[COLUMNS][CELL], const Run* run, const Run* baseline) {
    for (int i = 1; i < COLUMNS; i++) {
        strcpy(cells[i], "-");
    }
    snprintf(cells[0], CELL, "%s", run->recipe);
    if (run->steps == 0) {
        return;
    }
    snprintf(cells[1], CELL, "%.4f", run->train_loss);
    if (isfinite(run->val_loss)) {
        snprintf(cells[3], CELL, "%.4f", run->val_loss);
    }
    if (baseline != NULL && run != baseline && run->outcome == RUN_DONE) {
        format_gap(cells[2], run->train_loss, baseline->train_loss);
        format_gap(cells[4], run->val_loss, baseline->val_loss);
        snprintf(cells[6], CELL, "%.2fx", run->tokens_per_second / baseline->tokens_per_second);
    }
    snprintf(cells[5], CELL, "%.0f", run->tokens_per_second);
    fill_memory(cells, run);
}

void report_table(const Run* runs, int count) {
    static char cells[MAX_RECIPES + 1][COLUMNS][CELL];
    int widths[COLUMNS] = {0};
    const int columns = count > 0 && runs[0].ranks > 0 ? COLUMNS : PLAIN_COLUMNS;
    for (int row = 0; row <= count; row++) {
        if (row == 0) {
            for (int i = 0; i < COLUMNS; i++) {
                strcpy(cells[0][i], kHeads[i]);
            }
        } else {
            fill_row(cells[row], &runs[row - 1], report_baseline(runs, count));
        }
        for (int i = 0; i < COLUMNS; i++) {
            const int length = (int)strlen(cells[row][i]);
            widths[i] = length > widths[i] ? length : widths[i];
        }
    }
    putchar('\n');
    for (int row = 0; row <= count; row++) {
        printf("%-*s", widths[0], cells[row][0]);
        for (int i = 1; i < columns; i++) {
            printf("  %*s", widths[i], cells[row][i]);
        }
        const Run* run = row > 0 ? &runs[row - 1] : NULL;
        if (run != NULL && run->outcome != RUN_DONE) {
            printf("  %s after %lld steps", run->outcome == RUN_FAILED ? "FAILED" : "stopped",
                   (long long)run->steps);
        }
        if (run != NULL && run->skipped > 0) {
            printf("  %lld steps skipped", (long long)run->skipped);
        }
        putchar('\n');
    }
    puts("\ntrain loss: mean of the last 20 steps, nats a byte. weights to total: bytes for each "
         "parameter, held by\n"
         "model and optimizer; equal to what the recipe promised unless it says \"not\".");
    if (columns > PLAIN_COLUMNS) {
        puts("These bytes are rank 0's. MB sent: by each rank in a step, as counted, and expected "
             "by "
             "the formula;\nMiB a rank: of the one that holds most, and as planned (\"-\": the "
             "recipe makes no plan).");
    }
}

void report_samples(const Run* runs, int count) {
    for (int i = 0; i < count; i++) {
        if (runs[i].sample != NULL) {
            printf("\n--- text by %s ---\n%s\n", runs[i].recipe, runs[i].sample);
        }
    }
}

bool report_prepare_folder(const char* folder) {
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "train_gpt: cannot make the folder --out '%s': %s\n", folder,
                strerror(errno));
        return false;
    }
    struct stat info;
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || access(folder, W_OK) != 0) {
        fprintf(stderr, "train_gpt: --out '%s' is not a folder that can be written to\n", folder);
        return false;
    }
    return true;
}

static void write_csv(FILE* file, const Run* runs, int count) {
    fputs("recipe,step,train_loss,val_loss\n", file);
    for (int i = 0; i < count; i++) {
        for (int64_t step = 0; step < runs[i].steps; step++) {
            fprintf(file, "%s,%lld,%.9g,", runs[i].recipe, (long long)step + 1,
                    (double)runs[i].losses[step]);
            if (isfinite(runs[i].val_losses[step])) {
                fprintf(file, "%.9g", (double)runs[i].val_losses[step]);
            }
            fputc('\n', file);
        }
    }
}

/* JSON has no NaN. */
static void json_number(FILE* file, const char* key, double value) {
    fprintf(file, isfinite(value) ? ", \"%s\": %.9g" : ", \"%s\": null", key, value);
}

static void json_memory(FILE* file, const char* key, const mp_memory_report* m) {
    fprintf(file,
            ", \"%s\": {\"weights\": %lld, \"master\": %lld, \"grads\": %lld, \"exp_avg\": %lld, "
            "\"exp_avg_sq\": %lld, "
            "\"compensation\": %lld, \"reduced_grads\": %lld, \"total\": %lld}",
            key, (long long)m->weight_bytes, (long long)m->master_bytes, (long long)m->grad_bytes,
            (long long)m->exp_avg_bytes, (long long)m->exp_avg_sq_bytes,
            (long long)m->compensation_bytes, (long long)m->reduced_grad_bytes,
            (long long)m->total_bytes);
}

static void json_ranks(FILE* file, const Run* r, const Options* o) {
    static const char* const orders[] = {"rank", "tree", "exact"};
    fprintf(file, ", \"ranks\": %d, \"zero\": %lld, \"shard_ranks\": %lld, \"order\": \"%s\"",
            (int)r->ranks, (long long)o->zero, (long long)o->shard_ranks, orders[o->order]);
    json_number(file, "step_bytes_sent_expected", r->wire_expected);
    json_number(file, "step_bytes_sent", r->wire_counted);
    json_number(file, "rank_bytes_planned", r->memory_is_promised ? r->rank_bytes_planned : NAN);
    json_number(file, "rank_bytes_held", r->rank_bytes_held);
}

static void write_json(FILE* file, const Run* runs, int count, const Options* o) {
    fprintf(file,
            "{\"layers\": %lld, \"dim\": %lld, \"heads\": %lld, \"context\": %lld, \"batch\": "
            "%lld, \"accum\": %lld,\n"
            " \"library\": \"%s\",\n \"runs\": [",
            (long long)o->layers, (long long)o->dim, (long long)o->heads, (long long)o->context,
            (long long)o->batch, (long long)o->accum, mp_library_build_info());
    for (int i = 0; i < count; i++) {
        static const char* const outcomes[] = {"failed", "stopped", "done"};
        const Run* r = &runs[i];
        fprintf(file, "%s\n  {\"recipe\": \"", i > 0 ? "," : "");
        for (const char* c = r->recipe; *c != '\0'; c++) {
            fprintf(file, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        }
        fprintf(file,
                "\", \"outcome\": \"%s\", \"threads\": %d, \"parameters\": %lld, \"steps\": %lld, "
                "\"skipped\": %lld",
                outcomes[r->outcome], (int)r->threads, (long long)r->parameter_count,
                (long long)r->steps, (long long)r->skipped);
        json_number(file, "train_loss", r->steps > 0 ? r->train_loss : NAN);
        json_number(file, "val_loss", r->val_loss);
        json_number(file, "tokens_per_second", r->tokens_per_second);
        json_number(file, "step_seconds_median", r->step_seconds);
        json_memory(file, "bytes_expected", r->memory_is_promised ? &r->expected : &r->measured);
        json_memory(file, "bytes_measured", &r->measured);
        if (r->ranks > 0) {
            json_ranks(file, r, o);
        }
        fprintf(file, ", \"peak_memory_bytes\": %lld}", (long long)r->peak_memory);
    }
    fputs("\n ]}\n", file);
}

FILE* report_open(const char* folder, const char* name, const char* mode) {
    const size_t length = strlen(folder) + strlen(name) + 2;
    char* path = malloc(length);
    if (path == NULL) {
        return NULL;
    }
    snprintf(path, length, "%s/%s", folder, name);
    FILE* file = fopen(path, mode);
    if (file == NULL) {
        fprintf(stderr, "train_gpt: cannot write '%s': %s\n", path, strerror(errno));
    }
    free(path);
    return file;
}

bool report_close(FILE* file, const char* folder, const char* name) {
    const bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) {
        fprintf(stderr, "train_gpt: cannot write '%s/%s': %s\n", folder, name, strerror(errno));
        return false;
    }
    return true;
}

bool report_files(const Run* runs, int count, const Options* options) {
    bool good = true;
    for (int which = 0; which < (options->monitor > 0 ? 4 : 3); which++) {
        static const char* const names[] = {"losses.csv", "losses.svg", "results.json",
                                            "monitor.svg"};
        FILE* file = report_open(options->out, names[which], "w");
        if (file == NULL) {
            return false;
        }
        switch (which) {
        case 0:
            write_csv(file, runs, count);
            break;
        case 1:
            svg_write(file, runs, count);
            break;
        case 2:
            write_json(file, runs, count, options);
            break;
        default:
            monitor_svg_write(file, runs, count);
            break;
        }
        good = report_close(file, options->out, names[which]) && good;
    }
    printf("\nCurves: %s/losses.svg and losses.csv; figures: %s/results.json\n", options->out,
           options->out);
    if (options->monitor > 0) {
        printf("Operands: %s/monitor.svg and monitor.csv\n", options->out);
    }
    return good;
}
