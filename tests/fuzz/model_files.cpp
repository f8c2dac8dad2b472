// SPDX-License-Identifier: Apache-2.0
// A model's files: any bytes as an index, or as a file beside a good one, give tensors that can be read whole, or a failure with
// words.
#include "model/model_files.hpp"

#include "checkpoint/simulated_files.hpp"
#include "fuzz/target.hpp"
#include "model/safetensors.hpp"

using namespace mp;
using namespace mp::model;

namespace {

using mp::fuzz::require;

void put(test::SimulatedFiles& files, const char* path, const std::string& bytes) {
    int32_t handle = -1;
    require(files.open(path, system::OpenMode::create_new, &handle).ok());
    require(files.write(handle, 0, bytes.data(), bytes.size()).ok());
    require(files.close(handle).ok());
}

std::string good_file(const char* name, int64_t elements) {
    const std::vector<NewTensor> tensors = {{name, FileType::BF16, {elements}, 2 * elements}};
    return write_header(tensors, {}) + std::string(static_cast<std::size_t>(2 * elements), 'x');
}

void read_all(test::SimulatedFiles& files, const char* path) {
    try {
        const ModelFiles model(files, path);
        std::string bytes;
        for (std::size_t i = 0; i < model.tensors().size(); ++i) {
            const FileTensor& tensor = *model.tensors()[i].entry;
            require(model.find(tensor.name) == i);
            bytes.resize(static_cast<std::size_t>(tensor.end - tensor.begin));
            model.read(i, 0, bytes.data(), bytes.size());
        }
    } catch (const Error& error) {
        const Code code = error.status().code();
        require(code == Code::corrupt_data || code == Code::io_error, error.what());
        require(error.what()[0] != '\0');
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    test::SimulatedFiles files;
    require(files.make_directory("/m").ok());
    put(files, "/m/a.safetensors", good_file("a", 3));
    put(files, "/m/b.safetensors", good_file("b", 0));
    put(files, "/m/c.safetensors", text);
    read_all(files, "/m");
    put(files, "/m/model.safetensors.index.json", text);
    read_all(files, "/m");
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    return {
        R"({"metadata":{"total_size":6},"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})",
        R"({"weight_map":{"a":"a.safetensors"},"weight_map":{"b":"a.safetensors"}})",
        R"({"weight_map":{"a":"../m/a.safetensors"}})", good_file("c", 4), good_file("a", 1)};
}
