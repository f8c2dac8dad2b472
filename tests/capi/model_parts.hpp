// SPDX-License-Identifier: Apache-2.0
// Safetensors files that a test writes, and a model of them opened.
#pragma once

#include <filesystem>
#include <fstream>

#include "support.hpp"

namespace mp_test {

using ModelFile = Handle<mp_model_file, mp_model_file_destroy>;

struct Part {
    std::string name, type;
    std::vector<int64_t> shape;
    std::string bytes;
};

// As safetensors' own format says: the header's length, the header, the data.
inline void write_parts(const std::filesystem::path& path, const std::vector<Part>& parts,
                        const std::string& metadata = R"("format":"pt")") {
    std::string header = "{\"__metadata__\":{" + metadata + "}", data;
    for (const Part& part : parts) {
        std::string shape;
        for (const int64_t extent : part.shape) {
            shape += (shape.empty() ? "" : ",") + std::to_string(extent);
        }
        header += ",\"" + part.name + R"(":{"dtype":")" + part.type + R"(","shape":[)" + shape +
                  "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
                  std::to_string(data.size() + part.bytes.size()) + "]}";
        data += part.bytes;
    }
    header += "}";
    const uint64_t length = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length) << header << data;
}

inline ModelFile opened(const std::filesystem::path& path, uint32_t flags = 0) {
    mp_model_file* made = nullptr;
    EXPECT_TRUE(succeeded(mp_model_file_open(path.c_str(), flags, &made)));
    return ModelFile(made);
}

} // namespace mp_test
