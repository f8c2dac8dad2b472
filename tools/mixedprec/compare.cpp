// SPDX-License-Identifier: Apache-2.0
// mixedprec compare: how far recipes' losses are from a reference's, with the uncertainty over seeds.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "../train/files.hpp"
#include "../train/plot.hpp"
#include "program.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::vector<std::string> files;
    std::string reference, svg;
    int64_t last = 0;
    double tolerance = 1.0;
};

using Values = std::vector<double>;
struct Recipe {
    std::string name;
    std::vector<Values> runs; // one a file, in the order of the files
};

double number(const std::string& text, const std::string& where) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    must<Failure>(!text.empty() && *end == '\0', where, ": '", text, "' is no number");
    return value;
}

// What comparisons take at most, so that memory stays bounded whatever is read.
constexpr size_t kMostRows = 20'000'000, kMostRecipes = 1000;

bool read_row(std::istream& file, std::vector<std::string>& cells, const std::string& where) {
    try {
        return train::read_csv_row(file, cells);
    } catch (const Failure& failure) {
        throw Failure(where, ": ", failure.what());
    }
}

// Appends the runs of a losses.csv; steps count from 1 without a hole. `rows` are those of all files.
void read_losses(std::vector<Recipe>& recipes, const std::string& path, size_t& rows) {
    train::must_be_ordinary("", path);
    std::ifstream file(path);
    must<Failure>(file.good(), "cannot open '", path, "': ", std::strerror(errno));
    std::vector<std::string> cells;
    const bool begun = read_row(file, cells, join("'", path, "'"));
    must<Failure>(begun && cells.size() >= 3 && cells[0] == "recipe" && cells[1] == "step" &&
                      cells[2] == "train_loss",
                  "'", path, "' is no losses.csv of mixedprec_train");
    std::set<std::string> here; // recipes of this file
    for (int64_t row = 2; read_row(file, cells, join("'", path, "' row ", row)); row++) {
        const std::string where = join("'", path, "' row ", row);
        must<Failure>(++rows <= kMostRows, where, ": more than ", kMostRows, " rows in all");
        must<Failure>(cells.size() >= 3, where, " has too few columns");
        auto found = std::find_if(recipes.begin(), recipes.end(),
                                  [&](const Recipe& r) { return r.name == cells[0]; });
        if (here.insert(cells[0]).second) {
            if (found == recipes.end()) {
                must<Failure>(recipes.size() < kMostRecipes, where, ": more than ", kMostRecipes,
                              " recipes");
                found = recipes.insert(found, Recipe{cells[0], {}});
            }
            found->runs.emplace_back();
        }
        Values& losses = found->runs.back();
        must<Failure>(number(cells[1], where) == real(losses.size() + 1), where,
                      ": steps must be 1, 2, 3, ...");
        losses.push_back(number(cells[2], where));
    }
    must<Failure>(!here.empty(), "'", path, "' has no losses");
}

// 97.5 % quantile of Student's t.
double quantile(double freedom) {
    constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                 2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
    const auto whole =
        static_cast<size_t>(std::max(freedom, 1.0)); // fewer degrees: a wider interval
    if (whole <= std::size(kTable)) {
        return kTable[whole - 1];
    }
    const double z = 1.959964, n = real(whole);
    return z + (z * z * z + z) / (4 * n) +
           (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

double mean(const Values& values) {
    double sum = 0.0;
    for (const double value : values) {
        sum += value;
    }
    return sum / real(values.size());
}

double variance(const Values& values) {
    const double middle = mean(values);
    double sum = 0.0;
    for (const double value : values) {
        sum += (value - middle) * (value - middle);
    }
    return sum / (real(values.size()) - 1.0);
}

// The final loss of each run: the mean of its last steps.
Values finals(const Recipe& recipe, int64_t last) {
    Values ends;
    for (const Values& run : recipe.runs) {
        const size_t count =
            std::min(run.size(), last > 0 ? size(last) : std::max<size_t>(run.size() / 10, 1));
        ends.push_back(mean(Values(run.end() - static_cast<std::ptrdiff_t>(count), run.end())));
    }
    return ends;
}

struct Gap {
    double gap = 0.0,
           half = std::numeric_limits<double>::quiet_NaN(); // of the 95 % interval; NaN: one seed
    bool paired = false;
    std::string verdict;
};

Gap gap_of(const Values& a, const Values& reference, double tolerance) {
    Gap g;
    g.gap = mean(a) - mean(reference);
    g.paired = a.size() == reference.size();
    if (g.paired && a.size() > 1) {
        Values differences(a.size());
        std::transform(a.begin(), a.end(), reference.begin(), differences.begin(), std::minus<>());
        g.half = quantile(real(a.size()) - 1.0) * std::sqrt(variance(differences) / real(a.size()));
    } else if (a.size() > 1 && reference.size() > 1) { // Welch
        const double x = variance(a) / real(a.size()),
                     y = variance(reference) / real(reference.size());
        const double freedom =
            (x + y) * (x + y) /
            (x * x / (real(a.size()) - 1.0) + y * y / (real(reference.size()) - 1.0));
        g.half = x + y > 0.0 ? quantile(freedom) * std::sqrt(x + y) : 0.0;
    }
    const double allowed = tolerance / 100.0 * std::fabs(mean(reference));
    const double half = std::isfinite(g.half) ? g.half : 0.0;
    g.verdict = !std::isfinite(g.gap)     ? "not finite"
                : g.gap - half > allowed  ? "worse"
                : g.gap + half <= allowed ? "within"
                                          : "unclear: more seeds";
    if (!std::isfinite(g.half) && std::isfinite(g.gap)) {
        g.verdict += " (one seed)";
    }
    return g;
}

std::string draw(const std::vector<Recipe>& recipes, const Recipe& reference) {
    double steps = 1.0;
    std::vector<Values> means;
    for (const Recipe& recipe : recipes) {
        Values sums;
        for (size_t i = 0; std::all_of(recipe.runs.begin(), recipe.runs.end(),
                                       [&](const Values& run) { return i < run.size(); });
             i++) {
            double sum = 0.0;
            for (const Values& run : recipe.runs) {
                sum += run[i];
            }
            sums.push_back(sum / real(recipe.runs.size()));
        }
        for (const Values& run : recipe.runs) {
            steps = std::max(steps, real(run.size()));
        }
        means.push_back(sums);
    }
    train::Panel panel(train::kPlotLeft, 40, train::kPlotWidth, 360, steps);
    for (const Recipe& recipe : recipes) {
        for (const Values& run : recipe.runs) {
            panel.widen(run);
        }
    }
    panel.fit();
    std::string text = panel.axes("training loss");
    std::vector<train::LegendEntry> legend;
    for (size_t i = 0; i < recipes.size(); i++) {
        for (const Values& run : recipes[i].runs) {
            text += panel.curve({}, run, {i, 1.0, 0.3});
        }
        text += panel.curve({}, means[i], {i, 2.0, 1.0});
        legend.push_back({i, recipes[i].name + ": " + counted(recipes[i].runs.size(), "seed")});
    }
    text += train::svg_legend(panel.right() - 300, panel.top() + 4, 300,
                              std::min(20.0, 340.0 / real(legend.size())), legend);
    const bool has_gaps = recipes.size() > 1;
    if (has_gaps) {
        std::vector<Values> smoothed;
        smoothed.reserve(means.size());
        for (const Values& values : means) {
            smoothed.push_back(train::smooth(values));
        }
        text += train::gap_panel(smoothed, static_cast<size_t>(&reference - recipes.data()),
                                 reference.name, steps);
    }
    return train::svg_page(has_gaps ? train::kHeightWithGaps : 460,
                           "Training loss; bold: the mean over seeds", text);
}

const Recipe& reference_of(const std::vector<Recipe>& recipes, const std::string& wanted) {
    const std::string name = wanted.empty() ? "fp32" : wanted;
    const auto found = std::find_if(recipes.begin(), recipes.end(),
                                    [&](const Recipe& r) { return r.name == name; });
    must<UsageError>(found != recipes.end() || wanted.empty(),
                     "--reference: no file has losses of '", wanted, "'");
    return found != recipes.end() ? *found : recipes.front();
}

Result compare(const Options& options) {
    must<UsageError>(options.last >= 0 && options.tolerance >= 0.0,
                     "--last and --tolerance must not be negative");
    if (!options.svg.empty()) { // before what may take long
        std::vector<train::NamedFile> read;
        for (const std::string& path : options.files) {
            read.push_back({"the losses", path});
        }
        train::must_differ({{"--svg", options.svg}}, read);
        const train::NewFile probe("", options.svg);
    }
    std::vector<Recipe> recipes;
    size_t rows = 0;
    for (const std::string& path : options.files) {
        read_losses(recipes, path, rows);
    }
    const Recipe& reference = reference_of(recipes, options.reference);
    const Values base = finals(reference, options.last);
    Result result;
    result.json = {{"reference", reference.name},
                   {"tolerance_percent", options.tolerance},
                   {"recipes", Json::array()}};
    Table table({"recipe", ">seeds", ">final loss", ">gap", ">95 % interval", ">gap %", "verdict"});
    for (const Recipe& recipe : recipes) {
        const Values ends = finals(recipe, options.last);
        result.code = std::isfinite(mean(ends)) ? result.code : kFailed;
        Json json{{"recipe", recipe.name}, {"seeds", ends.size()}, {"final_loss", mean(ends)}};
        if (&recipe == &reference) {
            table.add({recipe.name, std::to_string(ends.size()), format("%.4f", mean(ends)), "-",
                       "-", "-",
                       std::isfinite(mean(ends)) ? "reference" : "reference: not finite"});
        } else {
            const Gap g = gap_of(ends, base, options.tolerance);
            const std::string half = std::isfinite(g.half) ? format("+- %.4f", g.half) : "-";
            table.add({recipe.name, std::to_string(ends.size()), format("%.4f", mean(ends)),
                       format("%+.4f", g.gap), half, format("%+.2f", 100.0 * g.gap / mean(base)),
                       g.verdict});
            json.update({{"gap", g.gap},
                         {"interval_half", g.half},
                         {"paired", g.paired},
                         {"verdict", g.verdict}});
            result.code =
                g.verdict.starts_with("worse") || g.verdict == "not finite" ? kFailed : result.code;
        }
        result.json["recipes"].push_back(json);
    }
    result.text = table.text() + format("\nFinal loss: the mean of the last steps. Tolerance %.3g "
                                        "%% of %s. Recipes with as many seeds are "
                                        "paired in the order of the files.\n",
                                        options.tolerance, clean(reference.name).c_str());
    if (!options.svg.empty()) {
        train::write_file(options.svg, draw(recipes, reference));
    }
    return result;
}

} // namespace

void add_compare(Program& program) {
    auto options = std::make_shared<Options>();
    Subcommand app =
        program.add("compare", "gaps between recipes' losses, with their uncertainty over seeds",
                    options, compare);
    app.add("files", options->files, "losses.csv of mixedprec_train, one for each seed",
            {.required = true});
    app.add("--reference", options->reference, "recipe to compare with (fp32, or the first)");
    app.add("--last", options->last, "steps at the end whose mean is the final loss (a tenth)");
    app.add("--tolerance", options->tolerance,
            "percent of the reference's loss that a gap may have", {.shows_default = true});
    app.add("--svg", options->svg, "file for a plot of the curves");
}

} // namespace command
