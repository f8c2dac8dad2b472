// SPDX-License-Identifier: Apache-2.0
#include "model/model_files.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "model/gguf.hpp"
#include "model/gguf_parts.hpp"
#include "model/manifest_name.hpp"
#include "model/safetensors.hpp"
#include "system/json_reader.hpp"
#include "system/name.hpp"

namespace mp::model {
namespace {

constexpr const char* kIndexEnd = ".index.json";
constexpr int64_t kMostIndex = int64_t{64} << 20;
constexpr int64_t kFirstRead = int64_t{1}
                               << 20; // of a GGUF header, which does not say how long it is

// What a file is that begins so, where it is one that is met instead.
const char* mistaken_for(std::string_view begin) noexcept {
    struct Known {
        std::string_view begins;
        const char* what;
    };
    constexpr Known kKnown[] = {
        {"version https://git-lfs", "a git-lfs pointer: `git lfs pull` gets the file itself"},
        {"<", "a web page, perhaps of a download that wants a login"},
        {"{", "JSON: an index is called ....safetensors.index.json, a checkpoint is given by its "
              "folder"},
        {"PK\x03\x04", "a zip archive, as torch.save writes them"},
        {"\x80\x02", "a pickle, as older torch.save writes them"},
        {"tjgg", "a ggml file from before GGUF"},
        {"lmgg", "a ggml file from before GGUF"},
        {"\x89HDF", "an HDF5 file"}};
    begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
    for (const Known& known : kKnown) {
        if (begin.starts_with(known.begins)) {
            return known.what;
        }
    }
    return nullptr;
}

[[noreturn]] void refuse_file(const std::string& path, const char* why) {
    fail(Code::corrupt_data, "'%.500s' is neither safetensors nor GGUF: %.400s", path.c_str(), why);
}

// A safetensors header's length; a file that is none is called what it is.
std::size_t length_of(std::string_view begin, int64_t bytes, const std::string& path) {
    unsigned char prefix[8] = {};
    std::memcpy(prefix, begin.data(), std::min(begin.size(), sizeof prefix));
    try {
        return static_cast<std::size_t>(header_bytes(prefix, bytes));
    } catch (const Error& error) {
        const char* other = mistaken_for(begin);
        refuse_file(path, other != nullptr ? (std::string("it is ") + other).c_str()
                          : bytes < 8      ? "it has too few bytes"
                                           : error.what());
    }
}

std::string read_text(system::FileTable& files, int32_t handle, int64_t offset, std::size_t bytes) {
    std::string text(bytes, '\0');
    check(files.read(handle, offset, text.data(), bytes));
    return text;
}

// Once more where most of what was read is no header, so that it does not stay.
Header read_gguf_file(system::FileTable& files, int32_t handle, int64_t file_bytes) {
    const auto read = [&](int64_t bytes) {
        const auto most = std::min({bytes, file_bytes, kMaxHeaderBytes});
        return read_gguf(read_text(files, handle, 0, static_cast<std::size_t>(most)), file_bytes);
    };
    int64_t bytes = kFirstRead;
    auto header = read(bytes);
    for (; !header.has_value(); header = read(bytes)) {
        bytes *= 2;
    }
    if (header->data_begin() < std::min(bytes, file_bytes) / 2) {
        header = read(header->data_begin());
    }
    return std::move(*header);
}

Header read_header(system::FileTable& files, int32_t handle, const std::string& path) {
    int64_t bytes = 0;
    check(files.size(handle, &bytes));
    const std::string begin =
        read_text(files, handle, 0, static_cast<std::size_t>(std::min<int64_t>(bytes, 64)));
    const bool is_gguf = begin.starts_with(kGgufMagic);
    const std::string text =
        is_gguf ? "" : read_text(files, handle, 8, length_of(begin, bytes, path));
    if (!is_gguf && text.front() != '{') {
        refuse_file(path, "its header does not begin with {");
    }
    try {
        return is_gguf ? read_gguf_file(files, handle, bytes) : read_safetensors(text, bytes);
    } catch (const Error& error) {
        fail(error.status().code(), "'%.500s': %.400s", path.c_str(), error.what());
    }
}

// No later part of one that is split.
bool is_first_part(const std::string& name) {
    const auto part = gguf_part(name);
    return !part.has_value() || part->part == 1;
}

// A number of a key; -1 where there is none.
int64_t number_of(const Header& header, std::string_view key) {
    const FileValue* value = header.value(key);
    const bool is_number =
        value != nullptr && !value->is_list &&
        (value->type == ValueType::unsigned_integer || value->type == ValueType::integer);
    return is_number ? std::strtoll(header.text(*value, 0).c_str(), nullptr, 10) : -1;
}

bool is_beside(std::string_view name) noexcept {
    return !name.empty() && name.front() != '.' &&
           name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

// Tensor names and the files that have them.
std::map<std::string, std::string> read_index(system::FileTable& files, const std::string& path) {
    const std::string text = system::read_text(files, path, kMostIndex);
    std::map<std::string, std::string> index;
    system::JsonReader reader(text, {"index"});
    reader.expect('{');
    if (!reader.take('}')) {
        do {
            if (reader.key() != "weight_map") {
                reader.skip_value();
                continue;
            }
            reader.expect('{');
            while (!reader.take('}')) {
                const std::string name(reader.key());
                const std::string file(reader.string());
                if (!is_beside(file)) {
                    reader.refuse("tensor '%.200s' is not in a file beside the index",
                                  name.c_str());
                }
                if (!index.emplace(name, file).second) {
                    reader.refuse("tensor '%.200s' appears twice", name.c_str());
                }
            }
        } while (reader.another('}'));
    }
    if (index.empty()) {
        reader.refuse("it must have a weight_map of tensors and files");
    }
    return index;
}

} // namespace

ModelFiles::ModelFiles(system::FileTable& files, const std::string& path, bool follows_links)
    : table_(files), mode_(follows_links ? system::OpenMode::read : system::OpenMode::read_plain) {
    add(path);
}

void ModelFiles::add(const std::string& path) {
    int32_t directory = -1;
    if (table_.open(path.c_str(), system::OpenMode::directory, &directory).ok()) {
        const system::OpenFile opened(table_, directory);
        add_folder(path);
    } else if (path.ends_with(kIndexEnd)) {
        add_index(path);
    } else {
        add_file(path);
        add_split(path);
        index_names();
    }
}

// Where a GGUF is split, all its parts in their order.
void ModelFiles::add_split(const std::string& path) {
    if (number_of(files_.front().header, "split.count") <= 1) {
        return;
    }
    const auto own = gguf_part(path);
    if (!own.has_value()) {
        fail(
            Code::corrupt_data,
            "'%.500s' is a part of a GGUF that is split; its name must end as -00001-of-00003.gguf",
            path.c_str());
    }
    files_.clear();
    tensors_.clear();
    values_.clear();
    GgufPart part = *own;
    for (part.part = 1; part.part <= part.parts; ++part.part) {
        add_file(gguf_path(part));
        const Header& header = files_.back().header;
        if (number_of(header, "split.no") != part.part - 1 ||
            number_of(header, "split.count") != part.parts) {
            fail(Code::corrupt_data, "'%.500s' is not part %d of %d, as its name says",
                 files_.back().path.c_str(), part.part, part.parts);
        }
    }
    const int64_t said = number_of(files_.front().header, "split.tensors.count");
    if (said != static_cast<int64_t>(tensors_.size())) {
        fail(Code::corrupt_data, "'%.500s' says that its parts have %lld tensors; they have %zu",
             files_.front().path.c_str(), static_cast<long long>(said), tensors_.size());
    }
}

void ModelFiles::add_folder(const std::string& path) {
    std::vector<std::string> names;
    check(table_.list(path.c_str(), &names));
    if (std::find(names.begin(), names.end(), kManifestName) != names.end()) {
        fail(Code::invalid_argument,
             "'%.500s' is a checkpoint, which has states beside weights: give a model's files",
             path.c_str());
    }
    std::vector<std::string> indexes, parts, ggufs;
    for (const std::string& name : names) {
        if (name.ends_with(".safetensors.index.json")) {
            indexes.push_back(path + "/" + name);
        } else if (name.ends_with(".safetensors")) {
            parts.push_back(path + "/" + name);
        } else if (name.ends_with(".gguf") && is_first_part(name)) {
            ggufs.push_back(path + "/" + name);
        }
    }
    if (indexes.size() == 1) { // what else lies there is another form of the model
        add_index(indexes[0]);
        return;
    }
    if (parts.empty() && ggufs.size() == 1) {
        add_file(ggufs[0]);
        add_split(ggufs[0]);
        index_names();
        return;
    }
    if (parts.empty()) {
        fail(ggufs.empty() ? Code::io_error : Code::invalid_argument,
             ggufs.empty() ? "'%.500s' has no safetensors files, and no GGUF file"
                           : "'%.500s' has several GGUF files: give one of them",
             path.c_str());
    }
    for (const std::string& part : parts) {
        add_file(part);
    }
    index_names();
}

void ModelFiles::add_index(const std::string& path) {
    std::map<std::string, std::string> index;
    try {
        index = read_index(table_, path);
    } catch (const Error& error) {
        fail(error.status().code(), "'%.500s': %.400s", path.c_str(), error.what());
    }
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    std::map<std::string, std::size_t> parts; // files of the index, and which of ours
    for (const auto& [tensor, file] : index) {
        parts.emplace(file, 0);
    }
    for (auto& [file, number] : parts) {
        number = files_.size();
        add_file(folder + file);
    }
    index_names();
    for (const auto& [tensor, file] : index) {
        const std::size_t found = find(tensor);
        if (found == tensors_.size() || tensors_[found].file != parts[file]) {
            fail(Code::corrupt_data,
                 "'%.300s' says that tensor '%.200s' is in '%.200s', which does not have it",
                 path.c_str(), tensor.c_str(), file.c_str());
        }
    }
}

void ModelFiles::add_file(const std::string& path) {
    system::OpenFile opened(table_, system::kCurrentDirectory, path, mode_);
    system::FileIdentity identity;
    check(table_.look(opened.handle(), &identity));
    if (identity.kind != system::FileKind::regular) {
        fail(Code::io_error, "'%.500s' is not an ordinary file", path.c_str());
    }
    Header header = read_header(table_, opened.handle(), path);
    files_.push_back({path, std::move(opened), std::move(header)});
    for (const FileTensor& tensor : files_.back().header.tensors()) {
        if (tensor.name.find('\0') != std::string_view::npos) { // where C has its end
            fail(Code::corrupt_data, "'%.500s': a tensor's name has a zero byte", path.c_str());
        }
        tensors_.push_back({&tensor, files_.size() - 1});
    }
    for (const FileValue& value : files_.back().header.values()) {
        if (value.key.find('\0') != std::string_view::npos) {
            fail(Code::corrupt_data, "'%.500s': a key has a zero byte", path.c_str());
        }
        values_.push_back({&value, files_.size() - 1});
    }
}

void ModelFiles::index_names() {
    const auto name_of = [this](std::size_t i) { return tensors_[i].entry->name; };
    by_name_.build(tensors_.size(), name_of);
    const uint32_t twice = by_name_.duplicate(name_of);
    if (twice == NameIndex::kNone) {
        return;
    }
    const std::string_view name = tensors_[twice].entry->name;
    std::string where;
    for (const Tensor& tensor : tensors_) {
        if (tensor.entry->name == name) {
            where += (where.empty() ? "'" : "' and '") + files_[tensor.file].path;
        }
    }
    fail(Code::corrupt_data, "tensor '%.*s' is in both %.700s'", system::shown(name, 200),
         name.data(), where.c_str());
}

std::vector<int64_t> ModelFiles::shape(std::size_t index) const {
    const Tensor& tensor = tensors_.at(index);
    return files_[tensor.file].header.shape(*tensor.entry);
}

TensorFacts ModelFiles::facts(std::size_t index) const {
    const Tensor& tensor = tensors_.at(index);
    return {tensor.entry->name, tensor.entry->type, shape(index),
            tensor.entry->end - tensor.entry->begin, tensor.file};
}

std::size_t ModelFiles::find(std::string_view name) const noexcept {
    const uint32_t found =
        by_name_.find(name, [this](std::size_t i) { return tensors_[i].entry->name; });
    return found == NameIndex::kNone ? tensors_.size() : found;
}

std::size_t ModelFiles::find_value(std::string_view key) const noexcept {
    std::size_t before = 0; // values of files before
    for (const File& file : files_) {
        if (const auto found = file.header.find_value(key); found.has_value()) {
            return before + *found;
        }
        before += file.header.values().size();
    }
    return before;
}

void ModelFiles::read_bytes(std::size_t index, int64_t offset, void* data,
                            std::size_t bytes) const {
    const Tensor& tensor = tensors_[index];
    const File& file = files_[tensor.file];
    check(table_.read(file.handle.handle(), file.header.data_begin() + tensor.entry->begin + offset,
                      data, bytes));
}

} // namespace mp::model
