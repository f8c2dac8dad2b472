// SPDX-License-Identifier: Apache-2.0
// mixedprec diff: whether two checkpoints hold the same, however many ranks saved each. Files of checkpoints always differ: each
// has an id of its own.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "checkpoint_files.hpp"
#include "program.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::vector<std::string> paths;
    bool no_data = false;
};

// One after another, the bytes of a tensor, whatever files its slices are in.
class Stream {
  public:
    void add(const mixedprec::ModelFile& file, int64_t index) {
        parts_.push_back({&file, index, 0, file.tensor(index).bytes});
        bytes_ += parts_.back().end;
    }
    [[nodiscard]] int64_t bytes() const { return bytes_; }
    // As many of the next bytes as one slice has, at most as the buffer holds.
    int64_t next(std::vector<unsigned char>& buffer, int64_t most) {
        while (!parts_.empty() && parts_.front().begin == parts_.front().end) {
            parts_.pop_front();
        }
        if (parts_.empty()) {
            return 0;
        }
        Part& part = parts_.front();
        const int64_t count = std::min(most, part.end - part.begin);
        part.file->read(part.index, part.begin,
                        {reinterpret_cast<std::byte*>(buffer.data()), size(count)});
        part.begin += count;
        return count;
    }

  private:
    struct Part {
        const mixedprec::ModelFile* file;
        int64_t index, begin, end;
    };
    std::deque<Part> parts_;
    int64_t bytes_ = 0;
};

// A checkpoint with its files open.
class Opened {
  public:
    explicit Opened(const std::string& path) : manifest(read_manifest(path)) {
        for (const Json& file : manifest.json.at("files")) {
            files_.push_back(mixedprec::ModelFile::open(manifest.folder + "/" +
                                                            file.at("name").get<std::string>(),
                                                        MP_MODEL_FILE_NO_LINKS));
        }
        for (const Json& tensor : manifest.json.at("tensors")) {
            tensors[{tensor.at("name"), tensor.at("state")}] = &tensor;
        }
    }
    [[nodiscard]] Stream stream(const Json& tensor) const {
        Stream stream;
        const std::string key =
            join(tensor.at("name").get<std::string>(), ".", tensor.at("state").get<std::string>());
        for (const Json& slice : tensor.at("pieces")) {
            const auto file = slice.at(0).get<size_t>();
            const mp_model_file* raw = files_.at(file).get();
            int64_t index = 0;
            const bool found =
                mp_model_file_get_index(raw, key.c_str(), &index) == MP_STATUS_OK ||
                mp_model_file_get_index(raw, join(key, "@", slice.at(1).get<int64_t>()).c_str(),
                                        &index) == MP_STATUS_OK;
            must<Failure>(found, "file ", file, " of '", manifest.folder, "' does not have '", key,
                          "', which the manifest says");
            stream.add(files_.at(file), index);
        }
        return stream;
    }

    Manifest manifest;
    std::map<std::pair<std::string, std::string>, const Json*> tensors; // by name and state

  private:
    std::deque<mixedprec::ModelFile> files_;
};

// How many bytes of two streams of one length differ.
int64_t differing(Stream a, Stream b) {
    constexpr int64_t kPart = 1 << 20;
    std::vector<unsigned char> left(kPart), right(kPart);
    int64_t differ = 0;
    for (int64_t have = 0; (have = a.next(left, kPart)) > 0;) {
        for (int64_t at = 0; at < have;) {
            const int64_t got = b.next(right, have - at);
            must<Failure>(got > 0, "a file ended early");
            if (std::memcmp(left.data() + at, right.data(), size(got)) != 0) {
                for (int64_t i = 0; i < got; i++) {
                    differ += left[size(at + i)] != right[size(i)] ? 1 : 0;
                }
            }
            at += got;
        }
    }
    return differ;
}

// "" where two tensors hold the same.
std::string difference(const Opened& a, const Json* in_a, const Opened& b, const Json* in_b) {
    if (in_a == nullptr || in_b == nullptr) {
        return in_a != nullptr ? "only in the first" : "only in the second";
    }
    for (const char* key : {"format", "shape"}) {
        if (in_a->at(key) != in_b->at(key)) {
            return join(key, " ", in_a->at(key).dump(), " and ", in_b->at(key).dump());
        }
    }
    Stream left = a.stream(*in_a), right = b.stream(*in_b);
    if (left.bytes() != right.bytes()) {
        return join(left.bytes(), " and ", right.bytes(), " bytes");
    }
    const int64_t all = left.bytes(), count = differing(std::move(left), std::move(right));
    return count == 0 ? "" : join(count, " of ", all, " bytes differ");
}

// Step, recipe, seed, and every number of groups, scaler and guard.
std::map<std::string, std::string> numbers_of(const Manifest& manifest) {
    std::map<std::string, std::string> numbers{{"step", manifest.json.at("step").dump()},
                                               {"recipe", manifest.json.at("recipe").dump()},
                                               {"rng", manifest.json.at("rng").dump()}};
    for (const Json& scalar : manifest.json.at("scalars")) {
        numbers[scalar.at(0)] = scalar.at(1).dump();
    }
    return numbers;
}

template <typename Map> std::vector<typename Map::key_type> keys_of(const Map& a, const Map& b) {
    std::set<typename Map::key_type> all;
    for (const Map* map : {&a, &b}) {
        for (const auto& [key, value] : *map) {
            all.insert(key);
        }
    }
    return {all.begin(), all.end()};
}

Result diff(const Options& options) {
    const Opened a(options.paths.at(0)), b(options.paths.at(1));
    Result result;
    Table table({"what", "state", "difference"});
    Json found = Json::array();
    const auto add = [&](const std::string& name, const std::string& state,
                         const std::string& how) {
        table.add({name, state, how});
        found.push_back({{"name", name}, {"state", state}, {"difference", how}});
    };
    const auto left = numbers_of(a.manifest), right = numbers_of(b.manifest);
    for (const std::string& name : keys_of(left, right)) {
        const auto x = left.find(name), y = right.find(name);
        if (x == left.end() || y == right.end() || x->second != y->second) {
            add(name, "number",
                x == left.end()    ? "only in the second"
                : y == right.end() ? "only in the first"
                : name == "recipe" ? "other keys"
                                   : x->second + " and " + y->second);
        }
    }
    size_t compared = 0;
    for (const auto& key : keys_of(a.tensors, b.tensors)) {
        if (options.no_data && key.second == "data") {
            continue;
        }
        compared++;
        const auto x = a.tensors.find(key), y = b.tensors.find(key);
        const std::string how = difference(a, x == a.tensors.end() ? nullptr : x->second, b,
                                           y == b.tensors.end() ? nullptr : y->second);
        if (!how.empty()) {
            add(key.first, key.second, how);
        }
    }
    result.code = found.empty() ? kFine : kFailed;
    result.json = {{"a", a.manifest.folder},
                   {"b", b.manifest.folder},
                   {"tensors", compared},
                   {"differences", found}};
    result.text = found.empty() ? join(counted(compared, "tensor"), " and all numbers are equal\n")
                                : table.text();
    return result;
}

} // namespace

void add_diff(Program& program) {
    auto options = std::make_shared<Options>();
    Subcommand app =
        program.add("diff", "whether two checkpoints hold the same, to the bit", options, diff);
    app.add("checkpoints", options->paths, "two checkpoints, or folders of them: the newest",
            {.required = true, .count = 2});
    app.add_flag("--no-data", options->no_data, "leave out what programs have added of their own");
}

} // namespace command
