// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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
};
constexpr std::array<Type, 20> kTypes{
    {{"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},
     {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
     {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
     {"I64", 64},    {"U64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4}}};

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
        const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                       [&](const Type& t) { return tensor.dtype == t.name; });
        must<Failure>(type != kTypes.end(), name, "the type '", tensor.dtype, "' is not known");
        for (const int64_t extent : tensor.shape) {
            must<Failure>(!__builtin_mul_overflow(tensor.count, extent, &tensor.count), name,
                          "its size overflows");
        }
        int64_t bits = 0;
        must<Failure>(!__builtin_mul_overflow(tensor.count, type->bits, &bits) && bits % 8 == 0,
                      name, "its size overflows");
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

struct File {
    explicit File(const std::string& path)
        : number(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (number >= 0) {
            close(number);
        }
    }
    const int number;
};

void read_exactly(int file, char* to, size_t bytes, const std::string& path) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = read(file, to + done, bytes - done);
        must<Failure>(got > 0, "cannot read '", path,
                      "': ", got < 0 ? std::strerror(errno) : "it ended early");
        done += static_cast<size_t>(got);
    }
}

} // namespace

SafetensorsHeader read_safetensors_header(const std::string& path) {
    const File file(path);
    must<Failure>(file.number >= 0, "cannot open '", path, "': ", std::strerror(errno));
    struct stat info {};
    must<Failure>(fstat(file.number, &info) == 0 && S_ISREG(info.st_mode), "'", path,
                  "' is not an ordinary file");
    must<Failure>(info.st_size >= 8, "'", path, "' has ", info.st_size,
                  " bytes: too few for a safetensors file");
    std::array<unsigned char, 8> prefix{};
    read_exactly(file.number, reinterpret_cast<char*>(prefix.data()), prefix.size(), path);
    uint64_t length = 0;
    for (size_t i = prefix.size(); i-- > 0;) {
        length = length << 8U | prefix[i];
    }
    const auto most = static_cast<uint64_t>(std::min<int64_t>(kMostHeader, info.st_size - 8));
    must<Failure>(length <= most, "'", path, "' is no safetensors file: its header would have ",
                  length, " bytes");
    std::string text(length, '\0');
    read_exactly(file.number, text.data(), text.size(), path);
    must<Failure>(text.starts_with('{'), "'", path,
                  "' is no safetensors file: its header does not begin with {");
    Reader reader;
    const bool good = nlohmann::json::sax_parse(text, &reader);
    must<Failure>(good, "'", path, "' is no safetensors file: its header has ", reader.problem);
    reader.header.file_bytes = info.st_size;
    try {
        check_tensors(reader.header, info.st_size - 8 - static_cast<int64_t>(length));
    } catch (const Failure& failure) {
        throw Failure("'", path, "' is damaged: ", failure.what());
    }
    return reader.header;
}

} // namespace command
