// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: everything to go on with the same bits.
#pragma once

#include "data.hpp"
#include "network.hpp"

namespace train {

// A curve that goes on where it was, of Saver::capacity() elements.
struct Curve {
    const char* name;
    void* values;
    size_t element_size;
};

class Saver {
  public:
    // Knows what belongs to the run, and with --resume loads it.
    Saver(Params& params, mp_scaler* scaler, const Network& network, const Text& text,
          std::vector<Curve> curves);
    // Elements of a curve for so many steps: a power of two, so that a run may go on for more.
    static size_t capacity(int64_t steps);

    // Where training goes on, and the data too: batches follow from the step's number.
    [[nodiscard]] int64_t next_step() const { return next_step_; }
    // After step number `taken`, from 1: saves where its turn has come, while training goes on.
    void step(int64_t taken);
    // After the last step: saves unless that is done, and waits.
    void finish(int64_t taken);

  private:
    // The checkpoint's object, over curves of so many elements.
    void make(size_t capacity);
    void load();
    void compare_settings() const;
    void save(int64_t taken);

    static constexpr size_t kFewest = 1024;
    static constexpr size_t kSettings = 4096; // bytes

    Params& params_;
    mp_scaler* scaler_;
    const Network& network_;
    std::vector<Curve> curves_;
    std::string settings_; // what decides the losses, one a line
    std::string saved_settings_;
    const Options& options_;
    Checkpoint checkpoint_; // none: neither --checkpoint nor --resume
    int64_t next_step_ = 0;
    int64_t saved_step_ = -1; // of the last checkpoint; -1: none
};

// --save's file: one of safetensors, with the weights in their own types, or of Params::save.
void save_weights(Params& params, const std::string& path);

} // namespace train
