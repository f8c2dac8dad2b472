// SPDX-License-Identifier: Apache-2.0
// NewFiles: files that are written under names of their own in one directory, and get their final ones together, once all of
// them are on the disk. What has a final name already is never overwritten. Without commit() nothing of them stays.
#pragma once

#include <string>
#include <vector>

#include "system/file.hpp"

namespace mp::model {

class NewFiles {
  public:
    // In an open directory, which outlives this.
    NewFiles(system::FileTable& files, int32_t directory) : files_(files), directory_(directory) {}
    NewFiles(const NewFiles&) = delete;
    NewFiles& operator=(const NewFiles&) = delete;
    ~NewFiles();

    // Its number, by which the first one is renamed first. Throws invalid_argument where something has the final name.
    std::size_t add(const std::string& final_name);
    [[nodiscard]] std::size_t count() const noexcept { return list_.size(); }
    // Reserves space, so that a full disk shows early.
    void reserve(std::size_t file, int64_t bytes);
    void write(std::size_t file, int64_t offset, const void* data, std::size_t bytes);
    // Once. Where it throws, no file has its final name, unless the file system does not take one back: then it is a whole file,
    // and the first one has its own.
    void commit();

  private:
    struct File {
        std::string name;
        std::string temporary;
        system::OpenFile open;
        system::FileIdentity identity;
    };

    void rename(const File& file);
    void discard() noexcept;

    system::FileTable& files_;
    int32_t directory_;
    std::vector<File> list_;
    bool is_committed_ = false;
};

// Throws invalid_argument where something has the name.
void check_free(system::FileTable& files, int32_t directory, const std::string& name);

} // namespace mp::model
