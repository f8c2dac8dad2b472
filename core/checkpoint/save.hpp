// SPDX-License-Identifier: Apache-2.0
// Saving: every rank writes and syncs its own file in a temporary directory; when all have, rank 0 writes the manifest,
// syncs it and the directory, and one rename of the directory is the commit. Nothing is ever overwritten.
#pragma once

#include <string>

#include "checkpoint/catalog.hpp"
#include "checkpoint/ranks.hpp"
#include "system/file.hpp"

namespace mp::checkpoint {

struct SaveOptions {
    std::string parent; // made where it is missing
    int64_t step = 0;
    std::string library;
    std::string device;                  // what products depend on here
    int64_t chunk_bytes = kDefaultChunk; // of a checksum, and of a write
    int32_t keep = 0;  // older checkpoints beyond so many are deleted after the commit; 0: none
    Progress progress; // of this rank's bytes
};

// Collective; waits. Returns the new directory's path. Throws on every rank where any failed, and then no
// checkpoint is there that was not before, unless all that failed is the last sync of the parent directory.
std::string save_checkpoint(Ranks& ranks, system::FileTable& files, const Catalog& catalog,
                            const SaveOptions& options);

// The same in two steps, both collective, of which only the first looks at a path: where the process is, and what its paths
// mean, may change before the second.
system::OpenFile open_folder(Ranks& ranks, system::FileTable& files, const std::string& parent);
std::string save_into(Ranks& ranks, system::FileTable& files, const system::OpenFile& folder,
                      const Catalog& catalog, const SaveOptions& options);

// One ordinary safetensors file with these entries, each whole in its one slice, under their names alone (for a state
// other than "param": name_state). `path` must not exist. Not collective.
void write_weights(system::FileTable& files, const std::string& path, const Catalog& catalog);

} // namespace mp::checkpoint
