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

#include "system/descriptor.hpp"

namespace mp::system {
namespace {

Status io_error(const char* what, const char* name) noexcept {
    const int code = errno;
    char text[128] = {};
    // The GNU variant may return a static string instead of filling the buffer.
    const char* reason = strerror_r(code, text, sizeof text);
    return Status::error(Code::io_error, "%s '%s': %s (errno %d)", what, name, reason, code);
}

// The path of an open file now, for messages; keeps errno.
class OpenName {
  public:
    explicit OpenName(int handle) noexcept {
        const int code = errno;
        char link[40] = {};
        (void)std::snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
        const ssize_t length = ::readlink(link, name_, sizeof name_ - 1);
        if (length > 0) {
            name_[length] = '\0';
        }
        errno = code;
    }
    [[nodiscard]] const char* c_str() const noexcept { return name_; }

  private:
    char name_[512] = "open file";
};

Status handle_error(const char* what, int handle) noexcept {
    return io_error(what, OpenName(handle).c_str());
}

Status path_error(const char* what, int directory, const char* path) noexcept {
    if (directory == AT_FDCWD || path[0] == '/') {
        return io_error(what, path);
    }
    TextLine<768> whole;
    whole.set("%s/%s", OpenName(directory).c_str(), path);
    return io_error(what, whole.c_str());
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
    case OpenMode::directory:
        return O_RDONLY | O_DIRECTORY;
    case OpenMode::plain_directory:
        return O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    case OpenMode::read:
        break;
    }
    return O_RDONLY | O_NONBLOCK; // a pipe is refused later: it has no size
}

// 0, or -1 with errno.
int rename_new(int directory, const char* from, const char* to) noexcept {
#ifdef RENAME_NOREPLACE
    if (::renameat2(directory, from, directory, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != ENOSYS && errno != EINVAL) {
        return -1;
    }
#endif
    struct stat info = {};
    if (::fstatat(directory, to, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return ::renameat(directory, from, directory, to);
}

FileIdentity identity(const struct stat& info) noexcept {
    FileIdentity found = {FileKind::other, info.st_dev, info.st_ino};
    if (S_ISREG(info.st_mode)) {
        found.kind = FileKind::regular;
    } else if (S_ISDIR(info.st_mode)) {
        found.kind = FileKind::directory;
    } else if (S_ISLNK(info.st_mode)) {
        found.kind = FileKind::link;
    }
    return found;
}

// Calls `move`, which takes what is done and returns what it moved, until all is; `end` is what moving nothing means.
template <typename Move>
Status transfer(const char* what, const char* end, int handle, std::size_t bytes,
                Move&& move) noexcept {
    for (std::size_t done = 0; done < bytes;) {
        const std::ptrdiff_t moved = move(done);
        if (moved < 0 && errno == EINTR) {
            continue;
        }
        if (moved < 0) {
            return handle_error(what, handle);
        }
        if (moved == 0) {
            return Status::error(Code::io_error, "%s '%s': the file %s, %zu bytes early", what,
                                 OpenName(handle).c_str(), end, bytes - done);
        }
        done += static_cast<std::size_t>(moved);
    }
    return {};
}

// The names that a directory has, sorted; closes it.
Status read_names(DIR* directory, std::vector<std::string>* names) noexcept {
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
        status = errno == 0 ? Status() : handle_error("list", ::dirfd(directory));
        std::sort(names->begin(), names->end());
    } catch (const std::bad_alloc&) {
        status = Status::error(Code::out_of_memory, "list a directory: out of memory");
    }
    (void)::closedir(directory);
    return status;
}

class PosixFiles final : public FileTable {
  public:
    using FileTable::list;
    using FileTable::make_directory;
    using FileTable::open;
    using FileTable::remove;
    using FileTable::rename;

    explicit PosixFiles(const FileCalls& calls) noexcept : calls_(calls) {}

    Status open(int32_t directory, const char* path, OpenMode mode,
                int32_t* handle) noexcept override {
        const int descriptor = open_descriptor(directory, path, open_flags(mode), 0666);
        if (descriptor < 0) {
            const bool is_directory =
                mode == OpenMode::directory || mode == OpenMode::plain_directory;
            return path_error(is_directory ? "open directory" : "open", directory, path);
        }
        *handle = descriptor;
        return {};
    }

    Status size(int32_t handle, int64_t* bytes) noexcept override {
        struct stat info = {};
        if (::fstat(handle, &info) != 0) {
            return handle_error("stat", handle);
        }
        if (!S_ISREG(info.st_mode)) {
            return Status::error(Code::io_error, "'%s' is not a regular file",
                                 OpenName(handle).c_str());
        }
        *bytes = info.st_size;
        return {};
    }

    Status read(int32_t handle, int64_t offset, void* data, std::size_t bytes) noexcept override {
        return transfer("read", "ended", handle, bytes, [&](std::size_t done) {
            return calls_.read(handle, static_cast<char*>(data) + done, bytes - done,
                               offset + static_cast<int64_t>(done));
        });
    }

    Status write(int32_t handle, int64_t offset, const void* data,
                 std::size_t bytes) noexcept override {
        return transfer("write", "takes no more", handle, bytes, [&](std::size_t done) {
            return calls_.write(handle, static_cast<const char*>(data) + done, bytes - done,
                                offset + static_cast<int64_t>(done));
        });
    }

    Status sync(int32_t handle) noexcept override {
        return calls_.sync(handle) == 0 ? Status() : handle_error("fsync", handle);
    }

    Status close(int32_t handle) noexcept override {
        return ::close(handle) == 0 ? Status() : io_error("close", "open file");
    }

    Status make_directory(int32_t directory, const char* path) noexcept override {
        return ::mkdirat(directory, path, 0777) == 0 ? Status()
                                                     : path_error("mkdir", directory, path);
    }

    Status rename(int32_t directory, const char* from, const char* to) noexcept override {
        return rename_new(directory, from, to) == 0 ? Status()
                                                    : path_error("rename to", directory, to);
    }

    Status replace(int32_t directory, const char* from, const char* to) noexcept override {
        return ::renameat(directory, from, directory, to) == 0
                   ? Status()
                   : path_error("rename to", directory, to);
    }

    Status remove(int32_t directory, const char* path) noexcept override {
        if (::unlinkat(directory, path, 0) == 0 ||
            (errno == EISDIR && ::unlinkat(directory, path, AT_REMOVEDIR) == 0)) {
            return {};
        }
        return path_error("remove", directory, path);
    }

    Status reserve(int32_t handle, int64_t bytes) noexcept override {
#ifdef __linux__
        // Not posix_fallocate, which writes zeros where the file system cannot reserve.
        if (bytes > 0 && ::fallocate(handle, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 &&
            (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)) {
            return handle_error("reserve space for", handle);
        }
#endif
        return {};
    }

    Status list(int32_t directory, std::vector<std::string>* names) noexcept override {
        names->clear();
        const int copy = duplicate_descriptor(directory); // closedir() closes it
        DIR* stream = copy < 0 ? nullptr : ::fdopendir(copy);
        if (stream == nullptr) {
            const Status status = handle_error("list", directory);
            if (copy >= 0) {
                (void)::close(copy);
            }
            return status;
        }
        ::rewinddir(stream); // the copy shares its place with the original
        return read_names(stream, names);
    }

    Status look(int32_t directory, const char* path, FileIdentity* found) noexcept override {
        struct stat info = {};
        if (::fstatat(directory, path, &info, AT_SYMLINK_NOFOLLOW) == 0) {
            *found = identity(info);
            return {};
        }
        *found = {};
        return errno == ENOENT || errno == ENOTDIR ? Status()
                                                   : path_error("look at", directory, path);
    }

    Status look(int32_t handle, FileIdentity* found) noexcept override {
        struct stat info = {};
        if (::fstat(handle, &info) != 0) {
            return handle_error("look at", handle);
        }
        *found = identity(info);
        return {};
    }

    Status lock(int32_t directory, bool* taken) noexcept override {
        *taken = ::flock(directory, LOCK_EX | LOCK_NB) == 0;
        return *taken || errno == EWOULDBLOCK ? Status() : handle_error("lock", directory);
    }

  private:
    FileCalls calls_;
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

std::string read_text(FileTable& files, int32_t directory, const std::string& path, int64_t limit,
                      OpenMode mode) {
    const OpenFile file(files, directory, path, mode);
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
