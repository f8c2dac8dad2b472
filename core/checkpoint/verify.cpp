// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.hpp"

#include <algorithm>
#include <vector>

#include "checkpoint/shard_reader.hpp"

namespace mp::checkpoint {
namespace {

// Values that have a rule, in parts: a manifest may claim much.
void check_scales(ShardReader& reader, const StoredTensor& tensor, const StoredSlice& slice,
                  int64_t place) {
    constexpr int64_t kPart = int64_t{1} << 16;
    const int64_t size = dtype_size(dtype_of(tensor.format));
    Entry entry;
    entry.name = tensor.name;
    entry.state = tensor.state;
    entry.format = tensor.format;
    entry.rule = ValueRule::scale;
    std::vector<unsigned char> values;
    for (int64_t at = 0; at < slice.length; at += kPart) {
        values.resize(static_cast<std::size_t>(size * std::min(kPart, slice.length - at)));
        reader.read(place + size * at, values.data(), values.size());
        const std::string wrong = wrong_value(entry, values.data(), values.size());
        if (!wrong.empty()) {
            fail(Code::corrupt_data, "checkpoint: %.500s", wrong.c_str());
        }
    }
}

} // namespace

void verify_file(system::FileTable& files, const Found& found, std::size_t file,
                 const Progress& progress) {
    const Manifest& manifest = found.manifest;
    const int64_t total = manifest.files.at(file).bytes;
    int64_t done = 0;
    ShardReader reader(files, found.directory, manifest, file);
    reader.verify_all([&](int64_t bytes) { progress.report(done += bytes, total); });
    for (const StoredTensor& tensor : manifest.tensors) {
        const bool are_scales = value_rule(tensor.state) != ValueRule::any;
        for (const StoredSlice& slice : tensor.slices) {
            if (slice.file == static_cast<int64_t>(file)) {
                const int64_t place = reader.place(tensor, slice);
                if (are_scales) {
                    check_scales(reader, tensor, slice, place);
                }
            }
        }
    }
}

} // namespace mp::checkpoint
