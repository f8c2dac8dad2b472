// SPDX-License-Identifier: Apache-2.0
// Manifests of checkpoints, their checksum made right so that what lies behind it is reached: any bytes give a manifest or a
// parse_error with words. What is accepted writes one form, which is accepted and writes itself.

#include "checkpoint/manifest.hpp"
#include "fuzz/target.hpp"
#include "status/status.hpp"
#include "system/bytes.hpp"
#include "system/crc32c.hpp"

using namespace mp;
using namespace mp::checkpoint;

namespace {

using mp::fuzz::require;

constexpr const char* kTail = ",\"crc32c\":\"";

std::string finish(const std::string& body) {
    return body + kTail + hex(system::crc32c(0, body.data(), body.size()), 8) + "\"}\n";
}

bool try_text(const std::string& text) {
    try {
        Manifest manifest = read_manifest(text);
        const std::string canonical = write_manifest(manifest);
        Manifest again = read_manifest(canonical);
        require(write_manifest(again) == canonical);
        require(system::to_bytes(again) == system::to_bytes(manifest));
        for (const StoredTensor& tensor : again.tensors) {
            require(again.find(tensor.name, tensor.state) == &tensor);
            int64_t end = 0;
            for (const StoredSlice& slice : tensor.slices) {
                require(slice.start == end);
                end = slice.start + slice.length;
                require(slice.length > 0 && end <= tensor.count());
                require(slice.file < static_cast<int64_t>(again.files.size()));
            }
        }
        return true;
    } catch (const Error& error) {
        const Code code = error.status().code();
        require((code == Code::corrupt_data || code == Code::version_mismatch) &&
                error.status().text()[0] != '\0');
    }
    return false;
}

// What ranks send one another.
void try_bytes(const std::string& bytes) {
    try {
        auto manifest = system::from_bytes<Manifest>(bytes);
        require(system::to_bytes(manifest) == bytes);
    } catch (const Error& error) {
        require(error.status().code() == Code::corrupt_data);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    (void)try_text(text); // with its own checksum, most likely wrong
    (void)try_text(finish(text));
    try_bytes(text);
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    Manifest manifest;
    manifest.library = "0.1.0";
    manifest.id = "0123456789abcdef0123456789abcdef";
    manifest.step = 10;
    manifest.world = 2;
    manifest.recipe = "{\"recipe\": \"fp32\"}";
    manifest.chunk_bytes = 200;
    manifest.files = {{"shard-0-of-2.safetensors", 300, {1, 0xFFFFFFFF}},
                      {"shard-1-of-2.safetensors", 360, {2, 3}}};
    manifest.tensors = {{"w", "param", FormatId::bf16, {3, 4}, {{0, 0, 7}, {1, 7, 5}}},
                        {"x", "exp_avg", FormatId::dynamic8, {600}, {{0, 0, 256}, {1, 256, 344}}},
                        {"none", "param", FormatId::fp32, {0, 3}, {}}};
    manifest.scalars = {{"scaler.scale", 0x40F0000000000000ULL}, {"optimizer.t", 9}};
    std::string text = write_manifest(manifest);
    std::string body = text.substr(0, text.rfind(kTail));
    std::string later = body;
    later.replace(later.find("\"minor\":3"), 9,
                  "\"minor\":7,\"later\":{\"a\":[1,true,null,\"\\u0061\"]}");
    return {body, later, text, system::to_bytes(manifest)};
}
