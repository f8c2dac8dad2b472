// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: everything to go on with the same bits.
#pragma once

#include "network.hpp"

namespace train {

// A curve that goes on where it was, of options.steps elements.
struct Curve {
    const char* name;
    void* values;
    size_t element_size;
};

class Saver {
  public:
    // Knows what belongs to the run, and with --resume loads it.
    Saver(Params& params, mp_scaler* scaler, const Network& network,
          const std::vector<Curve>& curves);

    // Where training goes on, and the data too: batches follow from the step's number.
    [[nodiscard]] int64_t next_step() const { return next_step_; }
    // After step number `taken`, from 1: saves where its turn has come, while training goes on.
    void step(int64_t taken);
    // After the last step: saves unless that is done, and waits.
    void finish(int64_t taken);

  private:
    void load(Params& params);
    void save(int64_t taken);

    const Options& options_;
    Checkpoint checkpoint_; // none: neither --checkpoint nor --resume
    int64_t next_step_ = 0;
    int64_t saved_step_ = -1; // of the last checkpoint; -1: none
};

// --save's file: one of safetensors, with the weights in their own types, or of Params::save.
void save_weights(Params& params, const std::string& path);

} // namespace train
