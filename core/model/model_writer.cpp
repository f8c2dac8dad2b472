// SPDX-License-Identifier: Apache-2.0
#include "model/model_writer.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <map>

#include "dtype/divide.hpp"
#include "model/gguf.hpp"
#include "model/gguf_writer.hpp"
#include "model/tensor_source.hpp"
#include "numerics/block_quantize.hpp"
#include "system/json_writer.hpp"

namespace mp::model {
namespace {

constexpr std::string_view kEnd = ".safetensors";
constexpr std::size_t kMostFiles = 99999;            // that a name has digits for
constexpr int64_t kPieceElements = int64_t{1} << 16; // that are converted at a time; whole blocks

NewValue copy_of(const Header& header, const FileValue& value) {
    NewValue copy;
    copy.key = value.key;
    copy.type = value.type;
    copy.width = value.width;
    copy.is_list = value.is_list;
    if (value.type != ValueType::text) {
        copy.data = value.data;
        return copy;
    }
    for (std::size_t i = 0; i < value.count; ++i) {
        copy.texts.push_back(header.text(value, i));
    }
    return copy;
}

} // namespace

ModelWriter::ModelWriter(system::FileTable& files, const std::string& path, FileFormat format,
                         int64_t max_file_bytes)
    : table_(files), where_(files, path), max_file_bytes_(max_file_bytes), model_(format) {
    if (max_file_bytes < 0 || (max_file_bytes > 0 && format == FileFormat::gguf)) {
        fail(Code::invalid_argument, "model writer: max_file_bytes is %" PRId64 "; %s",
             max_file_bytes,
             max_file_bytes < 0 ? "it must be 0 (one file) or more"
                                : "GGUF is one file: leave it 0");
    }
    if (max_file_bytes > 0 && !where_.name.ends_with(kEnd)) {
        fail(
            Code::invalid_argument,
            "model writer: '%.300s' may become several files, so its name must end in .safetensors",
            where_.name.c_str());
    }
    check_free(table_, where_.directory.handle(), where_.name);
    if (max_file_bytes > 0) {
        check_free(table_, where_.directory.handle(), where_.name + ".index.json");
    }
}

void ModelWriter::require_open() const {
    if (state_ == State::finished || state_ == State::failed) {
        fail(Code::bad_state, "model writer: '%.300s' %s", where_.name.c_str(),
             state_ == State::finished
                 ? "is finished; make another writer for another file"
                 : "could not be written, and is gone; make another writer and begin again");
    }
}

void ModelWriter::require_declaring() const {
    require_open();
    if (state_ != State::declaring) {
        fail(
            Code::bad_state,
            "model writer: '%.300s' has bytes already, so its header is fixed; add tensors and set "
            "keys before the first write",
            where_.name.c_str());
    }
}

std::size_t ModelWriter::add(std::string_view name, DType dtype, std::span<const int64_t> shape) {
    require_declaring();
    return model_.add(name, dtype, shape);
}

void ModelWriter::set(NewValue value) {
    require_declaring();
    model_.set(std::move(value));
}

void ModelWriter::copy_values(const TensorSource& files) {
    require_declaring();
    NewModel copy = model_; // so that all or none are set
    for (const TensorSource::Value& value : files.values()) {
        if (!NewModel::is_reserved(value.entry->key) && !copy.has_key(value.entry->key)) {
            copy.set(copy_of(files.header(value.file), *value.entry));
        }
    }
    model_ = std::move(copy);
}

const NewTensor& ModelWriter::tensor(std::size_t index) const {
    const auto& tensors = model_.tensors();
    if (index >= tensors.size()) {
        fail(Code::invalid_argument, "model writer: index is %zu; there are %zu tensors", index,
             tensors.size());
    }
    return tensors[index];
}

// A failure in here is final: what lies in the files is not known.
template <class Body> void ModelWriter::or_fail(const Body& body) {
    try {
        body();
    } catch (const std::exception&) {
        state_ = State::failed;
        files_.reset();
        throw;
    }
}

// Of each file its tensors, in the order in which they were added.
std::vector<std::vector<std::size_t>> ModelWriter::split() const {
    std::vector<std::vector<std::size_t>> files(1);
    int64_t bytes = 0;
    for (std::size_t i = 0; i < model_.tensors().size(); ++i) {
        const int64_t own = model_.tensors()[i].bytes;
        if (max_file_bytes_ > 0 && !files.back().empty() && own > max_file_bytes_ - bytes) {
            files.emplace_back();
            bytes = 0;
        }
        files.back().push_back(i);
        bytes += own;
    }
    return files;
}

std::string ModelWriter::file_name(std::size_t file, std::size_t count) const {
    if (count == 1) {
        return where_.name;
    }
    std::array<char, 32> number{};
    (void)std::snprintf(number.data(), number.size(), "-%05zu-of-%05zu", file + 1, count);
    return where_.name.substr(0, where_.name.size() - kEnd.size()) + number.data() +
           std::string(kEnd);
}

std::string ModelWriter::index_text(const std::vector<std::vector<std::size_t>>& files) const {
    std::map<std::string_view, std::size_t> map;
    int64_t bytes = 0;
    for (std::size_t file = 0; file < files.size(); ++file) {
        for (const std::size_t i : files[file]) {
            map.emplace(model_.tensors()[i].name, file);
            bytes += model_.tensors()[i].bytes;
        }
    }
    system::JsonWriter json(system::JsonForm::indented);
    json.begin('{');
    json.key("metadata");
    json.begin('{');
    json.number("total_size", bytes);
    json.end();
    json.key("weight_map");
    json.begin('{');
    for (const auto& [name, file] : map) {
        json.text(name, file_name(file, files.size()));
    }
    json.end();
    json.end();
    return json.take() + "\n";
}

// One file's header, and where its tensors lie.
void ModelWriter::lay_out(std::size_t file, const std::vector<std::size_t>& tensors) {
    const bool is_gguf = model_.format() == FileFormat::gguf;
    std::vector<std::size_t> order = tensors;
    if (!is_gguf) {
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return writing_order(model_.tensors()[a], model_.tensors()[b]);
        });
    }
    std::vector<NewTensor> ordered;
    ordered.reserve(order.size());
    for (const std::size_t i : order) {
        ordered.push_back(model_.tensors()[i]);
    }
    std::vector<std::pair<std::string, std::string>> texts;
    for (const NewValue& value : model_.values()) {
        texts.emplace_back(value.key, is_gguf ? "" : value.texts.front());
    }
    const std::string header =
        is_gguf ? write_gguf_header(ordered, model_.values()) : write_header(ordered, texts);
    auto end = static_cast<int64_t>(header.size());
    for (const std::size_t i : order) {
        places_[i].file = file;
        places_[i].begin = end;
        end += model_.tensors()[i].bytes;
        end = is_gguf ? round_up(end, kGgufAlignment) : end;
    }
    files_->reserve(file, end);
    files_->write(file, 0, header.data(), header.size());
    if (end > static_cast<int64_t>(header.size())) { // so that padding behind the last one is there
        files_->write(file, end - 1, "", 1);
    }
}

void ModelWriter::begin() {
    const auto files = split();
    if (files.size() > kMostFiles) {
        fail(Code::invalid_argument,
             "model writer: max_file_bytes %" PRId64 " would make %zu files; there are at most %zu",
             max_file_bytes_, files.size(), kMostFiles);
    }
    or_fail([&] {
        places_.assign(model_.tensors().size(), {});
        files_ = std::make_unique<NewFiles>(table_, where_.directory.handle());
        if (files.size() > 1) { // the first to be renamed: who reads too early misses what it names
            const std::string text = index_text(files);
            files_->write(files_->add(where_.name + ".index.json"), 0, text.data(), text.size());
        }
        for (std::size_t file = 0; file < files.size(); ++file) {
            lay_out(files_->add(file_name(file, files.size())), files[file]);
        }
        state_ = State::writing;
    });
}

void ModelWriter::write(std::size_t index, int64_t offset, const void* data, std::size_t bytes) {
    require_open();
    const NewTensor& to = tensor(index);
    if (offset < 0 || offset > to.bytes || bytes > static_cast<uint64_t>(to.bytes - offset)) {
        fail(Code::invalid_argument,
             "model writer: %zu bytes from byte %" PRId64
             " on are to be written; tensor '%.200s' has "
             "%" PRId64,
             bytes, offset, to.name.c_str(), to.bytes);
    }
    if (state_ == State::declaring) {
        begin();
    }
    or_fail([&] {
        Place& place = places_[index];
        files_->write(place.file, place.begin + offset, data, bytes);
        place.written.add(offset, offset + static_cast<int64_t>(bytes));
    });
}

void ModelWriter::check_floats(std::size_t index) const {
    const NewTensor& to = tensor(index);
    if (!numerics::stores_floats(dtype_of(to.type))) {
        fail(Code::invalid_dtype,
             "model writer: tensor '%.200s' is %s; numbers are made F32, F16, BF16, Q8_0 and Q4_0: "
             "declare it as one of these, or write its bytes as they are",
             to.name.c_str(), file_type_name(to.type));
    }
}

void ModelWriter::write_floats(std::size_t index, int64_t first, std::span<const float> values) {
    require_open();
    check_floats(index);
    const NewTensor& to = tensor(index);
    const DType dtype = dtype_of(to.type);
    const int64_t block = block_elements(to.type);
    const int64_t has = to.bytes / block_bytes(to.type) * block;
    const auto count = static_cast<int64_t>(values.size());
    if (first < 0 || first > has || count > has - first) {
        fail(Code::invalid_argument,
             "model writer: %" PRId64 " elements from element %" PRId64
             " on are to be written; tensor '%.200s' has %" PRId64,
             count, first, to.name.c_str(), has);
    }
    if (first % block != 0 || count % block != 0) {
        fail(Code::invalid_argument,
             "model writer: tensor '%.200s' is %s: elements are written in whole blocks of %" PRId64
             ", but %" PRId64 " from element %" PRId64 " on came",
             to.name.c_str(), file_type_name(to.type), block, count, first);
    }
    const int64_t wrong = numerics::unstorable(dtype, values.data(), count);
    if (wrong >= 0) {
        fail(Code::invalid_argument,
             "model writer: the block of tensor '%.200s' that begins at element %" PRId64
             " cannot be %s: its numbers must be finite, and their scale fit fp16",
             to.name.c_str(), first + wrong, file_type_name(to.type));
    }
    std::vector<unsigned char> piece;
    for (int64_t done = 0; done < count;) {
        const int64_t n = std::min(count - done, kPieceElements);
        piece.resize(static_cast<std::size_t>(mp::bytes_of(dtype, n)));
        numerics::store_floats(dtype, values.data() + done, n, piece.data());
        write(index, mp::bytes_of(dtype, first + done), piece.data(), piece.size());
        done += n;
    }
}

void ModelWriter::check_complete() const {
    std::size_t missing = 0;
    std::size_t one = 0;
    for (std::size_t i = model_.tensors().size(); i-- > 0;) {
        const int64_t written = places_.empty() ? 0 : places_[i].written.bytes();
        if (written != model_.tensors()[i].bytes) {
            ++missing;
            one = i;
        }
    }
    if (missing > 0) {
        const int64_t gap = places_.empty() ? 0 : places_[one].written.first_gap();
        fail(Code::bad_state,
             "model writer: %zu of %zu tensors are not written completely; '%.200s', of %" PRId64
             " bytes, lacks those from byte %" PRId64 " on: write them, or destroy the writer",
             missing, model_.tensors().size(), model_.tensors()[one].name.c_str(),
             model_.tensors()[one].bytes, gap);
    }
}

void ModelWriter::finish() {
    require_open();
    check_complete();
    if (state_ == State::declaring) { // nothing has bytes
        begin();
    }
    or_fail([&] { files_->commit(); });
    state_ = State::finished;
}

} // namespace mp::model
