// SPDX-License-Identifier: Apache-2.0
#include "outputs.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "support.hpp"

namespace train {

std::string part_of(const std::string& path) { return path + ".part"; }

static void check_save(const std::string& path) {
    must<Failure>(!path.ends_with(".safetensors") || access(path.c_str(), F_OK) != 0,
                  "--save: there already is a '", path, "', and it is not overwritten");
    const std::string part = part_of(path);
    const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    must<Failure>(file >= 0, "cannot write the weights '", path, "': ", std::strerror(errno));
    close(file);
    unlink(part.c_str());
}

static int lock_folder(const std::string& path) {
    const bool is_there = mkdir(path.c_str(), 0777) == 0 || errno == EEXIST;
    must<Failure>(is_there, "cannot make the folder '", path,
                  "' for checkpoints: ", std::strerror(errno));
    const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must<Failure>(folder >= 0, "cannot open the folder '", path,
                  "' for checkpoints: ", std::strerror(errno));
    const bool is_writable = faccessat(folder, ".", W_OK | X_OK, AT_EACCESS) == 0;
    const int denied = errno;
    // Where the file system knows no locks there is none.
    const bool is_taken =
        is_writable && flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_writable || is_taken) {
        close(folder);
    }
    must<Failure>(is_writable, "cannot write to the folder '", path,
                  "' for checkpoints: ", std::strerror(denied));
    must<Failure>(!is_taken, "another process trains into '", path,
                  "', and its checkpoints would be lost: wait for it, or choose another folder");
    return folder;
}

Outputs::Outputs(const Options& o) {
    if (!o.save.empty()) {
        check_save(o.save);
    }
    if (!o.checkpoint.empty()) {
        folder_ = lock_folder(o.checkpoint);
    }
}

Outputs::~Outputs() {
    if (folder_ >= 0) {
        close(folder_);
    }
}

void check_stdout() {
    const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    must<Failure>(good, "not all could be written to the standard output: ", std::strerror(errno));
}

} // namespace train
