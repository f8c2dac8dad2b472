/* SPDX-License-Identifier: Apache-2.0
 * SVG without outside references: axes with round numbers, curves, legends. */
#include "plot.h"

#include <float.h>
#include <math.h>

/* Okabe and Ito's colours, which people with colour-blindness can tell apart; fp32 usually comes first. Behind the
 * eighth recipe they come again, dashed. */
static const char* const kColours[] = {"#000000", "#D55E00", "#0072B2", "#009E73",
                                       "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"};
static const char* const kDashes[] = {"none", "6 3", "2 2", "8 2 2 2"};
enum { COLOURS = 8, DASHES = 4 };

static void stroke(FILE* f, int recipe, double width) {
    fprintf(f, "stroke=\"%s\" stroke-dasharray=\"%s\" stroke-width=\"%.1f\"",
            kColours[recipe % COLOURS], kDashes[recipe / COLOURS % DASHES], width);
}

static double x_pixel(const Panel* p, double x) {
    return p->left + (x - p->x_low) / (p->x_high - p->x_low) * p->width;
}
static double y_pixel(const Panel* p, double y) {
    return p->top + (p->y_high - y) / (p->y_high - p->y_low) * p->height;
}

void plot_begin(FILE* f, int height, const char* heading) {
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"24\" font-size=\"16\">",
            PLOT_PAGE, height, PLOT_PAGE, height, PLOT_LEFT);
    plot_text(f, heading);
    fputs("</text>\n", f);
}

void plot_end(FILE* f) { fputs("</svg>\n", f); }

Panel plot_panel(double left, double top, double width, double height, int64_t steps) {
    const Panel p = {left,    top,     width, height, 0.0, steps > 1 ? (double)steps : 1.0,
                     DBL_MAX, -DBL_MAX};
    return p;
}

void plot_widen(Panel* p, const double* values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            p->y_low = fmin(p->y_low, values[i]);
            p->y_high = fmax(p->y_high, values[i]);
        }
    }
}

void plot_add_margin(Panel* p) {
    if (p->y_low > p->y_high) {
        p->y_low = p->y_high = 0.0;
    }
    const double margin = fmax(0.05 * (p->y_high - p->y_low), 1e-3);
    p->y_low -= margin;
    p->y_high += margin;
}

/* The distance of ticks that gives about `wanted` of them: 1, 2 or 5 times a power of ten. */
static double tick_step(double range, double wanted) {
    const double raw = range / wanted, power = pow(10.0, floor(log10(raw))), part = raw / power;
    return (part <= 1.0 ? 1.0 : part <= 2.0 ? 2.0 : part <= 5.0 ? 5.0 : 10.0) * power;
}

static void draw_y_axis(FILE* f, const Panel* p) {
    const double step = tick_step(p->y_high - p->y_low, 6.0);
    const double first = ceil(p->y_low / step) * step, last = p->y_high + step * 1e-6;
    fputs("<g stroke=\"#DDDDDD\" stroke-width=\"1\">\n", f);
    for (double y = first; y <= last; y += step) {
        fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", p->left,
                y_pixel(p, y), p->left + p->width, y_pixel(p, y));
    }
    fputs("</g>\n<g fill=\"#333333\" font-size=\"12\" text-anchor=\"end\">\n", f);
    for (double y = first; y <= last; y += step) {
        const double shown = fabs(y) < step * 1e-6 ? 0.0 : y; /* not -1e-17 */
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%.4g</text>\n", p->left - 8, y_pixel(p, y) + 4,
                shown);
    }
    fputs("</g>\n", f);
}

static void draw_x_axis(FILE* f, const Panel* p) {
    const double bottom = p->top + p->height;
    const double step = tick_step(p->x_high - p->x_low, p->width / 80.0);
    fputs("<g fill=\"#333333\" stroke=\"none\" font-size=\"12\" text-anchor=\"middle\">\n", f);
    for (double x = ceil(p->x_low / step) * step; x <= p->x_high + step * 1e-6; x += step) {
        fprintf(f, "<path d=\"M%.1f %.1fv5\" stroke=\"#333333\"/>\n", x_pixel(p, x), bottom);
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%.6g</text>\n", x_pixel(p, x), bottom + 20, x);
    }
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"13\">step</text>\n</g>\n",
            p->left + p->width / 2, bottom + 40);
}

void plot_axes(FILE* f, const Panel* p, const char* y_label) {
    const double bottom = p->top + p->height;
    draw_y_axis(f, p);
    draw_x_axis(f, p);
    if (y_label != NULL) {
        fprintf(f,
                "<text transform=\"translate(%.1f %.1f) rotate(-90)\" font-size=\"13\" "
                "fill=\"#333333\" text-anchor=\"middle\">%s</text>\n",
                p->left - 52, p->top + p->height / 2, y_label);
    }
    fprintf(f, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#333333\"/>\n", p->left,
            p->top, bottom, p->left + p->width);
}

void plot_curve(FILE* f, const Panel* p, const double* steps, const double* values, int64_t count,
                Pen pen) {
    /* At most about 2000 points: more than pixels, and a file that stays small. */
    const int64_t stride = count > 2000 ? count / 2000 : 1;
    bool pen_down = false;
    fputs("<path fill=\"none\" ", f);
    stroke(f, pen.recipe, pen.width);
    fprintf(f, " stroke-opacity=\"%.2f\" d=\"", pen.opacity);
    for (int64_t i = 0; i < count; i += stride) {
        if (!isfinite(values[i])) {
            pen_down = false;
            continue;
        }
        const double x = steps != NULL ? steps[i] : (double)i + 1.0;
        const double y = fmin(fmax(values[i], p->y_low), p->y_high);
        fprintf(f, "%c%.1f %.1f", pen_down ? 'L' : 'M', x_pixel(p, x), y_pixel(p, y));
        pen_down = true;
    }
    fputs("\"/>\n", f);
}

void plot_legend(FILE* f, double left, double y, double height, int recipe, const char* name,
                 const char* value) {
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", left, y - 4, left + 24,
            y - 4);
    stroke(f, recipe, 3.0);
    fprintf(f, "/>\n<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.0f\">", left + 32, y,
            fmin(13.0, height * 0.8));
    plot_text(f, name);
    plot_text(f, value != NULL ? value : "");
    fputs("</text>\n", f);
}

void plot_text(FILE* f, const char* s) {
    for (; *s != '\0'; s++) {
        switch (*s) {
        case '<':
            fputs("&lt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        default:
            fputc(*s, f);
        }
    }
}
