// SPDX-License-Identifier: Apache-2.0
// Where a run will write, looked at before it trains: nothing is worse than hours of training that cannot be kept.
#pragma once

#include "options.hpp"

namespace train {

class Outputs {
  public:
    // Throws where --checkpoint or --save cannot be written to, or another process trains into the folder.
    explicit Outputs(const Options& o);
    Outputs(const Outputs&) = delete;
    Outputs& operator=(const Outputs&) = delete;
    ~Outputs();

  private:
    int folder_ = -1; // of --checkpoint; locked as long as this lives
};

// The file beside `path` that becomes it when it is whole.
std::string part_of(const std::string& path);
// Throws where not all that was printed has arrived.
void check_stdout();

} // namespace train
