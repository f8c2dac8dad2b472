/* SPDX-License-Identifier: Apache-2.0
 * The monitor's curves: a column for each class of operands; the rows are its largest magnitude, the share that became
 * zero and the share that saturated. Sums over all layers; one curve for each recipe. */
#include <math.h>
#include <stdlib.h>

#include "plot.h"
#include "report.h"

typedef enum { AMAX, UNDERFLOWED, SATURATED, ROWS } Row;

enum { GAP = 55, HEIGHT = 190, LEGEND_LINE = 20 };

static double value_of(const MonitorCounts* c, Row row) {
    switch (row) {
    case AMAX:
        return log10(c->amax); /* 0 becomes -infinity, which is not drawn */
    case UNDERFLOWED:
        return 100.0 * (double)c->underflowed / (double)c->elements;
    default:
        return 100.0 * (double)c->saturated / (double)c->elements;
    }
}

/* steps and values of one curve; their number. */
static int64_t curve(double* steps, double* values, const Run* run, int operand, Row row) {
    for (int64_t i = 0; i < run->point_count; i++) {
        steps[i] = (double)run->points[i].step;
        values[i] = value_of(&run->points[i].operands[operand], row);
    }
    return run->point_count;
}

static void draw_panel(FILE* f, Panel* p, const Run* runs, int count, int operand, Row row,
                       double* work, int64_t most) {
    static const char* const labels[ROWS] = {"log10 of amax", "became zero (%)", "saturated (%)"};
    for (int i = 0; i < count; i++) {
        plot_widen(p, work + most, curve(work, work + most, &runs[i], operand, row));
    }
    plot_add_margin(p);
    plot_axes(f, p, operand == 0 ? labels[row] : NULL);
    for (int i = 0; i < count; i++) {
        const int64_t points = curve(work, work + most, &runs[i], operand, row);
        if (points > 0) {
            plot_curve(f, p, work, work + most, points, (Pen){i, 1.5, 1.0});
        }
    }
}

static void draw_columns(FILE* f, const Run* runs, int count, double* work, int64_t most,
                         int64_t steps) {
    static const char* const heads[] = {"inputs", "weights", "gradients of outputs"};
    const double width = (PLOT_WIDTH - 2.0 * GAP) / MP_OPERAND_COUNT;
    for (int operand = 0; operand < MP_OPERAND_COUNT; operand++) {
        const double left = PLOT_LEFT + operand * (width + GAP);
        fprintf(f, "<text x=\"%.1f\" y=\"50\" font-size=\"14\">%s</text>\n", left, heads[operand]);
        for (int row = 0; row < ROWS; row++) {
            Panel p = plot_panel(left, 60 + row * (HEIGHT + 60.0), width, HEIGHT, steps);
            draw_panel(f, &p, runs, count, operand, (Row)row, work, most);
        }
    }
}

void monitor_svg_write(FILE* f, const Run* runs, int count) {
    int64_t most = 1, steps = 1;
    int shown = 0, line = 0;
    for (int i = 0; i < count; i++) {
        most = runs[i].point_count > most ? runs[i].point_count : most;
        steps = runs[i].steps > steps ? runs[i].steps : steps;
        shown += runs[i].point_count > 0;
    }
    const int bottom = 60 + ROWS * (HEIGHT + 60);
    double* work = malloc(sizeof(double) * 2 * (size_t)most);
    plot_begin(f, bottom + LEGEND_LINE * ((shown + 1) / 2) + 20,
               shown > 0 ? "train_gpt: operands of the fp8 products, all layers together"
                         : "train_gpt: no recipe had fp8 products to monitor");
    if (work != NULL) {
        draw_columns(f, runs, count, work, most, steps);
        free(work);
    }
    for (int i = 0; i < count; i++) {
        if (runs[i].point_count > 0) { /* in two columns */
            const int y = bottom + line / 2 * LEGEND_LINE;
            plot_legend(f, PLOT_LEFT + line % 2 * (PLOT_WIDTH / 2.0), y, LEGEND_LINE, i,
                        runs[i].recipe, NULL);
            line++;
        }
    }
    plot_end(f);
}
