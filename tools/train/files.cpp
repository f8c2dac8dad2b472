// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <tuple>
#include <utility>

#include "support.hpp"

namespace train {
namespace {

std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Where a name lies, whether or not there is a file: its folder, and the name.
std::tuple<dev_t, ino_t, std::string> place_of(const std::string& path) {
    struct stat folder {};
    const bool there = stat(folder_of(path).c_str(), &folder) == 0;
    const std::string name = path.substr(path.rfind('/') + 1);
    return {there ? folder.st_dev : 0, there ? folder.st_ino : 0, there ? name : path};
}

} // namespace

void must_be_ordinary(const std::string& what, const std::string& path) {
    struct stat found {};
    must<Failure>(stat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode), what, "'", path,
                  "' is not an ordinary file");
}

void reserve_standard_streams() {
    for (const int stream : {0, 1, 2}) {
        if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) { // open() takes the lowest that is free
            (void)open("/dev/null",
                       stream == 0 ? O_WRONLY : O_RDONLY); // nothing can be read, or printed
        }
    }
}

NewFile::NewFile(std::string what, std::string path)
    : what_(std::move(what)), path_(std::move(path)), folder_(folder_of(path_)) {
    const std::optional<unsigned> mode = check_place();
    std::random_device random;
    temporary_ = folder_ + format("/.mixedprec-%08x%08x", random(), random());
    file_ = open(temporary_.c_str(),
                 O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file_ < 0) {
        fail(std::strerror(errno));
    }
    if (mode) {
        (void)fchmod(file_, *mode); // where that is not possible it is a new file's
    }
}

NewFile::~NewFile() {
    if (file_ >= 0) {
        (void)close(file_);
        (void)unlink(temporary_.c_str());
    }
}

void NewFile::fail(const std::string& reason) const {
    throw Failure("cannot write ", what_, "'", path_, "': ", reason);
}

std::optional<unsigned> NewFile::check_place() const {
    struct stat found {};
    if (lstat(path_.c_str(), &found) != 0) {
        if (errno != ENOENT) {
            fail(std::strerror(errno));
        }
        return {};
    }
    if (S_ISDIR(found.st_mode)) {
        fail(std::strerror(EISDIR));
    }
    if (S_ISLNK(found.st_mode)) {
        fail("it is a link, and what it leads to is not replaced: give that file's own name");
    }
    if (!S_ISREG(found.st_mode)) {
        fail("it is no ordinary file, and only such are replaced: choose another name");
    }
    if (access(path_.c_str(), W_OK) != 0) {
        fail(std::strerror(errno));
    }
    return found.st_mode & 0777U;
}

bool write_all(int file, const char* data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t done = ::write(file, data, bytes);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        data += std::max<ssize_t>(done, 0);
        bytes -= static_cast<size_t>(std::max<ssize_t>(done, 0));
    }
    return true;
}

void NewFile::write(const void* data, size_t bytes) {
    if (!write_all(file_, static_cast<const char*>(data), bytes)) {
        fail(std::strerror(errno));
    }
}

bool NewFile::is_empty() const {
    struct stat own {};
    return fstat(file_, &own) == 0 && own.st_size == 0;
}

void NewFile::commit() {
    if (fsync(file_) != 0 && errno != EINVAL) { // some file systems cannot
        fail(std::strerror(errno));
    }
    (void)check_place(); // it may be another file by now
    struct stat own {};
    struct stat named {};
    if (fstat(file_, &own) != 0 || lstat(temporary_.c_str(), &named) != 0 ||
        own.st_dev != named.st_dev || own.st_ino != named.st_ino) {
        fail("something else has taken the place of what was written");
    }
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
        fail(std::strerror(errno));
    }
    const int written = std::exchange(file_, -1);
    if (close(written) != 0) {
        fail(std::strerror(errno));
    }
    const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        (void)fsync(folder);
        (void)close(folder);
    }
}

void write_file(const std::string& path, const std::string& content) {
    NewFile file("", path);
    file.write(content.data(), content.size());
    file.commit();
}

void must_differ(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
    for (const NamedFile& output : outputs) {
        struct stat written {
        }, read{};
        const bool there = stat(output.path.c_str(), &written) == 0;
        for (const NamedFile& input : inputs) {
            const bool same = there && stat(input.path.c_str(), &read) == 0 &&
                              written.st_dev == read.st_dev && written.st_ino == read.st_ino;
            must<Failure>(!same, output.option, " would replace '", input.path, "', a file of ",
                          input.option, ": choose another name");
        }
        for (const NamedFile& other : outputs) {
            must<Failure>(&other == &output || place_of(other.path) != place_of(output.path),
                          output.option, " and ", other.option, " would both write '", other.path,
                          "': choose another name");
        }
    }
}

std::vector<NamedFile> files_below(const std::string& option, const std::string& folder) {
    namespace fs = std::filesystem;
    std::error_code error;
    std::vector<fs::path> checkpoints;
    if (fs::exists(folder + "/manifest.json", error)) {
        checkpoints.emplace_back(folder);
    }
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().filename().string().starts_with("step-")) {
            checkpoints.push_back(entry.path());
        }
    }
    std::vector<NamedFile> all;
    for (const fs::path& checkpoint : checkpoints) {
        for (const auto& entry : fs::directory_iterator(checkpoint, error)) {
            all.push_back({option, entry.path().string()});
        }
    }
    return all;
}

} // namespace train
