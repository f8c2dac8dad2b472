// SPDX-License-Identifier: Apache-2.0
// Where a run will write, looked at before it trains: nothing is worse than hours of training that cannot be kept.
#pragma once

#include <optional>

#include "files.hpp"
#include "options.hpp"

namespace train {

class Outputs {
  public:
    // Makes the folder --out. Throws where a file of --out or --save, or --checkpoint, cannot be written or is one that is read,
    // or another process trains into the folder.
    explicit Outputs(const Options& o);
    Outputs(const Outputs&) = delete;
    Outputs& operator=(const Outputs&) = delete;
    ~Outputs();

    // Where rows of the monitor go until they are finished; -1 without --monitor.
    [[nodiscard]] int monitor_rows() const { return monitor_ ? monitor_->descriptor() : -1; }
    // What the monitor has written becomes monitor.csv.
    void finish_monitor();

  private:
    std::optional<NewFile> monitor_;
    int folder_ = -1; // of --checkpoint; locked as long as this lives
};

// Throws where not all that was printed has arrived.
void check_stdout();

} // namespace train
