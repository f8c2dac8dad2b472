// SPDX-License-Identifier: Apache-2.0
// The table, the samples, and the files.
#include "report.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "text.hpp"

namespace train {

using Row = std::vector<std::string>;

static const Row kHeads{"recipe",   "train loss", "vs fp32",  "val loss",   "vs fp32", "tokens/s",
                        "vs fp32",  "weights",    "master",   "grads",      "states",  "total",
                        "peak MiB", "MB sent",    "expected", "MiB a rank", "planned"};
constexpr size_t kPlainColumns = 13; // the rest is about ranks

const Run* baseline_of(const std::vector<Run>& runs) {
    for (const Run& run : runs) {
        if (run.recipe == "fp32" && run.outcome == kRunDone) {
            return &run;
        }
    }
    return nullptr;
}

static std::string gap(double loss, double baseline) {
    return std::isfinite(loss) && std::isfinite(baseline)
               ? format("%+.2f %%", (loss / baseline - 1.0) * 100.0)
               : "-";
}

// Bytes for each parameter: weights, master, gradients, states, all.
static std::array<double, 5> bytes_of(const mp_memory_report& m, int64_t parameters) {
    const auto n = real(parameters);
    int64_t states = m.compensation_bytes;
    for (const auto& [name, bytes] : states_of(m)) {
        states += bytes;
    }
    return {real(m.weight_bytes) / n, real(m.master_bytes) / n,
            real(m.grad_bytes + m.reduced_grad_bytes) / n, real(states) / n,
            real(m.total_bytes) / n};
}

static void fill_memory(Row& cells, const Run& run) {
    const auto held = bytes_of(run.measured, run.parameter_count);
    const auto promised = bytes_of(run.expected, run.parameter_count);
    for (size_t i = 0; i < held.size(); i++) {
        cells[7 + i] = format("%.4g", held[i]) +
                       (held[i] == promised[i] ? "" : format(" (not %.4g)", promised[i]));
    }
    cells[12] = format("%.0f", real(run.peak_memory) / 1048576.0);
    if (run.ranks > 0) {
        cells[13] = format("%.4g", run.wire_counted / 1e6);
        cells[14] = format("%.4g", run.wire_expected / 1e6);
        cells[15] = format("%.4g", run.rank_bytes_held / 1048576.0);
    }
    if (run.ranks > 0) {
        cells[16] = format("%.4g", run.rank_bytes_planned / 1048576.0);
    }
}

static Row row_of(const Run& run, const Run* baseline) {
    Row cells(kHeads.size(), "-");
    cells[0] = clean(run.recipe);
    if (run.steps == 0) {
        return cells;
    }
    cells[1] = format("%.4f", run.train_loss);
    if (std::isfinite(run.val_loss)) {
        cells[3] = format("%.4f", run.val_loss);
    }
    if (baseline != nullptr && &run != baseline && run.outcome == kRunDone) {
        cells[2] = gap(run.train_loss, baseline->train_loss);
        cells[4] = gap(run.val_loss, baseline->val_loss);
        cells[6] = format("%.2fx", run.tokens_per_second / baseline->tokens_per_second);
    }
    cells[5] = format("%.0f", run.tokens_per_second);
    fill_memory(cells, run);
    return cells;
}

static std::string remark(const Run& run) {
    std::string text;
    if (run.outcome != kRunDone) {
        text += join("  ", run.outcome == kRunFailed ? "FAILED" : "stopped", " after ", run.steps,
                     " steps");
    }
    if (run.skipped > 0) {
        text += join("  ", run.skipped, " steps skipped");
    }
    if (run.outliers > 0) {
        text += join(", ", run.outliers, " of them outliers");
    }
    return text;
}

void print_table(const std::vector<Run>& runs) {
    std::vector<Row> rows{kHeads};
    for (const Run& run : runs) {
        rows.push_back(row_of(run, baseline_of(runs)));
    }
    std::vector<int> widths(kHeads.size());
    for (const Row& row : rows) {
        for (size_t i = 0; i < row.size(); i++) {
            widths[i] = std::max(widths[i], static_cast<int>(row[i].size()));
        }
    }
    const size_t columns = !runs.empty() && runs[0].ranks > 0 ? kHeads.size() : kPlainColumns;
    std::string text = "\n";
    for (size_t row = 0; row < rows.size(); row++) {
        text += format("%-*s", widths[0], rows[row][0].c_str());
        for (size_t i = 1; i < columns; i++) {
            text += format("  %*s", widths[i], rows[row][i].c_str());
        }
        text += (row == 0 ? "" : remark(runs[row - 1])) + "\n";
    }
    print(stdout, text);
    std::puts("\ntrain loss: mean of the last 20 steps, nats a byte. weights to total: bytes for "
              "each parameter, held by\n"
              "model and optimizer; equal to what the recipe promised unless it says \"not\".");
    if (columns > kPlainColumns) {
        std::puts("These bytes are rank 0's. MB sent: by each rank in a step, as counted, and "
                  "expected by the formula;\nMiB a rank: of the one that holds most, and as "
                  "planned.");
    }
}

void print_samples(const std::vector<Run>& runs) {
    for (const Run& run : runs) {
        if (!run.sample.empty()) {
            print(stdout, join("\n--- text by ", clean(run.recipe), " ---\n", run.sample, "\n"));
        }
    }
}

static std::string losses_csv(const std::vector<Run>& runs) {
    std::string text = "recipe,step,train_loss,val_loss\n";
    for (const Run& run : runs) {
        for (size_t i = 0; i < run.losses.size(); i++) {
            const auto validation = real(run.val_losses[i]);
            text += csv_field(run.recipe) + format(",%zu,%.9g,", i + 1, real(run.losses[i])) +
                    (std::isfinite(validation) ? format("%.9g", validation) : "") + "\n";
        }
    }
    return text;
}

void write_files(const std::vector<Run>& runs, const Options& o) {
    write_file(o.out + "/losses.csv", losses_csv(runs));
    write_file(o.out + "/losses.svg", losses_svg(runs));
    write_file(o.out + "/results.json", results_json(runs, o));
    print(stdout, join("\nCurves: ", o.out, "/losses.svg and losses.csv; figures: ", o.out,
                       "/results.json\n"));
    if (o.monitor > 0) {
        write_file(o.out + "/monitor.svg", monitor_svg(runs));
        print(stdout, join("Operands: ", o.out, "/monitor.svg and monitor.csv\n"));
    }
    write_file(o.out + "/report.html", report_html(runs, o));
    print(stdout, join("All on one page: ", o.out, "/report.html\n"));
}

} // namespace train
