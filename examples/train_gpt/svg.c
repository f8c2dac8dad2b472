/* SPDX-License-Identifier: Apache-2.0
 * The loss curves: above, the training loss of every recipe, thin as it came and bold smoothed; below, where there is
 * an fp32 run, how far the others' smoothed curves are from its. */
#include <math.h>
#include <stdlib.h>

#include "plot.h"
#include "report.h"

enum { SMOOTHING = 20 };

/* A running mean over the last SMOOTHING steps (fewer at the start). */
static void smooth(double* out, const float* losses, int64_t count) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (i % 1000 == 0 || !isfinite(sum)) { /* start the sum afresh against drift */
            sum = 0.0;
            for (int64_t j = i < SMOOTHING ? 0 : i - SMOOTHING; j < i; j++) {
                sum += (double)losses[j];
            }
        }
        sum += (double)losses[i];
        sum -= i >= SMOOTHING ? (double)losses[i - SMOOTHING] : 0.0;
        out[i] = sum / (double)(i < SMOOTHING ? i + 1 : SMOOTHING);
    }
}

static Pen thin(int recipe) { return (Pen){recipe, 0.8, 0.25}; }
static Pen bold(int recipe) { return (Pen){recipe, 2.0, 1.0}; }

static void draw_legend(FILE* f, const Panel* p, const Run* runs, int count) {
    const double height = fmin(20.0, (p->height - 20.0) / count);
    for (int i = 0; i < count; i++) {
        char value[40] = "";
        if (isfinite(runs[i].val_loss)) {
            snprintf(value, sizeof value, ": validation %.4f", runs[i].val_loss);
        }
        plot_legend(f, p->left + p->width - 300, p->top + 20 + height * i, height, i,
                    runs[i].recipe, value);
    }
}

static void draw_losses(FILE* f, Panel* p, const Run* runs, int count, double* raw,
                        double* smoothed) {
    for (int i = 0; i < count; i++) {
        smooth(smoothed, runs[i].losses, runs[i].steps);
        plot_widen(p, smoothed, runs[i].steps);
    }
    plot_add_margin(p);
    plot_axes(f, p, "training loss (nats a byte)");
    for (int i = 0; i < count; i++) {
        for (int64_t step = 0; step < runs[i].steps; step++) {
            raw[step] = (double)runs[i].losses[step];
        }
        plot_curve(f, p, NULL, raw, runs[i].steps, thin(i));
        smooth(smoothed, runs[i].losses, runs[i].steps);
        plot_curve(f, p, NULL, smoothed, runs[i].steps, bold(i));
    }
    draw_legend(f, p, runs, count);
}

static void draw_gaps(FILE* f, Panel* p, const Run* runs, int count, const Run* baseline,
                      double* base, double* gap) {
    smooth(base, baseline->losses, baseline->steps);
    for (int pass = 0; pass < 2; pass++) { /* first the range, then the curves */
        for (int i = 0; i < count; i++) {
            const int64_t steps = runs[i].steps < baseline->steps ? runs[i].steps : baseline->steps;
            smooth(gap, runs[i].losses, steps);
            for (int64_t step = 0; step < steps; step++) {
                gap[step] = (gap[step] / base[step] - 1.0) * 100.0;
            }
            if (pass == 0) {
                plot_widen(p, gap, steps);
            } else {
                plot_curve(f, p, NULL, gap, steps, bold(i));
            }
        }
        if (pass == 0) {
            plot_add_margin(p);
            plot_axes(f, p, "gap to fp32 (%)");
        }
    }
}

void svg_write(FILE* f, const Run* runs, int count) {
    const Run* baseline = count > 1 ? report_baseline(runs, count) : NULL;
    int64_t steps = 1;
    for (int i = 0; i < count; i++) {
        steps = runs[i].steps > steps ? runs[i].steps : steps;
    }
    double* work = malloc(sizeof(double) * 2 * (size_t)steps);
    char heading[64];
    snprintf(heading, sizeof heading, "train_gpt: bold is the mean of the last %d steps",
             SMOOTHING);
    plot_begin(f, baseline != NULL ? 700 : 460, heading);
    if (work != NULL) {
        Panel top = plot_panel(PLOT_LEFT, 40, PLOT_WIDTH, 360, steps);
        draw_losses(f, &top, runs, count, work, work + steps);
        if (baseline != NULL) {
            Panel bottom = plot_panel(PLOT_LEFT, 470, PLOT_WIDTH, 170, steps);
            draw_gaps(f, &bottom, runs, count, baseline, work, work + steps);
        }
        free(work);
    }
    plot_end(f);
}
