// SPDX-License-Identifier: Apache-2.0
// FileTable: every file access of the library goes through this one table, so that a simulated file layer
// can stand in for the real one and lose what was not synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "status/status.hpp"

namespace mp::system {

// read_plain opens nothing but a regular file: a link is refused, and a pipe does not block. plain_directory refuses a link
// to a directory.
enum class OpenMode : int32_t { read, create_new, read_plain, directory, plain_directory };

enum class FileKind : int32_t { none, regular, directory, link, other };

// Which file a name or a handle means. Equal for the same one.
struct FileIdentity {
    FileKind kind = FileKind::none;
    uint64_t device = 0;
    uint64_t number = 0;
    bool operator==(const FileIdentity&) const = default;
};

// Stands for the handle of the directory that the process is in.
inline constexpr int32_t kCurrentDirectory = -100;

// A path is looked up from an open directory, in which it stays even if that directory's name goes to another one.
class FileTable {
  public:
    FileTable() = default;
    FileTable(const FileTable&) = delete;
    FileTable& operator=(const FileTable&) = delete;
    virtual ~FileTable() = default;

    // A handle >= 0. create_new refuses whatever has the name: nothing is ever overwritten.
    virtual Status open(int32_t directory, const char* path, OpenMode mode,
                        int32_t* handle) noexcept = 0;
    virtual Status size(int32_t handle, int64_t* bytes) noexcept = 0;
    // All of the bytes or a failure; short reads and EINTR are handled inside.
    virtual Status read(int32_t handle, int64_t offset, void* data, std::size_t bytes) noexcept = 0;
    virtual Status write(int32_t handle, int64_t offset, const void* data,
                         std::size_t bytes) noexcept = 0;
    // Of a file, its bytes; of a directory, its names.
    virtual Status sync(int32_t handle) noexcept = 0;
    virtual Status close(int32_t handle) noexcept = 0;
    virtual Status make_directory(int32_t directory, const char* path) noexcept = 0;
    // Both names are in `directory`. Refuses an existing destination.
    virtual Status rename(int32_t directory, const char* from, const char* to) noexcept = 0;
    // Takes the place of a file or a link called `to`.
    virtual Status replace(int32_t directory, const char* from, const char* to) noexcept = 0;
    // A file, or a link itself, or an empty directory.
    virtual Status remove(int32_t directory, const char* path) noexcept = 0;
    // Reserves the space, so that a full disk shows early. Where the file system cannot, nothing happens.
    virtual Status reserve(int32_t handle, int64_t bytes) noexcept = 0;
    // The names in an open directory, sorted, without "." and "..".
    virtual Status list(int32_t directory, std::vector<std::string>* names) noexcept = 0;
    // What has the name; of a link, the link itself. FileKind::none where there is nothing.
    virtual Status look(int32_t directory, const char* path, FileIdentity* found) noexcept = 0;
    virtual Status look(int32_t handle, FileIdentity* found) noexcept = 0;
    // Marks an open directory as in use until its handle is closed or its process ends. `taken` is false where
    // somebody else has marked it; the status is a failure where the file system knows no such marks.
    virtual Status lock(int32_t directory, bool* taken) noexcept = 0;

    // The same from the directory that the process is in.
    Status open(const char* path, OpenMode mode, int32_t* handle) noexcept {
        return open(kCurrentDirectory, path, mode, handle);
    }
    Status make_directory(const char* path) noexcept {
        return make_directory(kCurrentDirectory, path);
    }
    Status rename(const char* from, const char* to) noexcept {
        return rename(kCurrentDirectory, from, to);
    }
    Status remove(const char* path) noexcept { return remove(kCurrentDirectory, path); }
    Status list(const char* path, std::vector<std::string>* names) noexcept {
        int32_t directory = -1;
        const Status opened = open(path, OpenMode::directory, &directory);
        if (!opened.ok()) {
            return opened;
        }
        const Status listed = list(directory, names);
        (void)close(directory);
        return listed;
    }
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

// A handle that is closed on every way out.
class OpenFile {
  public:
    OpenFile() noexcept = default;
    OpenFile(FileTable& files, int32_t handle) noexcept : files_(&files), handle_(handle) {}
    OpenFile(FileTable& files, int32_t directory, const std::string& path, OpenMode mode)
        : files_(&files) {
        check(files.open(directory, path.c_str(), mode, &handle_));
    }
    OpenFile(OpenFile&& other) noexcept { *this = std::move(other); }
    OpenFile& operator=(OpenFile&& other) noexcept {
        std::swap(files_, other.files_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() { (void)close(); }

    [[nodiscard]] int32_t handle() const noexcept { return handle_; }
    Status close() noexcept {
        return handle_ < 0 ? Status() : files_->close(std::exchange(handle_, -1));
    }
    // Everything is on the disk, or a failure, which is final.
    void finish() {
        const Status synced = files_->sync(handle_);
        const Status closed = close();
        check(synced);
        check(closed);
    }

  private:
    FileTable* files_ = nullptr;
    int32_t handle_ = -1;
};

// The whole file as text; a file above `limit` bytes is refused before anything is allocated.
std::string read_text(FileTable& files, int32_t directory, const std::string& path, int64_t limit,
                      OpenMode mode = OpenMode::read);
inline std::string read_text(FileTable& files, const std::string& path, int64_t limit) {
    return read_text(files, kCurrentDirectory, path, limit);
}

} // namespace mp::system
