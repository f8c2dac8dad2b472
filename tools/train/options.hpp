// SPDX-License-Identifier: Apache-2.0
// Everything the command line decides.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <mixedprec.h>

namespace train {

enum ExitCode { kDone = 0, kFailed = 1, kUsage = 2, kInterrupted = 130 };

struct Options {
    std::string data;                         // build/corpus.txt where there is one
    std::vector<std::string> recipes{"fp32"}; // preset names, or JSON files
    std::vector<std::string> settings;        // KEY=VALUE, of every recipe
    int64_t steps = 300, accum = 1;
    int64_t layers = 4, dim = 256, heads = 4, context = 128, batch = 16;
    double lr = 1e-3, min_lr = -1.0;
    int64_t warmup = -1;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1.0;
    int64_t seed = 1, threads = 0;
    int64_t val_every = 0, val_batches = 16;
    // Steps that stand out are skipped: largest z-scores, 0: none, and how many steps they are compared with.
    double guard_norm = 0.0, guard_loss = 0.0;
    int64_t guard_window = 128;
    int64_t monitor = 0; // steps between looks at the layers' operands; 0: none
    int64_t sample = 200;
    double temperature = 0.8;
    int64_t max_memory = 2048; // MiB that the estimate may not exceed
    std::string backend, out, init, save;
    int monitor_rows = -1; // not an option: where rows go until they are monitor.csv
    // Checkpoints.
    std::string checkpoint, resume;
    int64_t checkpoint_every = 0, keep = 0;
    // Ranks that share the work of a step.
    int64_t ranks = 1; // threads of this process
    bool mpi = false;  // or processes under mpirun
    int64_t zero = -1, shard_ranks = 0, node_ranks = 0;
    std::string order_name, wire_name;
    int32_t order = MP_COMM_ORDER_RANK;
    int32_t wire_dtype = MP_DTYPE_NONE; // the recipe's
    bool shared = false;                // whether any of these was asked for

    // Reads the command line; false when there is nothing more to do (--help, --list-recipes). Throws UsageError.
    bool parse(int argc, char** argv);
    // Whether so many ranks can share these steps. Throws UsageError.
    void check_ranks(int64_t count) const;
    // What decides the losses, besides the recipe and the text: the same on all ranks, and when a run goes on.
    using Setting = std::pair<std::string, std::string>;
    [[nodiscard]] std::vector<Setting> identity() const;
    // All that ranks must have alike: these, and what decides which calls they make together.
    [[nodiscard]] std::vector<Setting> common() const;
    // In --out, for a recipe: the steps before the first number that is not finite.
    [[nodiscard]] std::string last_steps_file(const std::string& recipe) const;
    [[nodiscard]] int64_t parameter_count() const;
    [[nodiscard]] bool guards() const { return guard_norm > 0.0 || guard_loss > 0.0; }
    // Bytes that a rank's passes keep, and their work arrays, at most.
    [[nodiscard]] double activations() const;

  private:
    void parse_sharing();
    void check_together() const;
    void check_sharing() const;
    [[nodiscard]] double memory() const; // bytes that it will take at most, in fp32
};

} // namespace train
