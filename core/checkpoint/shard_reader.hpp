// SPDX-License-Identifier: Apache-2.0
// ShardReader: one file of a checkpoint. Every byte it gives was checked against the manifest's checksum of its chunk where it
// was read to, so a file that changes meanwhile is found out.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "model/safetensors.hpp"
#include "system/file.hpp"

namespace mp::checkpoint {

class ShardReader {
  public:
    // Throws unless the file is as long as the manifest says, and its header intact and of this checkpoint.
    ShardReader(system::FileTable& files, const std::string& directory, const Manifest& manifest,
                std::size_t index);
    ShardReader(const ShardReader&) = delete;
    ShardReader& operator=(const ShardReader&) = delete;
    ~ShardReader();

    // Where the slice's bytes begin in the file; throws unless the file has it with this type and length.
    [[nodiscard]] int64_t place(const StoredTensor& tensor, const StoredSlice& slice) const;
    // What it has written when it throws is not to be used. `data` is memory that nobody else writes.
    void read(int64_t offset, void* data, std::size_t bytes);
    // Every chunk, whether asked for or not; reports each one's bytes to `read`.
    void verify_all(const std::function<void(int64_t bytes)>& read = {});

  private:
    // Reads it whole, and checks it there.
    void read_chunk(int64_t index, unsigned char* to);
    void load_chunk(int64_t index);
    [[nodiscard]] std::size_t chunk_size(int64_t index) const noexcept;
    void read_header();

    system::FileTable& files_;
    const Manifest& manifest_;
    const StoredFile& file_;
    int32_t handle_ = -1;
    std::vector<unsigned char> chunk_;
    int64_t loaded_ = -1; // which chunk that is
    std::unique_ptr<model::Header> header_;
};

} // namespace mp::checkpoint
