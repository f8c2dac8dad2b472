// SPDX-License-Identifier: Apache-2.0
// Curves over steps as SVG without outside references: axes with round numbers, lines, legends. What is drawn is in plots.cpp.
#pragma once

#include <string>
#include <vector>

namespace train {

inline constexpr double kPlotLeft = 90, kPlotWidth = 780, kPage = 900;

// How a curve looks: the colour and dashes of recipe number `recipe`.
struct Pen {
    size_t recipe;
    double width, opacity;
};

// One set of axes, in pixels and in data. First widen for every curve, then fit, then draw.
class Panel {
  public:
    Panel(double left, double top, double width, double height, double steps);

    void widen(const std::vector<double>& values); // passes over what is not finite
    void fit();                                    // a margin around the values
    void fit_shares();                             // percentages: from 0, at most to 100
    [[nodiscard]] std::string axes(const std::string& y_label) const; // "" for no label
    // Values that are not finite break the line. No steps: 1, 2, 3, ...
    [[nodiscard]] std::string curve(const std::vector<double>& steps,
                                    const std::vector<double>& values, Pen pen) const;
    [[nodiscard]] double right() const { return left_ + width_; }
    [[nodiscard]] double top() const { return top_; }

  private:
    [[nodiscard]] double x(double step) const { return left_ + step / steps_ * width_; }
    [[nodiscard]] double y(double value) const {
        return top_ + (high_ - value) / (high_ - low_) * height_;
    }
    [[nodiscard]] std::vector<double> y_ticks() const;
    [[nodiscard]] std::string x_axis() const;

    double left_, top_, width_, height_, steps_;
    double low_, high_;
};

// The mean over up to 10 steps before each and as many behind, so that it neither lags nor leads: the first step alone, then
// three steps, and so on. At the end, where fewer are behind, the steps before stay: no last point is a single step's.
std::vector<double> smooth(const std::vector<double>& losses);
inline constexpr size_t kMeanSteps = 21;
// Below a panel of losses: how far each curve is from the one at `reference`, in percent.
std::string gap_panel(const std::vector<std::vector<double>>& means, size_t reference,
                      const std::string& name, double steps);
inline constexpr double kHeightWithGaps = 700; // of a page of both

std::string svg_page(double height, const std::string& heading, const std::string& content);
std::string svg_text(double x, double y, double size, const std::string& text);

// Lines of names beside their curves' looks, from (left, top) on, each `line` pixels high, over a white ground.
struct LegendEntry {
    size_t recipe;
    std::string text;
};
std::string svg_legend(double left, double top, double width, double line,
                       const std::vector<LegendEntry>& entries);

} // namespace train
