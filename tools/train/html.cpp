// SPDX-License-Identifier: Apache-2.0
// report.html: one page about a run. It needs no network, no script and no other file.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "report.hpp"
#include "text.hpp"

namespace train {
namespace {

using Cells = std::vector<std::string>;

// On a narrow screen tables and plots scroll in boxes of their own: wrapped words and plots of its width are unreadable.
constexpr const char* kStyle =
    "body{font:15px/1.5 sans-serif;color:#222;background:#fff;max-width:60em;margin:2em auto;"
    "padding:0 1em}h2{margin-top:2em;border-bottom:1px solid #ddd}table{border-collapse:collapse}"
    "p,#settings td:last-child{overflow-wrap:anywhere}"
    "th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #eee;white-space:nowrap}"
    "th:first-child,td:first-child,#settings td,#settings th{text-align:left}"
    "#settings td:last-child{white-space:normal}.wide{overflow-x:auto;margin:1em 0}"
    "svg{width:100%;min-width:40em;height:auto}";

std::string section(const char* id, const char* title, const std::string& content) {
    return join("<section id=\"", id, "\">\n<h2>", title, "</h2>\n", content, "</section>\n");
}

std::string paragraph(const std::string& text) { return "<p>" + escaped(text) + "</p>\n"; }

std::string row_of(const Cells& cells, const char* tag) {
    std::string text = "<tr>";
    for (const std::string& cell : cells) {
        text += join("<", tag, ">", escaped(cell), "</", tag, ">");
    }
    return text + "</tr>\n";
}

// The first row holds the heads.
std::string table(const std::vector<Cells>& rows) {
    std::string text = "<div class=\"wide\"><table>\n";
    for (size_t i = 0; i < rows.size(); i++) {
        text += row_of(rows[i], i == 0 ? "th" : "td");
    }
    return text + "</table></div>\n";
}

std::string plot(const std::string& svg) { return "<div class=\"wide\">\n" + svg + "</div>\n"; }

std::string number(int digits, double value) {
    return std::isfinite(value) ? format("%.*f", digits, value) : "-";
}

std::string settings(const Options& o) {
    std::vector<Cells> rows{{"option", "value"}, {"--data", o.data}};
    for (const auto& [name, value] : o.identity()) {
        rows.push_back({name, value});
    }
    std::string changes;
    for (const std::string& setting : o.settings) {
        changes += (changes.empty() ? "" : ", ") + setting;
    }
    return table(rows) +
           paragraph("Recipe keys changed by --set: " + (changes.empty() ? "none" : changes) + ".");
}

std::string results(const std::vector<Run>& runs) {
    constexpr std::array kOutcomes{"failed", "stopped", "done"};
    std::vector<Cells> rows{{"recipe", "outcome", "steps", "train loss", "validation loss"}};
    for (const Run& r : runs) {
        rows.push_back({r.recipe, kOutcomes.at(size(r.outcome)), std::to_string(r.steps),
                        number(4, r.train_loss), number(4, r.val_loss)});
    }
    return table(rows);
}

std::string memory(const std::vector<Run>& runs) {
    Cells headings{"MiB", "weights", "master", "gradients"};
    for (const auto& [name, bytes] : states_of({})) {
        headings.push_back(name);
    }
    headings.insert(headings.end(), {"compensation", "total", "peak of the process"});
    std::vector<Cells> rows{headings};
    for (const Run& r : runs) {
        const mp_memory_report& m = r.measured;
        Cells cells{r.recipe};
        const auto add = [&](int64_t bytes) {
            cells.push_back(number(2, real(bytes) / 1048576.0));
        };
        add(m.weight_bytes);
        add(m.master_bytes);
        add(m.grad_bytes + m.reduced_grad_bytes);
        for (const auto& [name, bytes] : states_of(m)) {
            add(bytes);
        }
        add(m.compensation_bytes);
        add(m.total_bytes);
        add(r.peak_memory);
        rows.push_back(cells);
    }
    return table(rows) + paragraph("Held by model and optimizer on rank 0. The peak is everything "
                                   "the process had resident.");
}

std::string throughput(const std::vector<Run>& runs) {
    std::vector<Cells> rows{
        {"recipe", "tokens/s", "% of peak", "median step (ms)", "threads", "ranks"}};
    for (const Run& r : runs) {
        rows.push_back({r.recipe, number(0, r.tokens_per_second),
                        number(1, 100.0 * r.share_of_peak), number(2, r.step_seconds * 1e3),
                        std::to_string(r.threads), std::to_string(std::max(r.ranks, 1))});
    }
    return table(rows);
}

std::string skipped(const std::vector<Run>& runs) {
    std::vector<Cells> rows{{"recipe", "step", "loss scale", "why"}};
    for (const Run& r : runs) {
        for (const SkippedStep& s : r.skips) {
            rows.push_back({r.recipe, std::to_string(s.step), format("%.6g", s.scale),
                            s.is_outlier            ? "it stood out (--guard-norm, --guard-loss)"
                            : std::isfinite(s.loss) ? "a gradient was not finite"
                                                    : "the loss was not finite"});
        }
    }
    return rows.size() > 1
               ? table(rows)
               : paragraph("None since the start, or since the checkpoint it went on from.");
}

// One row for each layer and tensor: the worst shares in monitor.csv, and the last amax.
std::string operands(const std::vector<Run>& runs, const Options& o) {
    if (o.monitor == 0) {
        return paragraph("Not monitored: --monitor N looks every N steps.");
    }
    struct Worst {
        double saturated = 0.0, underflowed = 0.0;
        std::string amax;
    };
    std::map<std::array<std::string, 3>, Worst> all;
    std::ifstream file(o.out + "/monitor.csv");
    Cells cells;
    for (read_csv_row(file, cells); read_csv_row(file, cells);) {
        if (cells.size() == 12) {
            Worst& worst = all[{cells[0], cells[2], cells[3]}];
            worst.saturated = std::max(worst.saturated, std::strtod(cells[8].c_str(), nullptr));
            worst.underflowed = std::max(worst.underflowed, std::strtod(cells[9].c_str(), nullptr));
            worst.amax = cells[6];
        }
    }
    std::vector<Cells> rows{
        {"recipe", "layer", "tensor", "last amax", "most saturated (%)", "most became zero (%)"}};
    for (const auto& [key, worst] : all) {
        rows.push_back({key[0], key[1], key[2], worst.amax, format("%.4f", 100.0 * worst.saturated),
                        format("%.4f", 100.0 * worst.underflowed)});
    }
    return plot(monitor_svg(runs)) + table(rows);
}

} // namespace

std::string report_html(const std::vector<Run>& runs, const Options& o) {
    return join("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width\">\n"
                "<title>mixedprec_train: report</title>\n<style>",
                kStyle, "</style>\n</head>\n<body>\n<h1>Report of a training run</h1>\n",
                paragraph(mp_library_build_info()), section("settings", "Settings", settings(o)),
                section("losses", "Losses", results(runs) + plot(losses_svg(runs))),
                section("scale", "Loss scale", plot(scales_svg(runs))),
                section("skipped", "Skipped steps", skipped(runs)),
                section("operands", "Saturation and underflow", operands(runs, o)),
                section("memory", "Memory by class", memory(runs)),
                section("throughput", "Throughput", throughput(runs)), "</body>\n</html>\n");
}

} // namespace train
