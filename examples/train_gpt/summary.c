/* SPDX-License-Identifier: Apache-2.0
 * What a run came to, in figures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "run.h"

static int compare_doubles(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

void summary_of_steps(Run* run, double* step_seconds) {
    const int64_t last = run->steps < 20 ? run->steps : 20;
    if (last == 0) {
        return;
    }
    for (int64_t i = run->steps - last; i < run->steps; i++) {
        run->train_loss += (double)run->losses[i] / (double)last;
    }
    qsort(step_seconds, (size_t)run->steps, sizeof(double), compare_doubles);
    run->step_seconds = step_seconds[run->steps / 2];
}

/* The most this process had resident: VmHWM where there is /proc, because getrusage's number survives exec. */
int64_t summary_peak_memory(void) {
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

bool summary_of_ranks(Run* run, const Ranks* ranks, Sent sent) {
    enum { FIGURES = 4 };
    const int32_t count = ranks->count;
    double* all = calloc((size_t)count * FIGURES, sizeof *all);
    if (all == NULL) {
        fputs("train_gpt: out of memory for what ranks tell\n", stderr);
        return false;
    }
    const double steps = sent.steps > 0.0 ? sent.steps : 1.0;
    const double mine[FIGURES] = {(double)run->measured.total_bytes,
                                  (double)run->expected.total_bytes, sent.counted / steps,
                                  sent.expected / steps};
    memcpy(all + (int64_t)ranks->rank * FIGURES, mine, sizeof mine);
    const bool good = ranks_share(ranks, all, (int64_t)count * FIGURES);
    run->ranks = ranks->comm != NULL ? count : 0;
    for (int32_t i = 0; i < count; i++) {
        const double* one = all + (int64_t)i * FIGURES;
        run->rank_bytes_held = fmax(run->rank_bytes_held, one[0]);
        run->rank_bytes_planned = fmax(run->rank_bytes_planned, one[1]);
        run->wire_counted += one[2] / (double)count;
        run->wire_expected += one[3] / (double)count;
    }
    free(all);
    return good;
}
