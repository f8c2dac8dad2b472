// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

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

std::string check_file(const Manifest& manifest, const Json& file, Bar& bar, Work& work) {
    static const Crc32c crc;
    const std::string name = file.at("name"), path = manifest.folder + "/" + name;
    const int64_t bytes = file.at("bytes"), chunk = manifest.json.at("chunk_bytes");
    const std::string sums = file.at("crc32c");
    const int number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (number < 0) {
        return name + ": " + std::strerror(errno);
    }
    const std::unique_ptr<const int, void (*)(const int*)> closer(
        &number, [](const int* open_file) { close(*open_file); });
    struct stat info {};
    if (fstat(number, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != bytes) {
        return join(name, ": it has ", info.st_size, " bytes, and the manifest says ", bytes);
    }
    std::vector<unsigned char> buffer(size(std::min(chunk, std::max<int64_t>(bytes, 1))));
    for (int64_t at = 0, i = 0; at < bytes; at += chunk, i++) {
        const size_t wanted = size(std::min(chunk, bytes - at));
        for (size_t have = 0; have < wanted;) {
            const ssize_t got = read(number, buffer.data() + have, wanted - have);
            if (got <= 0) {
                return name + ": " + (got < 0 ? std::strerror(errno) : "it ended early");
            }
            have += static_cast<size_t>(got);
        }
        if (sums.substr(size(i) * 8, 8) != format("%08x", crc.of(buffer.data(), wanted))) {
            return join(name, ": wrong checksum of bytes ", at, " to ",
                        at + static_cast<int64_t>(wanted) - 1);
        }
        bar.update(work.done += static_cast<int64_t>(wanted), work.total);
    }
    const SafetensorsHeader header = read_safetensors_header(path);
    const auto id = header.metadata.find("checkpoint_id");
    return id != header.metadata.end() && id->second == manifest.json.at("id")
               ? ""
               : name + ": it is a file of another checkpoint";
}

} // namespace

Manifest read_manifest(const std::string& folder) {
    Manifest manifest{folder, mixedprec::Checkpoint::inspect(folder), {}};
    std::ifstream file(folder + "/manifest.json", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    manifest.json = Json::parse(text, nullptr, false);
    must<Failure>(manifest.json.is_object(), "cannot read '", folder, "/manifest.json'");
    return manifest;
}

std::vector<std::string> checkpoints_in(const std::string& path) {
    std::error_code error;
    if (fs::exists(path + "/manifest.json", error)) {
        return {path};
    }
    std::vector<std::pair<long long, std::string>> found; // by sequence
    for (const auto& entry : fs::directory_iterator(path, error)) {
        long long step = 0, sequence = 0;
        const std::string name = entry.path().filename();
        if (std::sscanf(name.c_str(), "step-%lld-%lld-", &step, &sequence) == 2) {
            found.emplace_back(sequence, entry.path().string());
        }
    }
    must<Failure>(!error, "cannot read '", path, "': ", error.message());
    must<Failure>(!found.empty(), "'", path, "' is no checkpoint, and has none");
    std::sort(found.rbegin(), found.rend());
    std::vector<std::string> names;
    names.reserve(found.size());
    for (const auto& [sequence, name] : found) {
        names.push_back(name);
    }
    return names;
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
