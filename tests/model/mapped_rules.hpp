// SPDX-License-Identifier: Apache-2.0
// A model's file in simulated files, and maps of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/simulated_files.hpp"
#include "model/mapped_tensors.hpp"
#include "model/model_files.hpp"
#include "model/safetensors.hpp"

namespace mp::test {

struct MapTensor {
    std::string name;
    model::FileType type;
    std::vector<int64_t> shape;
};

// Bytes count up from one tensor to the next, so that each place is known by what lies there.
inline std::string file_of(const std::vector<MapTensor>& tensors) {
    std::vector<model::NewTensor> list;
    std::size_t total = 0;
    for (const MapTensor& tensor : tensors) {
        int64_t count = 1;
        for (const int64_t size : tensor.shape) {
            count *= size;
        }
        list.push_back({tensor.name, tensor.type, tensor.shape,
                        model::bytes_of(tensor.type, count).value_or(0)});
        total += static_cast<std::size_t>(list.back().bytes);
    }
    std::string bytes(total, '\0');
    for (std::size_t i = 0; i < total; ++i) {
        bytes[i] = static_cast<char>(i * 7 + i / 256 * 3 + 1);
    }
    return model::write_header(list, {}) + bytes;
}

inline void put(SimulatedFiles& files, const char* path, const std::string& bytes) {
    int32_t handle = -1;
    ASSERT_TRUE(files.open(path, system::OpenMode::create_new, &handle).ok());
    ASSERT_TRUE(files.write(handle, 0, bytes.data(), bytes.size()).ok());
    ASSERT_TRUE(files.close(handle).ok());
}

struct MapFixture {
    explicit MapFixture(const std::vector<MapTensor>& tensors) {
        put(files, "/m.safetensors", file_of(tensors));
        origin = std::make_shared<model::ModelFiles>(files, "/m.safetensors");
    }
    [[nodiscard]] model::MappedTensors map(const std::string& rules) const {
        return {origin, rules};
    }
    [[nodiscard]] std::string names(const std::string& rules) const {
        const model::MappedTensors mapped = map(rules);
        std::string text;
        for (std::size_t i = 0; i < mapped.count(); ++i) {
            text += (i == 0 ? "" : " ") + std::string(mapped.facts(i).name);
        }
        return text;
    }

    SimulatedFiles files;
    std::shared_ptr<model::ModelFiles> origin;
};

inline std::string bytes_of(const model::TensorSource& source, const std::string& name) {
    const std::size_t index = source.find(name);
    std::string bytes(static_cast<std::size_t>(source.facts(index).bytes), '\0');
    source.read(index, 0, bytes.data(), bytes.size());
    return bytes;
}

} // namespace mp::test
