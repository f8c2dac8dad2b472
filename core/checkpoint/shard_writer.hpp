// SPDX-License-Identifier: Apache-2.0
// ShardWriter: one new file, written in chunks whose checksums are taken on the way, and synced.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/catalog.hpp"
#include "system/file.hpp"

namespace mp::checkpoint {

using Metadata = std::vector<std::pair<std::string, std::string>>;

// One tensor of a file and where its bytes come from.
struct ShardTensor {
    std::string key;
    const Entry* entry = nullptr;
    const LocalSlice* slice = nullptr;
};

// Creates the file in an open directory, where it must not exist, and returns its size and checksums with everything on the
// disk. A failed sync or close is final: nothing is tried again.
StoredFile write_shard(system::FileTable& files, int32_t directory, const std::string& name,
                       const std::vector<ShardTensor>& tensors, const Metadata& metadata,
                       int64_t chunk_bytes, const Progress& progress);
// A small file of text, the same way.
void write_synced(system::FileTable& files, int32_t directory, const std::string& name,
                  const std::string& text);

} // namespace mp::checkpoint
