// SPDX-License-Identifier: Apache-2.0
// Whether every byte of a checkpoint's file is as it was written.
#pragma once

#include "checkpoint/catalog.hpp"
#include "checkpoint/directory.hpp"

namespace mp::checkpoint {

// Reads the whole file: its size, checksums, header, that it has what the manifest says, and scales that a load believes.
// Throws io_error and corrupt_data.
void verify_file(system::FileTable& files, const Found& found, std::size_t file,
                 const Progress& progress);

} // namespace mp::checkpoint
