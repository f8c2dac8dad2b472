// SPDX-License-Identifier: Apache-2.0
// FileTable: every file access of the library goes through this one table, so that a simulated file layer
// can stand in for the real one and lose what was not synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "status/status.hpp"

namespace mp::system {

// read_plain opens nothing but a regular file: a link is refused, and a pipe does not block.
enum class OpenMode : int32_t { read, create_new, read_plain };

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
    // Refuses an existing destination where the file system can; a directory never replaces one with contents.
    virtual Status rename(const char* from, const char* to) noexcept = 0;
    // A file, or an empty directory.
    virtual Status remove(const char* path) noexcept = 0;
    // Reserves the space, so that a full disk shows early. Where the file system cannot, nothing happens.
    virtual Status reserve(int32_t handle, int64_t bytes) noexcept = 0;
    // The names in a directory, sorted, without "." and "..".
    virtual Status list(const char* path, std::vector<std::string>* names) noexcept = 0;
    // A handle of a directory itself: a link is refused, and what is done by the handle stays in that directory even
    // if its name goes to another one.
    virtual Status open_directory(const char* path, int32_t* handle) noexcept = 0;
    virtual Status list_open(int32_t directory, std::vector<std::string>* names) noexcept = 0;
    // A file in it, or a link itself, or an empty directory.
    virtual Status remove_from(int32_t directory, const char* name) noexcept = 0;
    // Marks an open directory as in use until its handle is closed or its process ends. `taken` is false where
    // somebody else has marked it; the status is a failure where the file system knows no such marks.
    virtual Status lock(int32_t directory, bool* taken) noexcept = 0;
};

// The system calls under the real table, which tests replace to see EINTR and partial transfers.
struct FileCalls {
    std::ptrdiff_t (*read)(int handle, void* data, std::size_t bytes, int64_t offset);
    std::ptrdiff_t (*write)(int handle, const void* data, std::size_t bytes, int64_t offset);
    int (*sync)(int handle);
};
std::unique_ptr<FileTable> make_posix_files(const FileCalls& calls);
FileCalls posix_calls() noexcept;

// The operating system's files.
FileTable& posix_files() noexcept;

// The whole file as text; a file above `limit` bytes is refused before anything is allocated.
std::string read_text(FileTable& files, const std::string& path, int64_t limit,
                      OpenMode mode = OpenMode::read);

} // namespace mp::system
