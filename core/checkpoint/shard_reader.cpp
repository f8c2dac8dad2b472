// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_reader.hpp"

#include <algorithm>
#include <cstring>

#include "system/crc32c.hpp"

namespace mp::checkpoint {
namespace {

// Of a chunk, so that its checksum finds it in the processor's caches.
constexpr std::size_t kPiece = std::size_t{256} << 10;

} // namespace

ShardReader::ShardReader(system::FileTable& files, const std::string& directory,
                         const Manifest& manifest, std::size_t index)
    : files_(files), manifest_(manifest), file_(manifest.files[index]) {
    const std::string path = directory + "/" + file_.name;
    check(files_.open(path.c_str(), system::OpenMode::read_plain, &handle_));
    try {
        int64_t bytes = 0;
        check(files_.size(handle_, &bytes));
        if (bytes != file_.bytes) {
            fail(Code::io_error, "checkpoint: '%s' has %lld bytes; the manifest says %lld",
                 path.c_str(), static_cast<long long>(bytes), static_cast<long long>(file_.bytes));
        }
        // No larger than the file, which really has these bytes.
        chunk_.resize(static_cast<std::size_t>(std::min(bytes, manifest_.chunk_bytes)));
        read_header();
    } catch (...) {
        (void)files_.close(handle_);
        throw;
    }
}

ShardReader::~ShardReader() { (void)files_.close(handle_); }

void ShardReader::read_header() {
    unsigned char prefix[8] = {};
    if (file_.bytes < 8) {
        fail(Code::corrupt_data, "checkpoint: '%s' is too short for a header", file_.name.c_str());
    }
    read(0, prefix, sizeof prefix);
    std::string text(static_cast<std::size_t>(model::header_bytes(prefix, file_.bytes)), '\0');
    read(8, text.data(), text.size());
    header_ = std::make_unique<model::Header>(model::read_safetensors(text, file_.bytes));
    if (header_->metadata("checkpoint_id") != manifest_.id) {
        fail(Code::corrupt_data, "checkpoint: '%s' belongs to another checkpoint than the manifest",
             file_.name.c_str());
    }
}

int64_t ShardReader::place(const StoredTensor& tensor, const StoredSlice& slice) const {
    const std::string key = tensor.key(slice);
    const model::FileTensor* found = header_->find(key);
    const auto offset = [&](int64_t i) { return code_bytes(tensor.format, i); };
    const int64_t bytes = offset(slice.start + slice.length) - offset(slice.start);
    if (found == nullptr || found->type != model::file_type(tensor.format) ||
        found->end - found->begin != bytes) {
        fail(Code::corrupt_data,
             "checkpoint: '%s' does not have '%s' in the type and length that the manifest says",
             file_.name.c_str(), key.c_str());
    }
    return header_->data_begin() + found->begin;
}

std::size_t ShardReader::chunk_size(int64_t index) const noexcept {
    const int64_t begin = index * manifest_.chunk_bytes;
    return static_cast<std::size_t>(std::min(manifest_.chunk_bytes, file_.bytes - begin));
}

void ShardReader::read_chunk(int64_t index, unsigned char* to) {
    const int64_t begin = index * manifest_.chunk_bytes;
    const std::size_t bytes = chunk_size(index);
    uint32_t sum = 0;
    for (std::size_t done = 0; done < bytes; done += kPiece) {
        const std::size_t n = std::min(kPiece, bytes - done);
        check(files_.read(handle_, begin + static_cast<int64_t>(done), to + done, n));
        sum = system::crc32c(sum, to + done, n);
    }
    if (sum != file_.chunks[static_cast<std::size_t>(index)]) {
        fail(Code::corrupt_data, "checkpoint: '%s' is damaged between byte %lld and byte %lld",
             file_.name.c_str(), static_cast<long long>(begin),
             static_cast<long long>(begin + static_cast<int64_t>(bytes)));
    }
}

void ShardReader::load_chunk(int64_t index) {
    if (index != loaded_) {
        loaded_ = -1;
        read_chunk(index, chunk_.data());
        loaded_ = index;
    }
}

void ShardReader::read(int64_t offset, void* data, std::size_t bytes) {
    auto* to = static_cast<unsigned char*>(data);
    while (bytes > 0) {
        const int64_t index = offset / manifest_.chunk_bytes;
        const auto skip = static_cast<std::size_t>(offset % manifest_.chunk_bytes);
        if (offset >= file_.bytes) {
            fail(Code::internal, "checkpoint: a read goes beyond '%s'", file_.name.c_str());
        }
        const std::size_t n = std::min(bytes, chunk_size(index) - skip);
        if (n == chunk_size(index) && index != loaded_) {
            read_chunk(index, to);
        } else {
            load_chunk(index);
            std::memcpy(to, chunk_.data() + skip, n);
        }
        to += n;
        offset += static_cast<int64_t>(n);
        bytes -= n;
    }
}

void ShardReader::verify_all(const std::function<void(int64_t bytes)>& read) {
    for (std::size_t i = 0; i < file_.chunks.size(); ++i) {
        const int64_t begin = static_cast<int64_t>(i) * manifest_.chunk_bytes;
        load_chunk(static_cast<int64_t>(i));
        if (read) {
            read(std::min(manifest_.chunk_bytes, file_.bytes - begin));
        }
    }
}

} // namespace mp::checkpoint
