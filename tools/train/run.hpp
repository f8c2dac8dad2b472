// SPDX-License-Identifier: Apache-2.0
// Training with one recipe, and what is known about it afterwards.
#pragma once

#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include "data.hpp"
#include "files.hpp"
#include "monitor.hpp"
#include "options.hpp"
#include "ranks.hpp"

namespace train {

enum Outcome { kRunFailed, kRunInterrupted, kRunDone };

struct SkippedStep {
    int64_t step = 0; // from 1
    double scale = 0.0, loss = 0.0;
    bool is_outlier = false;
};

struct Run {
    static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

    std::string recipe;
    int outcome = kRunFailed;
    int32_t threads = 0;
    int64_t steps = 0;              // done, skipped ones included
    int64_t skipped = 0;            // by loss scaling
    double train_loss = kNone;      // mean of the last 20 steps
    double val_loss = kNone;        // at the end
    double tokens_per_second = 0.0; // over all training steps, without validation
    double step_seconds = 0.0;      // the median step
    double share_of_peak = 0.0;     // of the operations a second of the machine's fastest product
    int64_t outliers = 0;           // of the skipped steps, by --guard-norm or --guard-loss
    std::string bad_tensor;         // the first that was not finite, in words; empty: none
    int64_t parameter_count = 0;
    mp_memory_report expected{}, measured{}; // of the optimizer, on rank 0
    int32_t ranks = 0;                       // 0: nothing is shared
    double wire_expected = 0.0,
           wire_counted = 0.0; // bytes that a rank sends in a step, the mean over ranks
    double rank_bytes_planned = 0.0, rank_bytes_held = 0.0; // of the rank that has most
    int64_t peak_memory = 0;       // bytes this process had resident at most
    std::vector<float> losses;     // of each step
    std::vector<float> val_losses; // NaN where there was no validation
    std::vector<float>
        scales; // the loss scale of each step; NaN before a checkpoint it went on from
    std::vector<SkippedStep> skips;
    std::vector<MonitorPoint> points; // what the monitor saw
    std::string sample;               // valid UTF-8; empty for none
};

// Set by Ctrl-C.
extern volatile std::sig_atomic_t interrupted;

// Trains. After a failure or an interruption `run` holds what was reached. False only for a failure, which was printed.
// `peak`: operations a second of the machine, where it is known.
bool run_recipe(Run& run, const Options& options, const Processes& processes, const Text& text,
                const std::string& recipe, double peak);
// The same in a process of its own, so that its peak memory is its own, and a crash is too. (child.cpp)
bool run_forked(Run& run, const Options& options, const Processes& processes, const Text& text,
                const std::string& recipe, double peak);
// Hands a signal on to that process.
void signal_child(int number);

// What a run is, in bytes, for another process, and back. (results.cpp)
std::vector<uint8_t> pack(const Run& run);
Run unpack(const std::vector<uint8_t>& bytes);

// Lets the model write --sample bytes; the trained network's scales go with its weights. (sample.cpp)
std::string sample_text(Params& params, const Network& trained, const Text& text);

double seconds();

class Progress {
  public:
    Progress(std::string name, int64_t steps);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();
    void update(int64_t done, double loss, const Run& run, double loss_scale, double grad_norm);

  private:
    std::string name_;
    int64_t steps_;
    bool terminal_;
    double start_, last_ = 0.0; // seconds
    bool drawn_ = false;        // something stands on the terminal's line
};

} // namespace train
