/* SPDX-License-Identifier: Apache-2.0
 * The progress line, on stderr. */
#include "progress.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void progress_begin(Progress* p, const char* name, int64_t steps) {
    *p = (Progress){.name = name,
                    .steps = steps,
                    .terminal = isatty(STDERR_FILENO) == 1,
                    .start = omp_get_wtime()};
}

static void format_bar(char* bar, int width, double part) {
    for (int i = 0; i < width; i++) {
        bar[i] = (double)i < part * width ? '#' : '.';
    }
    bar[width] = '\0';
}

void progress_update(Progress* p, int64_t done, double loss, double tokens_per_second,
                     double loss_scale, double grad_norm, int64_t skipped) {
    const double now = omp_get_wtime();
    if (now - p->last < (p->terminal ? 0.2 : 5.0) && done < p->steps && done > 1) {
        return;
    }
    p->last = now;
    const double left = (now - p->start) / (double)done * (double)(p->steps - done);
    char bar[32], extra[64] = "";
    format_bar(bar, 20, (double)done / (double)p->steps);
    if (loss_scale != 1.0 || skipped > 0) {
        snprintf(extra, sizeof extra, "  scale %.6g  skipped %lld", loss_scale, (long long)skipped);
    }
    fprintf(stderr, "%s%-16s [%s] %lld/%lld  loss %.4f  %.0f tok/s  norm %.3g%s  eta %d:%02d%s",
            p->terminal ? "\r" : "", p->name, bar, (long long)done, (long long)p->steps, loss,
            tokens_per_second, grad_norm, extra, (int)(left / 60.0), (int)left % 60,
            p->terminal ? "\033[K" : "\n");
    fflush(stderr);
    p->drawn = p->terminal;
}

void progress_end(Progress* p) {
    if (p->drawn) {
        fputc('\n', stderr);
        p->drawn = false;
    }
}
