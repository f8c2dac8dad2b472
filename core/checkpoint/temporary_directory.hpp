// SPDX-License-Identifier: Apache-2.0
// TemporaryDirectory: where a checkpoint is written, marked as in use until the commit, removed where there is none. All
// is done by handles: whatever takes the place of a name meanwhile is neither written to nor committed.
#pragma once

#include <string>

#include "system/file.hpp"

namespace mp::checkpoint {

class TemporaryDirectory {
  public:
    // In an open directory, which outlives it.
    TemporaryDirectory(system::FileTable& files, int32_t parent, int64_t sequence);
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory();

    [[nodiscard]] const std::string& id() const noexcept { return id_; }
    [[nodiscard]] int32_t handle() const noexcept { return open_.handle(); }
    // What is in it is on the disk already. Refuses an existing name.
    void commit(const std::string& final_name);

  private:
    bool make();

    system::FileTable& files_;
    int32_t parent_;
    int64_t sequence_;
    std::string id_;
    std::string name_;
    system::OpenFile open_;
    bool committed_ = false;
};

} // namespace mp::checkpoint
