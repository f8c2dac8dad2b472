// SPDX-License-Identifier: Apache-2.0
// A small training state cut over ranks, whose every number tells its version, for saving and loading.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/load.hpp"
#include "checkpoint/save.hpp"

namespace mp::test {

// Of rank r of n: fp32 "w" in even slices, bf16 moments in block-like cuts, dynamic4 codes with scales in uneven slices
// (the last rank may own nothing), a whole tensor of one owner, a scale and a blob that all have.
class ExampleState {
  public:
    ExampleState(int32_t rank, int32_t size, int64_t count, uint32_t version)
        : rank_(rank), size_(size), count_(count) {
        add("w", "param", FormatId::fp32, {count / 4, 4}, cut(count, 1, true), version);
        add("w", "exp_avg", FormatId::bf16, {count / 4, 4}, cut(count, 1, false), version + 100);
        const int64_t blocks = (count + 127) / 128;
        add("w", "exp_avg_sq", FormatId::dynamic4, {count / 4, 4}, cut(count, 128, false),
            version + 200);
        add("w", "exp_avg_sq_scale_inv", FormatId::fp32, {blocks}, cut(blocks, 1, false), version);
        catalog_.entries.back().rule = checkpoint::ValueRule::scale;
        add("bias", "param", FormatId::fp16_scaled, {3},
            rank == size - 1 ? std::vector<Range>{{0, 3}} : std::vector<Range>{}, version);
        add("bias", "param_scale_inv", FormatId::fp32, {}, {{0, 1}}, version);
        catalog_.entries.back().rule = checkpoint::ValueRule::power_of_two;
        catalog_.entries.back().replicated = catalog_.entries.back().agrees = true;
        add("data", "blob", format_id(DType::uint8), {24}, {{0, 24}}, version);
        catalog_.entries.back().replicated = true;
        add("empty", "param", FormatId::fp32, {0, 5}, {}, version);
        catalog_.scalars = {{"optimizer.t", version}, {"scaler.scale", 0x40590000ULL + version}};
        catalog_.recipe = "{\"recipe\": \"fp32\"}";
        catalog_.seed = 42;
        catalog_.rng_step = version;
    }

    [[nodiscard]] checkpoint::Catalog& catalog() noexcept { return catalog_; }

    // Everything is of this version.
    [[nodiscard]] bool is(uint32_t version) const {
        ExampleState wanted(rank_, size_, count_, version);
        return memory_equals(wanted);
    }
    [[nodiscard]] bool memory_equals(const ExampleState& other) const {
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            if (*memory_[i] != *other.memory_[i]) {
                return false;
            }
        }
        return true;
    }

  private:
    struct Range {
        int64_t start;
        int64_t length;
    };

    [[nodiscard]] std::vector<Range> cut(int64_t count, int64_t block, bool even) const {
        const int64_t blocks = (count + block - 1) / block;
        const auto border = [&](int64_t r) {
            const int64_t at = even ? blocks * r / size_ : std::min(blocks, r * ((blocks + 1) / 2));
            return r == size_ ? count : std::min(count, at * block);
        };
        std::vector<Range> ranges;
        const int64_t begin = border(rank_);
        const int64_t end = border(rank_ + 1);
        if (end > begin) {
            ranges.push_back({begin, end - begin});
        }
        return ranges;
    }

    void add(const char* name, const char* state, FormatId format, std::vector<int64_t> shape,
             const std::vector<Range>& ranges, uint32_t version) {
        checkpoint::Entry entry;
        entry.name = name;
        entry.state = state;
        entry.format = format;
        entry.shape = std::move(shape);
        for (const Range& range : ranges) {
            checkpoint::LocalSlice slice = {range.start, range.length, nullptr};
            memory_.push_back(std::make_unique<std::vector<unsigned char>>(entry.bytes(slice)));
            slice.data = memory_.back()->data();
            fill(entry, slice, version);
            entry.slices.push_back(slice);
        }
        catalog_.entries.push_back(std::move(entry));
    }

    // By logical position, so that it does not matter who has it; scales are powers of two.
    static void fill(const checkpoint::Entry& entry, const checkpoint::LocalSlice& slice,
                     uint32_t version) {
        auto* bytes = static_cast<unsigned char*>(slice.data);
        const bool is_scale = entry.state.find("scale") != std::string::npos;
        for (std::size_t i = 0; i < entry.bytes(slice); ++i) {
            const auto at =
                static_cast<uint32_t>(entry.offset(slice.start)) + static_cast<uint32_t>(i);
            bytes[i] = static_cast<unsigned char>((at * 2654435761U + version * 97U) >> 7);
            if (is_scale && i % 4 == 3) {
                const uint32_t bits = (100 + version % 50) << 23;
                std::memcpy(bytes + i - 3, &bits, sizeof bits);
            }
        }
    }

    int32_t rank_;
    int32_t size_;
    int64_t count_;
    checkpoint::Catalog catalog_;
    std::vector<std::unique_ptr<std::vector<unsigned char>>> memory_;
};

inline checkpoint::SaveOptions save_options(const std::string& parent, int64_t step,
                                            int64_t chunk_bytes = 1024) {
    checkpoint::SaveOptions options;
    options.parent = parent;
    options.step = step;
    options.library = "0.1.0";
    options.chunk_bytes = chunk_bytes;
    return options;
}

inline checkpoint::LoadOptions load_options(const std::string& path) {
    checkpoint::LoadOptions options;
    options.path = path;
    return options;
}

} // namespace mp::test
