// SPDX-License-Identifier: Apache-2.0
// Reading the text and drawing batches from it.
#include "data.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "files.hpp"
#include "support.hpp"

namespace train {

static std::string read_all(const std::string& path, int64_t most_mib) {
    must_be_ordinary("the text ", path);
    const std::unique_ptr<FILE, Destroy<std::fclose>> file(std::fopen(path.c_str(), "rb"));
    must<Failure>(file != nullptr, "cannot open the text '", path, "': ", std::strerror(errno),
                  ". Pass any text file with --data FILE, or make the default one with "
                  "scripts/corpus.sh (Debian packages bible-kjv and bible-kjv-text)");
    std::string bytes, part(1 << 20, '\0');
    while (const size_t count = std::fread(part.data(), 1, part.size(), file.get())) {
        bytes.append(part, 0, count);
        must<Failure>(bytes.size() >> 20 < size(most_mib), "the text '", path,
                      "' has more than the ", most_mib,
                      " MiB of --max-memory: pass a shorter text, or raise it");
    }
    must<Failure>(std::ferror(file.get()) == 0, "cannot read '", path, "': ", std::strerror(errno));
    return bytes;
}

uint64_t Text::hash() const {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : bytes) {
        hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
    }
    return hash;
}

Text::Text(const Options& o) : bytes(read_all(o.data, o.max_memory)) {
    const auto count = static_cast<int64_t>(bytes.size());
    train_count = count - count / 10;
    const int64_t shorter = count - train_count;
    must<Failure>(shorter > o.context, "'", o.data, "' has ", count,
                  " bytes, too few: its last tenth, which is for validation, has ", shorter,
                  " and must hold more than --context ", o.context,
                  ". Pass a longer text or a smaller --context");
}

void Text::batch(const Options& o, uint64_t stream, int64_t index, uint8_t* tokens,
                 uint8_t* targets) const {
    const bool train = stream == STREAM_TRAIN;
    const char* part = bytes.data() + (train ? 0 : train_count);
    const int64_t count = train ? train_count : static_cast<int64_t>(bytes.size()) - train_count;
    const auto length = size(o.context);
    for (int64_t row = 0; row < o.batch; row++) {
        const auto number = static_cast<uint64_t>(index * o.batch + row);
        const uint64_t start = random_bits(static_cast<uint64_t>(o.seed), stream, number) %
                               static_cast<uint64_t>(count - o.context);
        std::memcpy(tokens + row * o.context, part + start, length);
        std::memcpy(targets + row * o.context, part + start + 1, length);
    }
}

} // namespace train
