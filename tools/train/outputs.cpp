// SPDX-License-Identifier: Apache-2.0
#include "outputs.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "monitor.hpp"
#include "support.hpp"

namespace train {

// Made by the library, which overwrites nothing: not now, and not at the end.
static void check_safetensors(const std::string& path) {
    struct stat found {};
    must<Failure>(lstat(path.c_str(), &found) != 0, "--save: there already is a '", path,
                  "', and it is not overwritten");
    const NewFile probe("the weights ", path);
}

static void prepare_folder(const std::string& folder) {
    const bool made = mkdir(folder.c_str(), 0777) == 0;
    const int error = errno;
    must<Failure>(made || error == EEXIST, "cannot make the folder --out '", folder,
                  "': ", std::strerror(error));
    struct stat info {};
    must<Failure>(stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                      access(folder.c_str(), W_OK) == 0,
                  "--out '", folder, "' is not a folder that can be written to");
}

// All that will be written into --out.
static std::vector<NamedFile> results_of(const Options& o) {
    std::vector<std::string> names{"losses.csv", "losses.svg", "results.json", "report.html"};
    if (o.monitor > 0) {
        names.insert(names.end(), {"monitor.csv", "monitor.svg"});
    }
    std::vector<NamedFile> files;
    files.reserve(names.size() + o.recipes.size());
    for (const std::string& name : names) {
        files.push_back({"--out", o.out + "/" + name});
    }
    for (const std::string& recipe : o.recipes) {
        const std::string path = o.last_steps_file(recipe);
        const bool is_new = std::none_of(files.begin(), files.end(), [&](const NamedFile& file) {
            return file.path == path; // two recipes with one name
        });
        if (is_new) {
            files.push_back({"--out", path});
        }
    }
    return files;
}

static std::vector<NamedFile> inputs_of(const Options& o) {
    std::vector<NamedFile> files{{"--data", o.data}};
    if (!o.init.empty()) {
        files.push_back({"--init", o.init});
    }
    for (const std::string& recipe : o.recipes) {
        if (recipe.ends_with(".json")) {
            files.push_back({"--recipe", recipe});
        }
    }
    for (const auto& [option, folder] :
         {std::pair("--resume", &o.resume), std::pair("--checkpoint", &o.checkpoint)}) {
        const std::vector<NamedFile> more =
            folder->empty() ? std::vector<NamedFile>() : files_below(option, *folder);
        files.insert(files.end(), more.begin(), more.end());
    }
    return files;
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
    std::vector<NamedFile> outputs;
    if (!o.out.empty()) {
        prepare_folder(o.out);
        outputs = results_of(o);
        for (const NamedFile& file : outputs) {
            const NewFile probe("", file.path);
        }
    }
    if (o.save.ends_with(".safetensors")) {
        check_safetensors(o.save);
    } else if (!o.save.empty()) {
        const NewFile probe("the weights ", o.save);
        outputs.push_back({"--save", o.save});
    }
    must_differ(outputs, inputs_of(o));
    if (o.monitor > 0) {
        monitor_.emplace("", o.out + "/monitor.csv");
        const std::string heads = Monitor::heads();
        monitor_->write(heads.data(), heads.size());
    }
    if (!o.checkpoint.empty()) {
        folder_ = lock_folder(o.checkpoint);
    }
}

void Outputs::finish_monitor() {
    if (monitor_ && !monitor_->is_empty()) { // else rows were lost
        monitor_->commit();
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
