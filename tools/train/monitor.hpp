// SPDX-License-Identifier: Apache-2.0
// --monitor N: every N steps, what became of the numbers that the layers quantized. Each layer's operands go to
// monitor.csv; their sums over all layers are kept for monitor.svg; what the library advises is printed at the end.
// Only fp8 operands are counted: recipes without fp8 products have no rows.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "network.hpp"

namespace train {

// One class of operands (MP_OPERAND_*) over all layers, since the point before.
struct MonitorCounts {
    int64_t elements = 0, saturated = 0, underflowed = 0;
    double amax = 0.0;
};

struct MonitorPoint {
    int64_t step = 0;
    std::array<MonitorCounts, MP_OPERAND_COUNT> operands;
};

class Monitor {
  public:
    // The first line of monitor.csv.
    static std::string heads();

    // Has the layers report, where there is --monitor.
    Monitor(const Options& options, std::string recipe, const Network& network);
    void set_step(int64_t step) { step_ = step; } // whose rows come next
    // Prints the advice; throws when monitor.csv could not be written.
    void finish();
    std::vector<MonitorPoint> points;

  private:
    // One piece of advice about one operand of one layer, however often it was given.
    struct Advice {
        std::string layer;
        int32_t operand;
        int64_t times;
        std::string text; // the latest: its figures change
    };
    static void on_stats(void* self, const char* layer, const mp_linear_stats* stats,
                         const char* advice) noexcept;
    void write_row(const char* layer, const mp_linear_stats& s);
    void add_to_point(const mp_linear_stats& s);
    void add_advice(const std::string& layer, int32_t operand, const std::string& text);

    void flush();

    std::string recipe_;
    int file_; // of the rows; -1: none
    int64_t step_ = 0;
    std::string rows_; // not in the file yet
    int error_ = 0;    // why rows are not in it
    std::vector<Advice> advice_;
};

} // namespace train
