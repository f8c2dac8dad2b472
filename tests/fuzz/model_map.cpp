// SPDX-License-Identifier: Apache-2.0
// Rules over a model's tensors: any text makes tensors that can be read, whole and in two pieces with the same bytes, or a
// failure with words.
#include <memory>

#include "checkpoint/simulated_files.hpp"
#include "fuzz/target.hpp"
#include "model/mapped_tensors.hpp"
#include "model/model_files.hpp"
#include "model/safetensors.hpp"

using namespace mp;
using namespace mp::model;

namespace {

using mp::fuzz::require;

struct Model {
    Model() {
        const std::vector<NewTensor> tensors = {
            {"l.0.q", FileType::BF16, {4, 3}, 24}, {"l.0.k", FileType::BF16, {2, 3}, 12},
            {"l.1.q", FileType::BF16, {4, 3}, 24}, {"l.1.k", FileType::BF16, {2, 3}, 12},
            {"b", FileType::F32, {4}, 16},         {"f", FileType::F4, {2, 4}, 4},
            {"e", FileType::U8, {0, 3}, 0}};
        std::string bytes = write_header(tensors, {});
        for (int i = 0; i < 92; ++i) {
            bytes += static_cast<char>(i);
        }
        int32_t handle = -1;
        require(files.open("/m.safetensors", system::OpenMode::create_new, &handle).ok());
        require(files.write(handle, 0, bytes.data(), bytes.size()).ok());
        require(files.close(handle).ok());
        origin = std::make_shared<ModelFiles>(files, "/m.safetensors");
    }
    test::SimulatedFiles files;
    std::shared_ptr<ModelFiles> origin;
};

void read_all(const MappedTensors& mapped) {
    constexpr std::size_t kMost = 64; // tensors, and KiB of each, that one input reads
    std::string whole, pieces;
    for (std::size_t i = 0; i < std::min(mapped.count(), kMost); ++i) {
        const TensorFacts facts = mapped.facts(i);
        require(mapped.find(facts.name) == i, "a name is there once");
        require(facts.bytes >= 0);
        const auto bytes = std::min(static_cast<std::size_t>(facts.bytes), kMost << 10);
        whole.assign(bytes, '\0');
        pieces.assign(bytes, '\1');
        mapped.read(i, 0, whole.data(), bytes);
        const std::size_t half = bytes * 3 / 7;
        mapped.read(i, 0, pieces.data(), half);
        mapped.read(i, static_cast<int64_t>(half), pieces.data() + half, bytes - half);
        require(whole == pieces, "pieces are those of the whole");
        for (const char c : whole) {
            require(static_cast<unsigned char>(c) < 92, "bytes are the file's");
        }
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    static const Model model;
    try {
        read_all(MappedTensors(model.origin,
                               std::string_view(reinterpret_cast<const char*>(data), size)));
    } catch (const Error& error) {
        const Code code = error.status().code();
        require(code == Code::invalid_argument || code == Code::unknown_name ||
                    code == Code::invalid_shape || code == Code::invalid_dtype,
                error.what());
        require(error.what()[0] != '\0');
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    return {"blk.*.attn_q = half_to_pairs(l.*.q, 2) # rows\nblk.*.k = transpose(l.*.k)\n* = *",
            "qk.* = rows(join(l.*.q, l.*.k, l.*.q), 3:9)\nx = pairs_to_half(rows(b, 1/2), 1)",
            "t.* = transpose(rows(transpose(join(l.*.q, l.*.k)), 1/3))\n\"a b\" = \"b\"",
            "e = join(e, e)\nf = pairs_to_half(join(f, f), 2)\n*.*.* = l.*.*.*"};
}
