// SPDX-License-Identifier: Apache-2.0
// The files of checkpoints, as docs/checkpoints.md describes them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support.hpp"

namespace command {

// The manifest that the library has found intact, and its folder.
struct Manifest {
    std::string folder;
    std::string
        passed_over; // what the library says of newer ones that are damaged; "" where there are none
    mixedprec::CheckpointInfo info;
    Json json;
};

// Of a checkpoint, or of the newest in a folder of them: the one that a load takes. Throws what the library says where it is
// damaged.
Manifest read_manifest(const std::string& path);
// Its files are there and as large as it says. Throws a Failure.
void check_sizes(const Manifest& manifest);
// Checkpoints in a folder of them, the newest first, as the library sees them; the folder itself where it is a checkpoint.
std::vector<std::string> checkpoints_in(const std::string& path);

// A bar on stderr, on a terminal only.
class Bar {
  public:
    explicit Bar(std::string name);
    ~Bar();
    Bar(const Bar&) = delete;
    Bar& operator=(const Bar&) = delete;
    void update(int64_t done, int64_t total);

  private:
    std::string name_;
    bool terminal_;
    double last_ = 0.0;
};

// Checks sizes, the checksum of every byte, and the headers of all files. What is wrong, one line each.
std::vector<std::string> problems_of(const Manifest& manifest, Bar& bar);

} // namespace command
