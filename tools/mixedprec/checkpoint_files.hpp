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
    mixedprec::CheckpointInfo info;
    Json json;
};

// Throws what the library says of a manifest that is damaged.
Manifest read_manifest(const std::string& folder);
// Checkpoints in a folder of them, the newest first; the folder itself where it is a checkpoint.
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
