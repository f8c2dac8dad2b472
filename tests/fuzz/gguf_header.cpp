// SPDX-License-Identifier: Apache-2.0
// Headers of GGUF files: any bytes give a header or corrupt_data with words. Of what is accepted every promise is looked at.
#include "fuzz/header_checks.hpp"
#include "model/gguf.hpp"
#include "model/gguf_text.hpp"
#include "status/status.hpp"

using namespace mp;
using namespace mp::model;
using mp::fuzz::require;

namespace {

void check(const Header& header, int64_t file_bytes) {
    int64_t end = 0;
    for (const FileTensor& tensor : header.tensors()) {
        require(tensor.begin >= end && tensor.end >= tensor.begin);
        require(header.data_begin() + tensor.end <= file_bytes);
        end = tensor.end;
        mp::fuzz::check_tensor(header, tensor);
    }
    for (const FileValue& value : header.values()) {
        require(header.value(value.key) == &value);
        for (std::size_t i = 0; i < value.count; ++i) {
            (void)header.text(value, i);
        }
    }
}

void read(const std::string& text, int64_t file_bytes) {
    try {
        const auto header = read_gguf(text, file_bytes);
        if (header.has_value()) {
            check(*header, file_bytes);
        } else {
            require(file_bytes > static_cast<int64_t>(text.size()));
        }
    } catch (const Error& error) {
        require(error.status().code() == Code::corrupt_data && error.status().text()[0] != '\0');
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    read(text, static_cast<int64_t>(size));
    read(text, static_cast<int64_t>(size) + 4096); // of a file that goes on
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    using mp::test::GgufText;
    constexpr uint32_t kU32 = 4, kF32 = 6, kBool = 7, kText = 8, kList = 9, kU64 = 10;
    const std::string all = GgufText(2, 5)
                                .key("general.alignment", kU32)
                                .add(uint32_t{32})
                                .key("t", kText)
                                .add_text("llama")
                                .key("l", kList)
                                .add(kText)
                                .add(uint64_t{2})
                                .add_text("a")
                                .add_text("")
                                .key("f", kList)
                                .add(kF32)
                                .add(uint64_t{1})
                                .add(0.5F)
                                .key("b", kBool)
                                .add(uint8_t{1})
                                .tensor("w", {32, 3}, 8, 0)
                                .tensor("v", {4}, 0, 128)
                                .file(144);
    return {all, GgufText(0, 0).text(),
            GgufText(1, 1, 2)
                .key("n", kU64)
                .add(uint64_t{7})
                .tensor("k", {256, 1, 2}, 12, 0)
                .file(288)};
}
