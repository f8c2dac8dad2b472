// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_writer.hpp"

#include <algorithm>
#include <cstring>

#include "model/safetensors.hpp"
#include "system/crc32c.hpp"

namespace mp::checkpoint {
namespace {

class ChunkWriter {
  public:
    ChunkWriter(system::FileTable& files, int32_t file, int64_t chunk_bytes, int64_t total,
                const Progress& progress)
        : files_(files), file_(file),
          chunk_(static_cast<std::size_t>(std::min(chunk_bytes, total))), total_(total),
          progress_(progress) {}

    void append(const char* data, std::size_t bytes) {
        while (bytes > 0) {
            const std::size_t n = std::min(bytes, chunk_.size() - filled_);
            std::memcpy(chunk_.data() + filled_, data, n);
            filled_ += n;
            data += n;
            bytes -= n;
            flush_if_full();
        }
    }

    void append(const ShardTensor& tensor) {
        if (tensor.entry->rule != ValueRule::any) {
            append_checked(*tensor.entry, *tensor.slice);
            return;
        }
        const std::size_t bytes = tensor.entry->bytes(*tensor.slice);
        for (std::size_t done = 0; done < bytes;) {
            const std::size_t n = std::min(bytes - done, chunk_.size() - filled_);
            copy_out(*tensor.entry, *tensor.slice, done, chunk_.data() + filled_, n);
            if (tensor.entry->stream != nullptr) {
                tensor.entry->stream->sync();
            }
            filled_ += n;
            done += n;
            flush_if_full();
        }
    }

    void flush() {
        if (filled_ > 0) {
            check(files_.write(file_, written_, chunk_.data(), filled_));
            sums_.push_back(system::crc32c(0, chunk_.data(), filled_));
            written_ += static_cast<int64_t>(filled_);
            filled_ = 0;
            progress_.report(written_, total_);
        }
    }

    [[nodiscard]] int64_t written() const noexcept { return written_; }
    std::vector<uint32_t> take_sums() noexcept { return std::move(sums_); }

  private:
    // What a load would refuse is not saved: until it is loaded nobody would know.
    void append_checked(const Entry& entry, const LocalSlice& slice) {
        constexpr std::size_t kMost = 1 << 16; // whole elements
        const std::size_t bytes = entry.bytes(slice);
        std::vector<unsigned char> part(std::min(bytes, kMost));
        for (std::size_t done = 0; done < bytes; done += part.size()) {
            part.resize(std::min(bytes - done, kMost));
            copy_out(entry, slice, done, part.data(), part.size());
            if (entry.stream != nullptr) {
                entry.stream->sync();
            }
            const std::string wrong = wrong_value(entry, part.data(), part.size());
            if (!wrong.empty()) {
                fail(Code::bad_state,
                     "checkpoint: %s; a load would refuse it. A gradient was too large for the "
                     "state, or not finite: go on from an earlier checkpoint",
                     wrong.c_str());
            }
            append(reinterpret_cast<const char*>(part.data()), part.size());
        }
    }

    void flush_if_full() {
        if (filled_ == chunk_.size()) {
            flush();
        }
    }

    system::FileTable& files_;
    int32_t file_;
    std::vector<char> chunk_;
    std::size_t filled_ = 0;
    int64_t written_ = 0;
    int64_t total_;
    std::vector<uint32_t> sums_;
    Progress progress_;
};

// As other readers know it where the slice is the whole, else as a flat array.
model::NewTensor describe(const ShardTensor& source) {
    const Entry& entry = *source.entry;
    model::NewTensor tensor;
    tensor.name = source.key;
    tensor.type = model::file_type(entry.format);
    tensor.bytes = static_cast<int64_t>(entry.bytes(*source.slice));
    const bool is_whole = source.slice->length == entry.count();
    if (model::is_in_pairs(entry.format)) {
        tensor.shape = {tensor.bytes};
    } else if (is_whole) {
        tensor.shape = entry.shape;
    } else {
        tensor.shape = {source.slice->length};
    }
    return tensor;
}

} // namespace

StoredFile write_shard(system::FileTable& files, int32_t directory, const std::string& name,
                       const std::vector<ShardTensor>& tensors, const Metadata& metadata,
                       int64_t chunk_bytes, const Progress& progress) {
    std::vector<std::pair<model::NewTensor, const ShardTensor*>> order;
    order.reserve(tensors.size());
    for (const ShardTensor& tensor : tensors) {
        order.emplace_back(describe(tensor), &tensor);
    }
    std::sort(order.begin(), order.end(),
              [](const auto& a, const auto& b) { return model::writing_order(a.first, b.first); });
    std::vector<model::NewTensor> described;
    described.reserve(order.size());
    int64_t data_bytes = 0;
    for (const auto& [tensor, source] : order) {
        described.push_back(tensor);
        data_bytes += tensor.bytes;
    }
    const std::string header = model::write_header(described, metadata);
    const int64_t total = static_cast<int64_t>(header.size()) + data_bytes;
    system::OpenFile file(files, directory, name, system::OpenMode::create_new);
    check(files.reserve(file.handle(), total));
    ChunkWriter writer(files, file.handle(), chunk_bytes, total, progress);
    writer.append(header.data(), header.size());
    for (const auto& [tensor, source] : order) {
        writer.append(*source);
    }
    writer.flush();
    file.finish();
    StoredFile stored;
    stored.bytes = writer.written();
    stored.chunks = writer.take_sums();
    return stored;
}

void write_synced(system::FileTable& files, int32_t directory, const std::string& name,
                  const std::string& text) {
    system::OpenFile file(files, directory, name, system::OpenMode::create_new);
    check(files.write(file.handle(), 0, text.data(), text.size()));
    file.finish();
}

} // namespace mp::checkpoint
