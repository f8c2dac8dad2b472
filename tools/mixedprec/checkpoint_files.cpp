// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace command {
namespace {

namespace fs = std::filesystem;

mixedprec::CheckpointInfo info_of(const Json& json) {
    mixedprec::CheckpointInfo info;
    info.format = json.at("version");
    info.step = json.at("step");
    info.sequence = json.at("sequence");
    info.world = json.at("world");
    info.tensor_count = static_cast<int64_t>(json.at("tensors").size());
    info.applied_step = json.at("rng").at("step");
    info.seed = std::stoull(json.at("rng").at("seed").get<std::string>(), nullptr, 16);
    for (const Json& file : json.at("files")) {
        info.bytes += file.at("bytes").get<int64_t>();
    }
    return info;
}

} // namespace

Manifest read_manifest(const std::string& path) {
    const Json read = Json::parse(mixedprec::Checkpoint::read_manifest(path), nullptr, false);
    must<Failure>(read.is_object(), "'", path, "' changed while it was read");
    const std::string name = read.at("name");
    const Json& json = read.at("manifest");
    return {name.empty() ? path : path + "/" + name, mixedprec::note(), info_of(json), json};
}

std::vector<std::string> checkpoints_in(const std::string& path) {
    std::error_code error;
    if (fs::symlink_status(path + "/manifest.json", error).type() != fs::file_type::not_found) {
        return {path};
    }
    std::vector<std::string> names; // "step-...: what it is", the newest first
    for (const std::string& line : split(mixedprec::Checkpoint::describe(path), '\n')) {
        if (line.starts_with("step-") && line.find(':') != std::string::npos) {
            names.push_back(path + "/" + line.substr(0, line.find(':')));
        }
    }
    return names;
}

void check_sizes(const Manifest& manifest) {
    for (const Json& file : manifest.json.at("files")) {
        const std::string name = file.at("name");
        const fs::path path = fs::path(manifest.folder) / name;
        std::error_code error;
        const bool is_file = fs::is_regular_file(fs::symlink_status(path, error));
        const auto bytes = is_file ? fs::file_size(path, error) : 0;
        must<Failure>(is_file && !error && bytes == file.at("bytes").get<uint64_t>(), name,
                      ": it has ", bytes, " bytes, and the manifest says ",
                      file.at("bytes").get<int64_t>());
    }
}

Bar::Bar(std::string name) : name_(std::move(name)), terminal_(isatty(STDERR_FILENO) == 1) {}

Bar::~Bar() {
    if (terminal_ && last_ > 0.0) {
        std::fputs("\r\033[K", stderr);
    }
}

void Bar::update(int64_t done, int64_t total) {
    constexpr size_t kWidth = 30;
    const double now = seconds();
    if (!terminal_ || total <= 0 || now - last_ < 0.1) {
        return;
    }
    last_ = now;
    const double part = real(done) / real(total);
    std::string bar(kWidth, '.');
    std::fill_n(bar.begin(), static_cast<int>(part * real(kWidth)), '#');
    std::fprintf(stderr, "\r%s [%s] %s of %s\033[K", name_.c_str(), bar.c_str(),
                 bytes_text(real(done)).c_str(), bytes_text(real(total)).c_str());
}

std::vector<std::string> problems_of(const Manifest& manifest, Bar& bar) {
    std::vector<std::string> problems;
    int64_t before = 0; // bytes of the files that were read
    for (size_t i = 0; i < manifest.json.at("files").size(); i++) {
        const Json& file = manifest.json.at("files")[i];
        try {
            mixedprec::Checkpoint::verify(
                manifest.folder, static_cast<int64_t>(i),
                [&](int64_t done, int64_t) { bar.update(before + done, manifest.info.bytes); });
        } catch (const mixedprec::Error& error) {
            problems.push_back(file.at("name").get<std::string>() + ": " + error.what());
        }
        before += file.at("bytes").get<int64_t>();
    }
    return problems;
}

} // namespace command
