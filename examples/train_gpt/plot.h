/* SPDX-License-Identifier: Apache-2.0
 * Curves over steps as SVG: axes, lines, legends. What is drawn is in svg.c (losses) and monitor_svg.c. */
#ifndef TRAIN_GPT_PLOT_H
#define TRAIN_GPT_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One set of axes, in pixels and in data. */
typedef struct {
    double left, top, width, height;
    double x_low, x_high, y_low, y_high;
} Panel;

enum { PLOT_PAGE = 900, PLOT_LEFT = 70, PLOT_WIDTH = 800 };

/* The file's frame, with a white page and a heading. */
void plot_begin(FILE* f, int height, const char* heading);
void plot_end(FILE* f);

/* A panel for steps up to `steps`, without a range of values yet: plot_widen for every curve, then plot_add_margin. */
Panel plot_panel(double left, double top, double width, double height, int64_t steps);
void plot_widen(Panel* p, const double* values, int64_t count);
void plot_add_margin(Panel* p);

/* y_label may be NULL. */
void plot_axes(FILE* f, const Panel* p, const char* y_label);

/* How a curve looks: the colour and dashes of recipe number `recipe`. */
typedef struct {
    int recipe;
    double width, opacity;
} Pen;

/* Values that are not finite break the line; those outside the panel are cut to its border. steps NULL: 1, 2, 3, ... */
void plot_curve(FILE* f, const Panel* p, const double* steps, const double* values, int64_t count,
                Pen pen);

/* A line of a legend, `height` pixels high: the curve's look, its name and, unless NULL, a value. */
void plot_legend(FILE* f, double left, double y, double height, int recipe, const char* name,
                 const char* value);

/* Escapes what XML would take for markup. */
void plot_text(FILE* f, const char* s);

#endif
