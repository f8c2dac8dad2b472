/* SPDX-License-Identifier: Apache-2.0
 * The loss curves as one SVG file without outside references: above, the training loss of every recipe, thin as it came
 * and bold smoothed; below, where there is an fp32 run, how far the others' smoothed curves are from its. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "report.h"

/* One set of axes, in pixels and in data. */
typedef struct {
    double left, top, width, height;
    double x_low, x_high, y_low, y_high;
} Panel;

enum { WIDTH = 900, LEFT = 70, PLOT_WIDTH = 800, SMOOTHING = 20 };

/* Okabe and Ito's colours, which people with colour-blindness can tell apart; fp32 usually comes first. */
static const char* const kColours[] = {"#000000", "#D55E00", "#0072B2", "#009E73",
                                       "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"};

static const char* colour(int index) { return kColours[index % 8]; }

static double x_pixel(const Panel* p, double x) {
    return p->left + (x - p->x_low) / (p->x_high - p->x_low) * p->width;
}
static double y_pixel(const Panel* p, double y) {
    return p->top + (p->y_high - y) / (p->y_high - p->y_low) * p->height;
}

/* The distance of ticks that gives about `wanted` of them: 1, 2 or 5 times a power of ten. */
static double tick_step(double range, int wanted) {
    const double raw = range / wanted, power = pow(10.0, floor(log10(raw))), part = raw / power;
    return (part <= 1.0 ? 1.0 : part <= 2.0 ? 2.0 : part <= 5.0 ? 5.0 : 10.0) * power;
}

static void draw_axes(FILE* f, const Panel* p, const char* y_label, bool x_numbers) {
    const double bottom = p->top + p->height, right = p->left + p->width;
    const double y_step = tick_step(p->y_high - p->y_low, 6),
                 x_step = tick_step(p->x_high - p->x_low, 10);
    fputs("<g stroke=\"#DDDDDD\" stroke-width=\"1\">\n", f);
    for (double y = ceil(p->y_low / y_step) * y_step; y <= p->y_high + y_step * 1e-6; y += y_step) {
        fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", p->left,
                y_pixel(p, y), right, y_pixel(p, y));
    }
    fputs("</g>\n<g fill=\"#333333\" font-size=\"12\" text-anchor=\"end\">\n", f);
    for (double y = ceil(p->y_low / y_step) * y_step; y <= p->y_high + y_step * 1e-6; y += y_step) {
        const double shown = fabs(y) < y_step * 1e-6 ? 0.0 : y; /* not -1e-17 */
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%.4g</text>\n", p->left - 8, y_pixel(p, y) + 4,
                shown);
    }
    fputs("</g>\n<g fill=\"#333333\" stroke=\"none\" font-size=\"12\" text-anchor=\"middle\">\n",
          f);
    for (double x = ceil(p->x_low / x_step) * x_step; x <= p->x_high + x_step * 1e-6; x += x_step) {
        fprintf(f, "<path d=\"M%.1f %.1fv5\" stroke=\"#333333\"/>\n", x_pixel(p, x), bottom);
        if (x_numbers) {
            fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">%.6g</text>\n", x_pixel(p, x), bottom + 20, x);
        }
    }
    if (x_numbers) {
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"13\">step</text>\n",
                p->left + p->width / 2, bottom + 40);
    }
    fprintf(f,
            "<text transform=\"translate(18 %.1f) rotate(-90)\" font-size=\"13\">%s</text>\n</g>\n",
            p->top + p->height / 2, y_label);
    fprintf(f, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"#333333\"/>\n", p->left,
            p->top, bottom, right);
}

/* Values that are not finite break the line; those outside the panel are cut to its border. */
static void draw_curve(FILE* f, const Panel* p, const double* values, int64_t count,
                       const char* stroke, double width, double opacity) {
    /* At most about 2000 points: more than pixels, and a file that stays small. */
    const int64_t stride = count > 2000 ? count / 2000 : 1;
    bool pen_down = false;
    fprintf(f,
            "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-opacity=\"%.2f\" d=\"",
            stroke, width, opacity);
    for (int64_t i = 0; i < count; i += stride) {
        if (!isfinite(values[i])) {
            pen_down = false;
            continue;
        }
        const double y = fmin(fmax(values[i], p->y_low), p->y_high);
        fprintf(f, "%c%.1f %.1f", pen_down ? 'L' : 'M', x_pixel(p, (double)i + 1.0), y_pixel(p, y));
        pen_down = true;
    }
    fputs("\"/>\n", f);
}

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

static void text(FILE* f, const char* s) {
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

static void draw_legend(FILE* f, const Panel* p, const Run* runs, int count) {
    for (int i = 0; i < count; i++) {
        const double x = p->left + p->width - 250, y = p->top + 20 + 20 * i;
        fprintf(f,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                "stroke-width=\"3\"/>\n",
                x, y - 4, x + 24, y - 4, colour(i));
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"13\">", x + 32, y);
        text(f, runs[i].recipe);
        if (isfinite(runs[i].val_loss)) {
            fprintf(f, ": validation %.4f", runs[i].val_loss);
        }
        fputs("</text>\n", f);
    }
}

static void widen(Panel* p, const double* values, int64_t first, int64_t count) {
    for (int64_t i = first; i < count; i++) {
        if (isfinite(values[i])) {
            p->y_low = fmin(p->y_low, values[i]);
            p->y_high = fmax(p->y_high, values[i]);
        }
    }
}

static void add_margin(Panel* p) {
    if (p->y_low > p->y_high) {
        p->y_low = p->y_high = 0.0;
    }
    const double margin = fmax(0.05 * (p->y_high - p->y_low), 1e-3);
    p->y_low -= margin;
    p->y_high += margin;
}

static Panel new_panel(double top, double height, int64_t steps) {
    const Panel p = {LEFT,    top,     PLOT_WIDTH, height, 0.0, steps > 1 ? (double)steps : 1.0,
                     DBL_MAX, -DBL_MAX};
    return p;
}

static void draw_losses(FILE* f, Panel* p, const Run* runs, int count, double* raw,
                        double* smoothed) {
    for (int i = 0; i < count; i++) {
        smooth(smoothed, runs[i].losses, runs[i].steps);
        widen(p, smoothed, 0, runs[i].steps);
    }
    add_margin(p);
    draw_axes(f, p, "training loss (nats a byte)", true);
    for (int i = 0; i < count; i++) {
        for (int64_t step = 0; step < runs[i].steps; step++) {
            raw[step] = (double)runs[i].losses[step];
        }
        draw_curve(f, p, raw, runs[i].steps, colour(i), 0.8, 0.25);
        smooth(smoothed, runs[i].losses, runs[i].steps);
        draw_curve(f, p, smoothed, runs[i].steps, colour(i), 2.0, 1.0);
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
                widen(p, gap, 0, steps);
            } else {
                draw_curve(f, p, gap, steps, colour(i), 2.0, 1.0);
            }
        }
        if (pass == 0) {
            add_margin(p);
            draw_axes(f, p, "gap to fp32 (%)", true);
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
    const int height = baseline != NULL ? 700 : 460;
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
        "%d\" "
        "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        WIDTH, height, WIDTH, height);
    fprintf(f,
            "<text x=\"%d\" y=\"24\" font-size=\"16\">train_gpt: bold is the mean of the last %d "
            "steps</text>\n",
            LEFT, SMOOTHING);
    if (work != NULL) {
        Panel top = new_panel(40, 360, steps);
        draw_losses(f, &top, runs, count, work, work + steps);
        if (baseline != NULL) {
            Panel bottom = new_panel(470, 170, steps);
            draw_gaps(f, &bottom, runs, count, baseline, work, work + steps);
        }
        free(work);
    }
    fputs("</svg>\n", f);
}
