// SPDX-License-Identifier: Apache-2.0
// FileTable: every file access of the library goes through this one table, so that a simulated file layer
// can stand in for the real one and lose what was not synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "status/status.hpp"

namespace mp::system {

enum class OpenMode : int32_t { read, create_new };

class FileTable {
  public:
    FileTable() = default;
    FileTable(const FileTable&) = delete;
    FileTable& operator=(const FileTable&) = delete;
    virtual ~FileTable() = default;

    // A handle >= 0. create_new refuses an existing file: nothing is ever overwritten.
    virtual Status open(const char* path, OpenMode mode, int32_t* handle) noexcept = 0;
    virtual Status size(int32_t handle, int64_t* bytes) noexcept = 0;
    // All of the bytes or a failure; short reads and EINTR are handled inside.
    virtual Status read(int32_t handle, int64_t offset, void* data, std::size_t bytes) noexcept = 0;
    virtual Status write(int32_t handle, int64_t offset, const void* data,
                         std::size_t bytes) noexcept = 0;
    virtual Status sync(int32_t handle) noexcept = 0;
    virtual Status close(int32_t handle) noexcept = 0;
    virtual Status make_directory(const char* path) noexcept = 0;
    virtual Status sync_directory(const char* path) noexcept = 0;
    virtual Status rename(const char* from, const char* to) noexcept = 0;
    virtual Status remove(const char* path) noexcept = 0;
};

// The operating system's files.
FileTable& posix_files() noexcept;

// The whole file as text; a file above `limit` bytes is refused before anything is allocated.
std::string read_text(FileTable& files, const std::string& path, int64_t limit);

} // namespace mp::system
