/* SPDX-License-Identifier: Apache-2.0
 * The monitor of the linear layers. */
#include "monitor.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

static const char* const kFile = "monitor.csv";
static const char* const kOperands[MP_OPERAND_COUNT] = {"input", "weight", "grad_output"};

bool monitor_prepare_file(const Options* o) {
    FILE* file = report_open(o->out, kFile, "w");
    if (file == NULL) {
        return false;
    }
    fputs("recipe,step,layer,tensor,dtype,elements,amax,scale_inv,saturated,underflowed,non_finite,"
          "history_amax\n",
          file);
    return report_close(file, o->out, kFile);
}

/* Room for one more entry of `size` bytes; NULL when there is none. */
static void* grow(void* list, int64_t count, int64_t* capacity, size_t size) {
    if (count < *capacity) {
        return list;
    }
    const int64_t wanted = *capacity > 0 ? 2 * *capacity : 64;
    void* larger = realloc(list, (size_t)wanted * size);
    if (larger != NULL) {
        *capacity = wanted;
    }
    return larger;
}

/* NaN beats infinity beats numbers. */
static double larger_amax(double a, double b) { return isnan(a) || a > b ? a : b; }

static void add_to_point(Monitor* m, const mp_linear_stats_info* s) {
    if (m->point_count == 0 || m->points[m->point_count - 1].step != m->step) {
        MonitorPoint* points =
            grow(m->points, m->point_count, &m->point_capacity, sizeof *m->points);
        if (points == NULL) {
            m->out_of_memory = true;
            return;
        }
        m->points = points;
        m->points[m->point_count++] = (MonitorPoint){.step = m->step};
    }
    MonitorCounts* counts = &m->points[m->point_count - 1].operands[s->operand];
    counts->elements += s->elements;
    counts->saturated += s->saturated;
    counts->underflowed += s->underflowed;
    counts->amax = larger_amax(s->amax, counts->amax);
}

/* "input: 0.02 % saturated: raise fp8.margin": behind the last colon is what stays the same. */
static const char* remedy(const char* advice) {
    const char* colon = strrchr(advice, ':');
    return colon != NULL ? colon : advice;
}

static void add_advice(Monitor* m, const char* layer, int32_t operand, const char* text) {
    int64_t i = 0;
    while (i < m->advice_count &&
           (strcmp(m->advice[i].layer, layer) != 0 || m->advice[i].operand != operand ||
            strcmp(remedy(m->advice[i].text), remedy(text)) != 0)) {
        i++;
    }
    if (i == m->advice_count) {
        MonitorAdvice* advice =
            grow(m->advice, m->advice_count, &m->advice_capacity, sizeof *m->advice);
        if (advice == NULL) {
            m->out_of_memory = true;
            return;
        }
        m->advice = advice;
        m->advice[m->advice_count++] = (MonitorAdvice){.operand = operand};
        snprintf(m->advice[i].layer, sizeof m->advice[i].layer, "%s", layer);
    }
    m->advice[i].times++;
    snprintf(m->advice[i].text, sizeof m->advice[i].text, "%s", text);
}

static void write_row(const Monitor* m, const char* layer, const mp_linear_stats_info* s) {
    const double elements = (double)s->elements;
    fprintf(m->csv, "%s,%lld,%s,%s,%s,%lld,%.7g,", m->recipe, (long long)m->step, layer,
            kOperands[s->operand], mp_dtype_name(s->dtype), (long long)s->elements, s->amax);
    if (s->history_len > 0) { /* other scalings have no scale that lasts */
        fprintf(m->csv, "%.7g", s->scale_inv);
    }
    fprintf(m->csv, ",%.7g,%.7g,%lld,", (double)s->saturated / elements,
            (double)s->underflowed / elements, (long long)s->non_finite);
    if (s->history_len > 0) {
        fprintf(m->csv, "%.7g", s->history_amax);
    }
    fputc('\n', m->csv);
}

static void on_stats(void* payload, const char* layer, const mp_linear_stats_info* s,
                     const char* advice) {
    Monitor* m = payload;
    if (s->elements == 0) {
        return;
    }
    write_row(m, layer, s);
    add_to_point(m, s);
    if (advice != NULL) {
        add_advice(m, layer, s->operand, advice);
    }
}

bool monitor_start(Monitor* m, const Options* o, const char* recipe, const Network* net) {
    memset(m, 0, sizeof *m);
    m->recipe = recipe;
    if (o->monitor == 0) {
        return true;
    }
    m->csv = report_open(o->out, kFile, "a");
    if (m->csv == NULL) {
        return false;
    }
    for (int32_t i = 0; i < net->linear_count; i++) {
        char name[32];
        network_linear_name(net, i, name, sizeof name);
        TRY(mp_linear_set_monitor(net->linears[i], name, (int32_t)o->monitor, on_stats, m));
    }
    return true;
}

static void print_advice(const Monitor* m) {
    if (m->advice_count > 0) {
        printf("\nWhat %s's operands went through (--monitor):\n", m->recipe);
    }
    for (int64_t i = 0; i < m->advice_count; i++) {
        const MonitorAdvice* a = &m->advice[i];
        printf("advice: %s %s", a->layer, a->text);
        if (a->times > 1) {
            printf(" (the last of %lld times)", (long long)a->times);
        }
        putchar('\n');
    }
    fflush(stdout);
}

bool monitor_finish(Monitor* m) {
    if (m->csv == NULL) {
        return true;
    }
    print_advice(m);
    const bool written = ferror(m->csv) == 0 && fflush(m->csv) == 0;
    if (!written) {
        fprintf(stderr, "train_gpt: cannot write '%s': %s\n", kFile, strerror(errno));
    }
    if (m->out_of_memory) {
        fputs("train_gpt: out of memory for what the monitor tells\n", stderr);
    }
    return written && !m->out_of_memory;
}

MonitorPoint* monitor_points(Monitor* m, int64_t* count) {
    MonitorPoint* points = m->points;
    *count = m->point_count;
    m->points = NULL;
    m->point_count = m->point_capacity = 0;
    return points;
}

void monitor_stop(Monitor* m) {
    if (m->csv != NULL) {
        fclose(m->csv);
    }
    free(m->points);
    free(m->advice);
    memset(m, 0, sizeof *m);
}
