// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "safetensors.hpp"

namespace command {
namespace {

namespace fs = std::filesystem;

// CRC-32C (Castagnoli), eight bytes at a time.
class Crc32c {
  public:
    Crc32c() {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int bit = 0; bit < 8; bit++) {
                crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
            }
            table_[0][i] = crc;
        }
        for (size_t t = 1; t < table_.size(); t++) {
            for (size_t i = 0; i < 256; i++) {
                table_[t][i] = table_[t - 1][i] >> 8U ^ table_[0][table_[t - 1][i] & 0xFFU];
            }
        }
    }
    [[nodiscard]] uint32_t of(const unsigned char* data, size_t bytes) const {
        uint32_t crc = ~0U;
        for (; bytes >= 8; data += 8, bytes -= 8) {
            crc ^= uint32_t{data[0]} | uint32_t{data[1]} << 8U | uint32_t{data[2]} << 16U |
                   uint32_t{data[3]} << 24U;
            crc = table_[7][crc & 0xFFU] ^ table_[6][crc >> 8U & 0xFFU] ^
                  table_[5][crc >> 16U & 0xFFU] ^ table_[4][crc >> 24U] ^ table_[3][data[4]] ^
                  table_[2][data[5]] ^ table_[1][data[6]] ^ table_[0][data[7]];
        }
        for (; bytes > 0; data++, bytes--) {
            crc = crc >> 8U ^ table_[0][(crc ^ *data) & 0xFFU];
        }
        return ~crc;
    }

  private:
    std::array<std::array<uint32_t, 256>, 8> table_{};
};

struct Work {
    int64_t done = 0, total = 0;
};

// A file of a checkpoint, of the size that the manifest says. Links are none.
struct ShardFile : ReadFile {
    ShardFile(const Manifest& manifest, const Json& file)
        : ReadFile(manifest.folder + "/" + file.at("name").get<std::string>(), false) {
        const int64_t said = file.at("bytes");
        must<Failure>(bytes() == said, file.at("name").get<std::string>(), ": it has ", bytes(),
                      " bytes, and the manifest says ", said);
    }
};

std::string check_file(const Manifest& manifest, const Json& file, Bar& bar, Work& work) {
    static const Crc32c crc;
    const std::string name = file.at("name"), sums = file.at("crc32c");
    const int64_t bytes = file.at("bytes"), chunk = manifest.json.at("chunk_bytes");
    const ShardFile opened(manifest, file);
    std::vector<unsigned char> buffer(size(std::min(chunk, std::max<int64_t>(bytes, 1))));
    for (int64_t at = 0, i = 0; at < bytes; at += chunk, i++) {
        const size_t wanted = size(std::min(chunk, bytes - at));
        opened.read(at, buffer.data(), wanted);
        if (sums.substr(size(i) * 8, 8) != format("%08x", crc.of(buffer.data(), wanted))) {
            return join(name, ": wrong checksum of bytes ", at, " to ",
                        at + static_cast<int64_t>(wanted) - 1);
        }
        bar.update(work.done += static_cast<int64_t>(wanted), work.total);
    }
    const SafetensorsHeader header = read_safetensors_header(opened);
    const auto id = header.metadata.find("checkpoint_id");
    if (id == header.metadata.end() || id->second != manifest.json.at("id")) {
        return name + ": it is a file of another checkpoint";
    }
    const std::string scale = bad_scale(opened, header);
    return scale.empty() ? "" : name + ": " + scale;
}

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
        const ShardFile opened(manifest, file);
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
    Work work{0, manifest.info.bytes};
    std::vector<std::string> problems;
    for (const Json& file : manifest.json.at("files")) {
        std::string problem;
        try {
            problem = check_file(manifest, file, bar, work);
        } catch (const Failure& failure) {
            problem = failure.what();
        }
        if (!problem.empty()) {
            problems.push_back(problem);
        }
    }
    return problems;
}

} // namespace command
