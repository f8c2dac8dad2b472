// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors files: any bytes give a header or corrupt_data with words. Of what is accepted every promise is
// checked again, and it is found again by name.
#include <cstring>

#include "fuzz/header_checks.hpp"
#include "model/safetensors.hpp"
#include "status/status.hpp"

using namespace mp;
using namespace mp::model;

namespace {

using mp::fuzz::require;

// The input is the text; the data are as long as the input's first number says, mostly what the text wants.
int64_t data_bytes(const std::string& text) {
    int64_t largest = 0;
    const std::string key = "data_offsets";
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
        const std::size_t comma = text.find(',', at);
        if (comma != std::string::npos) {
            const int64_t end = std::strtoll(text.c_str() + comma + 1, nullptr, 10);
            largest = end > largest && end < (int64_t{1} << 60) ? end : largest;
        }
    }
    return largest;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const int64_t bytes = data_bytes(text);
    try {
        const Header header = read_safetensors(text, 8 + static_cast<int64_t>(size) + bytes);
        int64_t end = 0;
        for (const FileTensor& tensor : header.tensors()) {
            require(tensor.begin == end && tensor.end >= tensor.begin);
            end = tensor.end;
            mp::fuzz::check_tensor(header, tensor);
        }
        require(end == bytes);
    } catch (const Error& error) {
        require(error.status().code() == Code::corrupt_data && error.status().text()[0] != '\0');
    }
    unsigned char prefix[8] = {};
    std::memcpy(prefix, text.data(), size < 8 ? size : 8);
    try {
        const int64_t length = header_bytes(prefix, static_cast<int64_t>(size));
        require(length >= 2 && length <= static_cast<int64_t>(size) - 8);
    } catch (const Error& error) {
        require(error.status().code() == Code::corrupt_data);
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::vector<NewTensor> tensors = {{"w.param", FileType::F32, {2, 3}, 24},
                                            {"w.exp_avg@128", FileType::BF16, {5}, 10},
                                            {"s", FileType::F8_E4M3, {}, 1}};
    const std::vector<std::pair<std::string, std::string>> metadata = {{"checkpoint_id", "0123"}};
    return {
        write_header(tensors, metadata).substr(8),
        "{}",
        R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
        R"({"b":{"dtype":"U8","shape":[0,3],"data_offsets":[8,8]},"a":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}})",
        "{\"\\ud83d\\ude00\\n\":{\"dtype\":\"I64\",\"shape\":[1,1],\"data_offsets\":[0,8]}}",
        R"({"a":{"shape":[4294967296,4294967296],"dtype":"F8_E8M0","data_offsets":[0,18446744073709551615]}})",
    };
}
