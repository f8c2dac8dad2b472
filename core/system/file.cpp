// SPDX-License-Identifier: Apache-2.0
#include "system/file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
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

class PosixFiles final : public FileTable {
  public:
    Status open(const char* path, OpenMode mode, int32_t* handle) noexcept override {
        const int flags = mode == OpenMode::read ? O_RDONLY : O_RDWR | O_CREAT | O_EXCL;
        const int descriptor = ::open(path, flags | O_CLOEXEC, 0644);
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
        auto* cursor = static_cast<char*>(data);
        while (bytes > 0) {
            const ssize_t got = ::pread(handle, cursor, bytes, offset);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0) {
                return io_error("read", "open file");
            }
            if (got == 0) {
                return Status::error(Code::io_error, "read: the file ended %zu bytes early", bytes);
            }
            cursor += got;
            offset += got;
            bytes -= static_cast<std::size_t>(got);
        }
        return {};
    }

    Status write(int32_t handle, int64_t offset, const void* data,
                 std::size_t bytes) noexcept override {
        const auto* cursor = static_cast<const char*>(data);
        while (bytes > 0) {
            const ssize_t put = ::pwrite(handle, cursor, bytes, offset);
            if (put < 0 && errno == EINTR) {
                continue;
            }
            if (put < 0) {
                return io_error("write", "open file");
            }
            cursor += put;
            offset += put;
            bytes -= static_cast<std::size_t>(put);
        }
        return {};
    }

    Status sync(int32_t handle) noexcept override {
        return ::fsync(handle) == 0 ? Status() : io_error("fsync", "open file");
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
        return std::rename(from, to) == 0 ? Status() : io_error("rename", from);
    }

    Status remove(const char* path) noexcept override {
        return std::remove(path) == 0 ? Status() : io_error("remove", path);
    }
};

// Closes the file on every way out of a function that reads it.
class OpenFile {
  public:
    OpenFile(FileTable& files, const char* path) : files_(files) {
        check(files.open(path, OpenMode::read, &handle_));
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
    static PosixFiles files;
    return files;
}

std::string read_text(FileTable& files, const std::string& path, int64_t limit) {
    const OpenFile file(files, path.c_str());
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
