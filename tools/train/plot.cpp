// SPDX-License-Identifier: Apache-2.0
// Axes, curves and legends.
#include "plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "support.hpp"
#include "text.hpp"

namespace train {
namespace {

// Okabe and Ito's colours, which people with colour-blindness can tell apart; fp32 usually comes first. Behind the
// eighth recipe they come again, dashed.
constexpr std::array kColours{"#000000", "#D55E00", "#0072B2", "#009E73",
                              "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"};
constexpr std::array kDashes{"none", "6 3", "2 2", "8 2 2 2"};

constexpr double kFont = 12.0;
constexpr double kDigit = 0.62 * kFont; // wider than a digit of a usual sans-serif font
constexpr double kGap = 8.0;            // between an axis, its labels and its title

std::string stroke(size_t recipe, double width) {
    return format(R"(stroke="%s" stroke-dasharray="%s" stroke-width="%.1f")",
                  kColours.at(recipe % kColours.size()),
                  kDashes.at(recipe / kColours.size() % kDashes.size()), width);
}

// The distance of ticks that gives about `wanted` of them: 1, 2 or 5 times a power of ten.
double tick_step(double range, double wanted) {
    const double raw = range / wanted, power = std::pow(10.0, std::floor(std::log10(raw)));
    const double part = raw / power;
    return (part <= 1.0 ? 1.0 : part <= 2.0 ? 2.0 : part <= 5.0 ? 5.0 : 10.0) * power;
}

std::vector<double> ticks(double low, double high, double wanted) {
    const double step = tick_step(high - low, wanted);
    std::vector<double> values;
    for (double number = std::ceil(low / step); number * step <= high + step * 1e-6;
         number += 1.0) {
        values.push_back(number * step + 0.0); // not -0
    }
    return values;
}

} // namespace

Panel::Panel(double left, double top, double width, double height, double steps)
    : left_(left), top_(top), width_(width), height_(height), steps_(std::max(steps, 1.0)),
      low_(std::numeric_limits<double>::max()), high_(std::numeric_limits<double>::lowest()) {}

void Panel::widen(const std::vector<double>& values) {
    for (const double value : values) {
        if (std::isfinite(value)) {
            low_ = std::min(low_, value);
            high_ = std::max(high_, value);
        }
    }
}

void Panel::fit() {
    if (low_ > high_) { // there were no values
        low_ = high_ = 0.0;
    }
    const double margin = std::max(0.05 * (high_ - low_), 1e-3);
    low_ -= margin;
    high_ += margin;
}

void Panel::fit_shares() {
    low_ = 0.0;
    high_ = high_ > 0.0 ? std::min(1.05 * high_, 100.0) : 1.0;
}

std::vector<double> Panel::y_ticks() const { return ticks(low_, high_, height_ / 45.0); }

std::string Panel::x_axis() const {
    const double bottom = top_ + height_;
    std::string text = "<g fill=\"#333333\" font-size=\"12\" text-anchor=\"middle\">\n";
    for (const double step : ticks(0.0, steps_, width_ / 80.0)) {
        text += format("<path d=\"M%.1f %.1fv5\" stroke=\"#333333\"/>\n", x(step), bottom) +
                svg_text(x(step), bottom + 20, kFont, format("%.6g", step));
    }
    return text + svg_text(left_ + width_ / 2, bottom + 40, 13, "step") + "</g>\n";
}

std::string Panel::axes(const std::string& y_label) const {
    std::string lines, labels;
    size_t longest = 0;
    for (const double value : y_ticks()) {
        const std::string label = format("%.4g", value);
        longest = std::max(longest, label.size());
        lines += format("<path d=\"M%.1f %.1fH%.1f\"/>\n", left_, y(value), right());
        labels += svg_text(left_ - kGap, y(value) + 4, kFont, label);
    }
    std::string text = "<g stroke=\"#DDDDDD\">\n" + lines +
                       "</g>\n<g fill=\"#333333\" text-anchor=\"end\">\n" + labels + "</g>\n" +
                       x_axis();
    if (!y_label.empty()) { // left of the longest label
        const double base = left_ - 2 * kGap - kDigit * real(longest);
        text += format("<text transform=\"translate(%.1f %.1f) rotate(-90)\" font-size=\"13\" "
                       "fill=\"#333333\" text-anchor=\"middle\">%s</text>\n",
                       base, top_ + height_ / 2, escaped(y_label).c_str());
    }
    return text + format("<path class=\"axes\" d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" "
                         "stroke=\"#333333\"/>\n",
                         left_, top_, top_ + height_, right());
}

std::string Panel::curve(const std::vector<double>& steps, const std::vector<double>& values,
                         Pen pen) const {
    // At most about 2000 points: more than pixels, and a file that stays small.
    const size_t stride = std::max<size_t>(values.size() / 2000, 1);
    bool down = false;
    std::string text = "<path fill=\"none\" " + stroke(pen.recipe, pen.width) +
                       format(" stroke-opacity=\"%.2f\" d=\"", pen.opacity);
    for (size_t i = 0; i < values.size(); i += stride) {
        if (std::isfinite(values[i])) {
            const double step = steps.empty() ? real(i) + 1.0 : steps[i];
            text += format("%c%.1f %.1f", down ? 'L' : 'M', x(step), y(values[i]));
        }
        down = std::isfinite(values[i]);
    }
    return text + "\"/>\n";
}

std::vector<double> smooth(const std::vector<double>& losses) {
    std::vector<double> means(losses.size());
    for (size_t i = 0; i < losses.size(); i++) {
        const size_t before = std::min(kMeanSteps / 2, i);
        const size_t last = std::min(i + before, losses.size() - 1);
        double sum = 0.0;
        for (size_t j = i - before; j <= last; j++) {
            sum += losses[j];
        }
        means[i] = sum / real(last - (i - before) + 1);
    }
    return means;
}

std::string gap_panel(const std::vector<std::vector<double>>& means, size_t reference,
                      const std::string& name, double steps) {
    Panel p(kPlotLeft, 470, kPlotWidth, 170, steps);
    std::vector<std::vector<double>> gaps = means;
    for (std::vector<double>& gap : gaps) {
        gap.resize(std::min(gap.size(), means[reference].size()));
        for (size_t step = 0; step < gap.size(); step++) {
            gap[step] = (gap[step] / means[reference][step] - 1.0) * 100.0;
        }
        p.widen(gap);
    }
    p.fit();
    std::string text = p.axes("gap to " + name + " (%)");
    for (size_t i = 0; i < gaps.size(); i++) {
        text += p.curve({}, gaps[i], {i, 2.0, 1.0});
    }
    return text;
}

std::string svg_text(double x, double y, double size, const std::string& text) {
    return format("<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.0f\">", x, y, size) + escaped(text) +
           "</text>\n";
}

std::string svg_page(double height, const std::string& heading, const std::string& content) {
    return format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                  "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  kPage, height, kPage, height) +
           svg_text(kPlotLeft, 24, 16, heading) + content + "</svg>\n";
}

std::string svg_legend(double left, double top, double width, double line,
                       const std::vector<LegendEntry>& entries) {
    std::string text =
        format("<g class=\"legend\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
               "fill=\"white\" fill-opacity=\"0.8\"/>\n",
               left, top, width, line * real(entries.size()) + 4.0);
    double base = top;
    for (const LegendEntry& entry : entries) {
        base += line;
        text += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", left + 4, base - 4,
                       left + 28, base - 4) +
                stroke(entry.recipe, 3) + "/>\n" +
                svg_text(left + 36, base, std::min(13.0, line * 0.8), entry.text);
    }
    return text + "</g>\n";
}

} // namespace train
