// SPDX-License-Identifier: Apache-2.0
// What the runs came to: a table, and files for --out.
#pragma once

#include "run.hpp"

namespace train {

// The finished fp32 run, which the others are compared with; NULL when there is none.
const Run* baseline_of(const std::vector<Run>& runs);

void print_table(const std::vector<Run>& runs);
void print_samples(const std::vector<Run>& runs);

// losses.csv, losses.svg, results.json, report.html and, with --monitor, monitor.svg.
void write_files(const std::vector<Run>& runs, const Options& options);

std::string results_json(const std::vector<Run>& runs, const Options& options); // (results.cpp)
// The plots. (plots.cpp)
std::string losses_svg(const std::vector<Run>& runs);
std::string monitor_svg(const std::vector<Run>& runs);
std::string scales_svg(const std::vector<Run>& runs);
// All of it on one page. (html.cpp)
std::string report_html(const std::vector<Run>& runs, const Options& options);

} // namespace train
