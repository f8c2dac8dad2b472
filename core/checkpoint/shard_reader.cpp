// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_reader.hpp"

#include <algorithm>
#include <cstring>

#include "system/crc32c.hpp"

namespace mp::checkpoint {

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
    std::string text(static_cast<std::size_t>(header_bytes(prefix, file_.bytes)), '\0');
    read(8, text.data(), text.size());
    header_ = std::make_unique<Header>(text, file_.bytes);
    if (header_->metadata("checkpoint_id") != manifest_.id) {
        fail(Code::corrupt_data, "checkpoint: '%s' belongs to another checkpoint than the manifest",
             file_.name.c_str());
    }
}

int64_t ShardReader::place(const StoredTensor& tensor, const StoredSlice& slice) const {
    const std::string key = tensor.key(slice);
    const FileTensor* found = header_->find(key);
    const auto offset = [&](int64_t i) { return code_bytes(tensor.format, i); };
    const int64_t bytes = offset(slice.start + slice.length) - offset(slice.start);
    if (found == nullptr || found->type != file_type(dtype_of(tensor.format)) ||
        found->end - found->begin != bytes) {
        fail(Code::corrupt_data,
             "checkpoint: '%s' does not have '%s' in the type and length that the manifest says",
             file_.name.c_str(), key.c_str());
    }
    return header_->data_begin() + found->begin;
}

void ShardReader::load_chunk(int64_t index) {
    if (index == loaded_) {
        return;
    }
    loaded_ = -1;
    const int64_t begin = index * manifest_.chunk_bytes;
    const auto bytes =
        static_cast<std::size_t>(std::min(manifest_.chunk_bytes, file_.bytes - begin));
    check(files_.read(handle_, begin, chunk_.data(), bytes));
    if (system::crc32c(0, chunk_.data(), bytes) != file_.chunks[static_cast<std::size_t>(index)]) {
        fail(Code::corrupt_data, "checkpoint: '%s' is damaged between byte %lld and byte %lld",
             file_.name.c_str(), static_cast<long long>(begin),
             static_cast<long long>(begin + static_cast<int64_t>(bytes)));
    }
    loaded_ = index;
}

void ShardReader::read(int64_t offset, void* data, std::size_t bytes) {
    auto* to = static_cast<unsigned char*>(data);
    while (bytes > 0) {
        const int64_t index = offset / manifest_.chunk_bytes;
        load_chunk(index);
        const int64_t begin = index * manifest_.chunk_bytes;
        const int64_t end = std::min(begin + manifest_.chunk_bytes, file_.bytes);
        if (offset >= end) {
            fail(Code::internal, "checkpoint: a read goes beyond '%s'", file_.name.c_str());
        }
        const std::size_t n = std::min(bytes, static_cast<std::size_t>(end - offset));
        std::memcpy(to, chunk_.data() + (offset - begin), n);
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
