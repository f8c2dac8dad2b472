// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>

#include "support.hpp"

namespace command {
namespace {

constexpr int64_t kMostHeader = 100'000'000; // the format's own bound
constexpr size_t kMostDims = 8;

struct Type {
    const char* name;
    int64_t bits;
    bool trained;
};
constexpr std::array<Type, 22> kTypes{
    {{"BOOL", 8, false},       {"U8", 8, false},         {"I8", 8, false},
     {"F8_E5M2", 8, true},     {"F8_E4M3", 8, true},     {"F8_E8M0", 8, false},
     {"F8_E4M3FNUZ", 8, true}, {"F8_E5M2FNUZ", 8, true}, {"I16", 16, false},
     {"U16", 16, false},       {"F16", 16, true},        {"BF16", 16, true},
     {"I32", 32, false},       {"U32", 32, false},       {"F32", 32, true},
     {"I64", 64, false},       {"U64", 64, false},       {"F64", 64, true},
     {"C64", 64, false},       {"F4", 4, true},          {"F6_E2M3", 6, true},
     {"F6_E3M2", 6, true}}};

const Type* type_of(const std::string& name) {
    const auto* found = std::find_if(kTypes.begin(), kTypes.end(),
                                     [&](const Type& type) { return name == type.name; });
    return found == kTypes.end() ? nullptr : found;
}

// Builds the list while the text is read, so that no tree of a hostile text is ever in memory. The text is one object of
// objects; what stands anywhere else than it must ends the reading with `problem`.
class Reader : public nlohmann::json_sax<nlohmann::json> {
  public:
    std::string problem;
    SafetensorsHeader header;

    bool null() override { return bad("a null"); }
    bool boolean(bool /*value*/) override { return bad("a boolean"); }
    bool number_integer(number_integer_t /*value*/) override { return bad("a negative number"); }
    bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
        return bad("a number that is not whole");
    }
    bool binary(binary_t& /*value*/) override { return bad("bytes"); }

    bool number_unsigned(number_unsigned_t value) override {
        if (!in_array_ || value > INT64_MAX) {
            return bad("a number out of place");
        }
        numbers_.push_back(static_cast<int64_t>(value));
        return numbers_.size() <= kMostDims || bad("a list of more than 8 numbers");
    }
    bool string(string_t& value) override {
        if (depth_ == 2 && !in_array_ && in_metadata_) {
            return header.metadata.emplace(key_, value).second || bad("a metadata key twice");
        }
        if (depth_ == 2 && !in_array_ && key_ == "dtype") {
            tensor_.dtype = value;
            return once("dtype");
        }
        return bad("a text out of place");
    }
    bool start_object(std::size_t /*size*/) override {
        if (++depth_ > 2 || in_array_) {
            return bad("an object inside of a tensor");
        }
        if (depth_ == 2) {
            in_metadata_ = key_ == "__metadata__";
            tensor_ = {};
            tensor_.name = key_;
            fields_.clear();
            if (!names_.insert(key_).second) {
                return bad("the name '" + key_ + "' twice");
            }
        }
        return true;
    }
    bool end_object() override {
        if (--depth_ != 1 || in_metadata_) {
            return true;
        }
        if (fields_.size() != 3) {
            return bad("a tensor without dtype, shape or data_offsets");
        }
        header.tensors.push_back(tensor_);
        return true;
    }
    bool start_array(std::size_t /*size*/) override {
        if (depth_ != 2 || in_array_ || in_metadata_ ||
            (key_ != "shape" && key_ != "data_offsets")) {
            return bad("a list out of place");
        }
        in_array_ = true;
        numbers_.clear();
        return true;
    }
    bool end_array() override {
        in_array_ = false;
        if (key_ == "shape") {
            tensor_.shape = numbers_;
            return once("shape");
        }
        if (numbers_.size() != 2) {
            return bad("data_offsets that are not two");
        }
        tensor_.begin = numbers_[0];
        tensor_.end = numbers_[1];
        return once("data_offsets");
    }
    bool key(string_t& value) override {
        key_ = value;
        return true;
    }
    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& /*error*/) override {
        return bad(join("no JSON at byte ", position));
    }

  private:
    bool bad(const std::string& what) {
        if (problem.empty()) {
            problem = what;
        }
        return false;
    }
    bool once(const std::string& field) {
        return fields_.insert(field).second || bad("the field '" + field + "' twice");
    }

    int depth_ = 0;
    bool in_array_ = false, in_metadata_ = false;
    std::string key_;
    TensorEntry tensor_;
    std::vector<int64_t> numbers_;
    std::set<std::string> fields_;
    std::set<std::string> names_;
};

// Elements and bytes fit the type, and the tensors tile the data.
void check_tensors(SafetensorsHeader& header, int64_t data_bytes) {
    for (TensorEntry& tensor : header.tensors) {
        const std::string name = "tensor '" + tensor.name + "': ";
        const Type* type = type_of(tensor.dtype); // one that is not known was refused before
        for (const int64_t extent : tensor.shape) {
            must<Failure>(!__builtin_mul_overflow(tensor.count, extent, &tensor.count), name,
                          "its size overflows");
        }
        int64_t bits = 0;
        must<Failure>(!__builtin_mul_overflow(tensor.count, type->bits, &bits), name,
                      "its size overflows");
        must<Failure>(bits % 8 == 0, name, tensor.count, " elements of ", type->bits,
                      " bits do not fill whole bytes");
        must<Failure>(tensor.begin <= tensor.end && tensor.end <= data_bytes, name,
                      "its bytes lie outside of the file");
        must<Failure>(tensor.end - tensor.begin == bits / 8, name, "its shape needs ", bits / 8,
                      " bytes, and it has ", tensor.end - tensor.begin);
    }
    std::sort(header.tensors.begin(), header.tensors.end(),
              [](const TensorEntry& a, const TensorEntry& b) {
                  return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
              });
    int64_t at = 0;
    for (const TensorEntry& tensor : header.tensors) {
        must<Failure>(tensor.begin == at, "tensor '", tensor.name,
                      "' overlaps another or leaves a hole");
        at = tensor.end;
    }
    must<Failure>(at == data_bytes, data_bytes - at, " bytes at the end belong to no tensor");
}

// What a file is that begins so, where it is one that is met instead of a safetensors file.
const char* mistaken_for(const std::string& begin) {
    struct Known {
        const char *begins, *what;
    };
    constexpr std::array<Known, 7> kKnown{
        {{"version https://git-lfs", "a git-lfs pointer: `git lfs pull` gets the file itself"},
         {"<", "a web page, perhaps of a download that wants a login"},
         {"{", "JSON: an index is called ....safetensors.index.json, a checkpoint is given by its "
               "folder"},
         {"PK\x03\x04", "a zip archive, as torch.save writes them"},
         {"\x80\x02", "a pickle, as older torch.save writes them"},
         {"GGUF", "a GGUF file"},
         {"\x89HDF", "an HDF5 file"}}};
    const size_t first = begin.find_first_not_of(" \t\r\n");
    for (const Known& known : kKnown) {
        if (first != std::string::npos &&
            begin.compare(first, std::strlen(known.begins), known.begins) == 0) {
            return known.what;
        }
    }
    return nullptr;
}

} // namespace

ReadFile::ReadFile(std::string path, bool follow)
    : path_(std::move(path)),
      file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW))) {
    must<Failure>(file_ >= 0, "cannot open '", path_, "': ", std::strerror(errno));
    struct stat info {};
    if (fstat(file_, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(file_);
        throw Failure("'", path_, "' is not an ordinary file");
    }
    bytes_ = info.st_size;
}

ReadFile::~ReadFile() { close(file_); }

void ReadFile::read(int64_t offset, void* data, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(file_, static_cast<char*>(data) + done, bytes - done,
                                  offset + static_cast<int64_t>(done));
        must<Failure>(got > 0 || (got < 0 && errno == EINTR), "cannot read '", path_,
                      "': ", got < 0 ? std::strerror(errno) : "it ended early");
        done += static_cast<size_t>(std::max<ssize_t>(got, 0));
    }
}

bool is_trained(const TensorEntry& tensor) {
    const Type* type = type_of(tensor.dtype);
    return type != nullptr && type->trained;
}

std::string bad_scale(const ReadFile& file, const SafetensorsHeader& header) {
    constexpr int64_t kPart = 1 << 16;
    std::vector<float> values;
    for (const TensorEntry& tensor : header.tensors) {
        const std::string name = tensor.name.substr(0, tensor.name.find('@')); // of a slice
        if (tensor.dtype != "F32" || !name.ends_with("_scale_inv")) {
            continue;
        }
        for (int64_t at = 0; at < tensor.count; at += kPart) {
            values.resize(size(std::min(kPart, tensor.count - at)));
            file.read(header.data_begin + tensor.begin + 4 * at, values.data(), values.size() * 4);
            for (const float value : values) {
                if (!std::isfinite(value) || std::signbit(value)) {
                    return join("tensor '", tensor.name, "' has the scale ", value,
                                "; it must be finite and not negative");
                }
            }
        }
    }
    return "";
}

SafetensorsHeader read_safetensors_header(const ReadFile& file) {
    const std::string none = "'" + file.path() + "' is no safetensors file: ";
    std::string begin(size(std::min<int64_t>(file.bytes(), 64)), '\0');
    file.read(0, begin.data(), begin.size());
    const char* other = mistaken_for(begin);
    uint64_t length = 0;
    for (size_t i = std::min<size_t>(begin.size(), 8); i-- > 0;) {
        length = length << 8U | static_cast<unsigned char>(begin[i]);
    }
    const int64_t most = std::min<int64_t>(kMostHeader, file.bytes() - 8);
    const bool fits = most >= 0 && length <= static_cast<uint64_t>(most);
    must<Failure>(fits || other == nullptr, none, "it is ", other == nullptr ? "" : other);
    must<Failure>(file.bytes() >= 8, none, "it has ", file.bytes(), " bytes, too few");
    must<Failure>(fits, none, "its header would have ", length, " bytes, of ", file.bytes(),
                  " that the file has");
    std::string text(length, '\0');
    file.read(8, text.data(), text.size());
    must<Failure>(text.starts_with('{'), none, "its header does not begin with {");
    must<Failure>(text.find('\0') == std::string::npos, none,
                  "its header has a NUL byte; it is padded with blanks");
    Reader reader;
    const bool good = nlohmann::json::sax_parse(text, &reader);
    must<Failure>(good, none, "its header has ", reader.problem);
    for (const TensorEntry& tensor : reader.header.tensors) {
        must<Failure>(type_of(tensor.dtype) != nullptr, "'", file.path(), "': tensor '",
                      tensor.name, "' is of the type '", tensor.dtype, "', which is not supported");
    }
    reader.header.data_begin = 8 + static_cast<int64_t>(length);
    try {
        check_tensors(reader.header, file.bytes() - reader.header.data_begin);
    } catch (const Failure& failure) {
        throw Failure("'", file.path(), "' is damaged: ", failure.what());
    }
    return std::move(reader.header);
}

} // namespace command
