// SPDX-License-Identifier: Apache-2.0
// losses.svg: above, the training loss of every recipe, faint as it came and bold smoothed; below, where there is an fp32
// run, how far the others' smoothed curves are from its.
// monitor.svg: a column for each class of operands; the rows are its largest magnitude, the share that became zero and the
// share that saturated. Sums over all layers; one curve for each recipe.
#include <algorithm>
#include <array>
#include <cmath>

#include "plot.hpp"
#include "report.hpp"

namespace train {
namespace {

using Values = std::vector<double>;

Pen faint(size_t recipe) { return {recipe, 1.0, 0.3}; }
Pen bold(size_t recipe) { return {recipe, 2.0, 1.0}; }

std::string legend_of(const Panel& p, const std::vector<Run>& runs) {
    std::vector<LegendEntry> entries(runs.size());
    for (size_t i = 0; i < runs.size(); i++) {
        const double loss = runs[i].val_loss;
        entries[i] = {i, runs[i].recipe +
                             (std::isfinite(loss) ? format(": validation %.4f", loss) : "")};
    }
    const double line = std::min(20.0, 340.0 / real(entries.size()));
    return svg_legend(p.right() - 300, p.top() + 4, 300, line, entries);
}

std::string draw_losses(const std::vector<Run>& runs, const std::vector<Values>& raw,
                        const std::vector<Values>& means, double steps) {
    Panel p(kPlotLeft, 40, kPlotWidth, 360, steps);
    for (const Values& losses : raw) { // the means lie between them
        p.widen(losses);
    }
    p.fit();
    std::string text = p.axes("training loss (nats a byte)");
    for (size_t i = 0; i < runs.size(); i++) {
        text += p.curve({}, raw[i], faint(i));
    }
    for (size_t i = 0; i < runs.size(); i++) {
        text += p.curve({}, means[i], bold(i));
    }
    return text + legend_of(p, runs);
}

enum Quantity { kAmax, kUnderflowed, kSaturated, kQuantities };

double value_of(const MonitorCounts& c, Quantity quantity) {
    const auto elements = real(c.elements);
    switch (quantity) {
    case kAmax:
        return std::log10(c.amax); // 0 becomes -infinity, which is not drawn
    case kUnderflowed:
        return 100.0 * real(c.underflowed) / elements;
    default:
        return 100.0 * real(c.saturated) / elements;
    }
}

std::string draw_panel(Panel p, const std::vector<Run>& runs, size_t operand, Quantity quantity) {
    constexpr std::array kLabels{"log10 of amax", "became zero (%)", "saturated (%)"};
    std::vector<Values> steps(runs.size()), values(runs.size());
    for (size_t i = 0; i < runs.size(); i++) {
        for (const MonitorPoint& point : runs[i].points) {
            steps[i].push_back(real(point.step));
            values[i].push_back(value_of(point.operands.at(operand), quantity));
        }
        p.widen(values[i]);
    }
    if (quantity == kAmax) {
        p.fit();
    } else {
        p.fit_shares();
    }
    std::string text = p.axes(operand == 0 ? kLabels.at(quantity) : "");
    for (size_t i = 0; i < runs.size(); i++) {
        text += values[i].empty() ? "" : p.curve(steps[i], values[i], {i, 1.5, 1.0});
    }
    return text;
}

double longest(const std::vector<Run>& runs) {
    int64_t steps = 1;
    for (const Run& run : runs) {
        steps = std::max(steps, run.steps);
    }
    return real(steps);
}

} // namespace

std::string losses_svg(const std::vector<Run>& runs) {
    const Run* baseline = runs.size() > 1 ? baseline_of(runs) : nullptr;
    std::vector<Values> raw, means;
    for (const Run& run : runs) {
        raw.emplace_back(run.losses.begin(), run.losses.end());
        means.push_back(smooth(raw.back()));
    }
    std::string content = draw_losses(runs, raw, means, longest(runs));
    if (baseline != nullptr) {
        content += gap_panel(means, size(baseline - runs.data()), "fp32", longest(runs));
    }
    return svg_page(
        baseline != nullptr ? kHeightWithGaps : 460,
        join("Training loss: faint, each step; bold, the mean of up to ", kMeanSteps, " steps"),
        content);
}

std::string scales_svg(const std::vector<Run>& runs) {
    Panel p(kPlotLeft, 40, kPlotWidth, 170, longest(runs));
    std::vector<Values> scales;
    std::vector<LegendEntry> entries;
    for (size_t i = 0; i < runs.size(); i++) {
        Values& values = scales.emplace_back();
        for (const float scale : runs[i].scales) {
            values.push_back(std::log2(real(scale)));
        }
        p.widen(values);
        entries.push_back({i, runs[i].recipe});
    }
    p.fit();
    std::string content = p.axes("log2 of the scale");
    for (size_t i = 0; i < runs.size(); i++) {
        content += p.curve({}, scales[i], bold(i));
    }
    return svg_page(270 + 20 * real(entries.size()), "Loss scale of each step",
                    content + svg_legend(kPlotLeft, 260, kPlotWidth, 20, entries));
}

std::string monitor_svg(const std::vector<Run>& runs) {
    constexpr std::array kHeads{"inputs", "weights", "gradients of outputs, scaled"};
    constexpr double kGap = 70, kTop = 60, kHeight = 190, kRow = kHeight + 60, kLine = 20;
    const double width = (kPlotWidth - 2.0 * kGap) / double{MP_OPERAND_COUNT};
    std::string content;
    for (size_t operand = 0; operand < MP_OPERAND_COUNT; operand++) {
        const double left = kPlotLeft + real(operand) * (width + kGap);
        content += svg_text(left, 50, 14, kHeads.at(operand));
        for (int row = 0; row < kQuantities; row++) {
            content += draw_panel(Panel(left, kTop + row * kRow, width, kHeight, longest(runs)),
                                  runs, operand, static_cast<Quantity>(row));
        }
    }
    std::vector<LegendEntry> entries;
    for (size_t i = 0; i < runs.size(); i++) {
        if (!runs[i].points.empty()) {
            entries.push_back({i, runs[i].recipe});
        }
    }
    const double bottom = kTop + double{kQuantities} * kRow;
    content += svg_legend(kPlotLeft, bottom, kPlotWidth, kLine, entries);
    return svg_page(
        bottom + kLine * real(entries.size() + 1),
        entries.empty()
            ? "No recipe had fp8 products to monitor"
            : "Operands of the fp8 products, all layers; gradients times the loss scale",
        content);
}

} // namespace train
