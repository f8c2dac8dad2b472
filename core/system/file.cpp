// SPDX-License-Identifier: Apache-2.0
#include "system/file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <new>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mp::system {
namespace {

Status io_error(const char* what, const char* name) noexcept {
    const int code = errno;
    char text[128] = {};
    // The GNU variant may return a static string instead of filling the buffer.
    const char* reason = strerror_r(code, text, sizeof text);
    return Status::error(Code::io_error, "%s '%s': %s (errno %d)", what, name, reason, code);
}

std::ptrdiff_t read_at(int handle, void* data, std::size_t bytes, int64_t offset) noexcept {
    return ::pread(handle, data, bytes, offset);
}
std::ptrdiff_t write_at(int handle, const void* data, std::size_t bytes, int64_t offset) noexcept {
    return ::pwrite(handle, data, bytes, offset);
}
int sync_file(int handle) noexcept { return ::fsync(handle); }

int open_flags(OpenMode mode) noexcept {
    switch (mode) {
    case OpenMode::create_new:
        return O_RDWR | O_CREAT | O_EXCL;
    case OpenMode::read_plain:
        return O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
    case OpenMode::read:
        break;
    }
    return O_RDONLY;
}

// 0, or -1 with errno.
int rename_new(const char* from, const char* to) noexcept {
#ifdef RENAME_NOREPLACE
    if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != ENOSYS && errno != EINVAL) {
        return -1;
    }
#endif
    return std::rename(from, to);
}

// Calls `move`, which takes what is done and returns what it moved, until all is; `end` is what moving nothing means.
template <typename Move>
Status transfer(const char* what, const char* end, std::size_t bytes, Move&& move) noexcept {
    for (std::size_t done = 0; done < bytes;) {
        const std::ptrdiff_t moved = move(done);
        if (moved < 0 && errno == EINTR) {
            continue;
        }
        if (moved < 0) {
            return io_error(what, "open file");
        }
        if (moved == 0) {
            return Status::error(Code::io_error, "%s: the file %s, %zu bytes early", what, end,
                                 bytes - done);
        }
        done += static_cast<std::size_t>(moved);
    }
    return {};
}

// The names that a directory has, sorted; closes it.
Status read_names(DIR* directory, const char* path, std::vector<std::string>* names) noexcept {
    names->clear();
    if (directory == nullptr) {
        return io_error("list", path);
    }
    Status status;
    try {
        errno = 0;
        while (const dirent* entry = ::readdir(directory)) {
            const std::string_view name = entry->d_name;
            if (name != "." && name != "..") {
                names->emplace_back(name);
            }
            errno = 0;
        }
        status = errno == 0 ? Status() : io_error("list", path);
        std::sort(names->begin(), names->end());
    } catch (const std::bad_alloc&) {
        status = Status::error(Code::out_of_memory, "list '%s': out of memory", path);
    }
    (void)::closedir(directory);
    return status;
}

class PosixFiles final : public FileTable {
  public:
    explicit PosixFiles(const FileCalls& calls) noexcept : calls_(calls) {}

    Status open(const char* path, OpenMode mode, int32_t* handle) noexcept override {
        const int descriptor = ::open(path, open_flags(mode) | O_CLOEXEC, 0644);
        if (descriptor < 0) {
            return io_error("open", path);
        }
        *handle = descriptor;
        return {};
    }

    Status size(int32_t handle, int64_t* bytes) noexcept override {
        struct stat info = {};
        if (::fstat(handle, &info) != 0) {
            return io_error("stat", "open file");
        }
        if (!S_ISREG(info.st_mode)) {
            return Status::error(Code::io_error, "not a regular file");
        }
        *bytes = info.st_size;
        return {};
    }

    Status read(int32_t handle, int64_t offset, void* data, std::size_t bytes) noexcept override {
        return transfer("read", "ended", bytes, [&](std::size_t done) {
            return calls_.read(handle, static_cast<char*>(data) + done, bytes - done,
                               offset + static_cast<int64_t>(done));
        });
    }

    Status write(int32_t handle, int64_t offset, const void* data,
                 std::size_t bytes) noexcept override {
        return transfer("write", "takes no more", bytes, [&](std::size_t done) {
            return calls_.write(handle, static_cast<const char*>(data) + done, bytes - done,
                                offset + static_cast<int64_t>(done));
        });
    }

    Status sync(int32_t handle) noexcept override {
        return calls_.sync(handle) == 0 ? Status() : io_error("fsync", "open file");
    }

    Status close(int32_t handle) noexcept override {
        return ::close(handle) == 0 ? Status() : io_error("close", "open file");
    }

    Status make_directory(const char* path) noexcept override {
        return ::mkdir(path, 0755) == 0 ? Status() : io_error("mkdir", path);
    }

    Status sync_directory(const char* path) noexcept override {
        const int descriptor = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (descriptor < 0) {
            return io_error("open", path);
        }
        const Status status = sync(descriptor);
        (void)::close(descriptor);
        return status;
    }

    Status rename(const char* from, const char* to) noexcept override {
        return rename_new(from, to) == 0 ? Status() : io_error("rename", from);
    }

    Status remove(const char* path) noexcept override {
        return std::remove(path) == 0 ? Status() : io_error("remove", path);
    }

    Status reserve(int32_t handle, int64_t bytes) noexcept override {
#ifdef __linux__
        // Not posix_fallocate, which writes zeros where the file system cannot reserve.
        if (bytes > 0 && ::fallocate(handle, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 &&
            (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)) {
            return io_error("reserve space for", "open file");
        }
#endif
        return {};
    }

    Status list(const char* path, std::vector<std::string>* names) noexcept override {
        return read_names(::opendir(path), path, names);
    }

    Status open_directory(const char* path, int32_t* handle) noexcept override {
        const int descriptor = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (descriptor < 0) {
            return io_error("open directory", path);
        }
        *handle = descriptor;
        return {};
    }

    Status list_open(int32_t directory, std::vector<std::string>* names) noexcept override {
        const int copy = ::fcntl(directory, F_DUPFD_CLOEXEC, 0); // closedir() closes it
        DIR* stream = copy < 0 ? nullptr : ::fdopendir(copy);
        if (copy >= 0 && stream == nullptr) {
            (void)::close(copy);
        }
        if (stream != nullptr) {
            ::rewinddir(stream); // the copy shares its place with the original
        }
        return read_names(stream, "open directory", names);
    }

    Status remove_from(int32_t directory, const char* name) noexcept override {
        if (::unlinkat(directory, name, 0) == 0 ||
            (errno == EISDIR && ::unlinkat(directory, name, AT_REMOVEDIR) == 0)) {
            return {};
        }
        return io_error("remove", name);
    }

    Status lock(int32_t directory, bool* taken) noexcept override {
        *taken = ::flock(directory, LOCK_EX | LOCK_NB) == 0;
        return *taken || errno == EWOULDBLOCK ? Status() : io_error("lock", "open directory");
    }

  private:
    FileCalls calls_;
};

// Closes the file on every way out of a function that reads it.
class OpenFile {
  public:
    OpenFile(FileTable& files, const char* path, OpenMode mode) : files_(files) {
        check(files.open(path, mode, &handle_));
    }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    ~OpenFile() { (void)files_.close(handle_); }
    [[nodiscard]] int32_t handle() const noexcept { return handle_; }

  private:
    FileTable& files_;
    int32_t handle_ = -1;
};

} // namespace

FileTable& posix_files() noexcept {
    static PosixFiles files(posix_calls());
    return files;
}

FileCalls posix_calls() noexcept { return {read_at, write_at, sync_file}; }

std::unique_ptr<FileTable> make_posix_files(const FileCalls& calls) {
    return std::make_unique<PosixFiles>(calls);
}

std::string read_text(FileTable& files, const std::string& path, int64_t limit, OpenMode mode) {
    const OpenFile file(files, path.c_str(), mode);
    int64_t bytes = 0;
    check(files.size(file.handle(), &bytes));
    if (bytes > limit) {
        fail(Code::io_error, "'%s' has %lld bytes; at most %lld are read", path.c_str(),
             static_cast<long long>(bytes), static_cast<long long>(limit));
    }
    std::string text(static_cast<std::size_t>(bytes), '\0');
    check(files.read(file.handle(), 0, text.data(), text.size()));
    return text;
}

} // namespace mp::system
