// SPDX-License-Identifier: Apache-2.0
#include "shard/plan.hpp"

#include <algorithm>
#include <numeric>

#include "interface/ops.hpp"
#include "shard/greedy.hpp"
#include "status/status.hpp"
#include "system/fnv.hpp"

namespace mp::shard {
namespace {

// So that an element's number times the ranks stays within 64 bits.
constexpr int64_t kLargestTotal = int64_t{1} << 42;
constexpr int32_t kMostRanks = 1 << 20;

void check(const ShardOptions& options, std::span<const int64_t> counts) {
    if (options.ranks < 1 || options.ranks > kMostRanks) {
        fail(Code::invalid_argument, "shard plan: %d ranks; there must be 1 to %d", options.ranks,
             kMostRanks);
    }
    if (options.bucket_elements < 1) {
        fail(Code::invalid_argument,
             "shard plan: buckets of %lld elements; there must be at least 1",
             static_cast<long long>(options.bucket_elements));
    }
    int64_t total = 0;
    for (const int64_t count : counts) {
        if (count < 0 || count > kLargestTotal - total) {
            fail(Code::invalid_argument,
                 "shard plan: a parameter of %lld elements; sizes must be 0 or more and at most "
                 "2^42 "
                 "in all",
                 static_cast<long long>(count));
        }
        total += count;
    }
}

// Adds a run of elements; joins it with the last piece where it goes on from there.
void add_piece(std::vector<ShardSlice>& pieces, const ShardSlice& piece) {
    if (!pieces.empty()) {
        ShardSlice& last = pieces.back();
        if (last.parameter == piece.parameter && last.rank == piece.rank &&
            last.start + last.count == piece.start) {
            last.count += piece.count;
            return;
        }
    }
    pieces.push_back(piece);
}

// Chunks go to the rank in whose equal share of the bucket they begin.
void cut_flat(ShardBucket& bucket, std::span<const int64_t> counts, int32_t ranks) {
    int64_t total = 0;
    for (const int32_t parameter : bucket.parameters) {
        total += counts[static_cast<std::size_t>(parameter)];
    }
    int64_t position = 0;
    for (const int32_t parameter : bucket.parameters) {
        const int64_t count = counts[static_cast<std::size_t>(parameter)];
        for (int64_t start = 0; start < count; start += kChunkElements) {
            const int64_t here = std::min(kChunkElements, count - start);
            const auto rank = static_cast<int32_t>(position * ranks / total);
            add_piece(bucket.pieces, {parameter, rank, start, here});
            position += here;
        }
    }
}

// Each parameter begins at another rank, so that small ones do not all go to the first.
void cut_each(ShardBucket& bucket, std::span<const int64_t> counts, int32_t ranks) {
    for (const int32_t parameter : bucket.parameters) {
        const int64_t count = counts[static_cast<std::size_t>(parameter)];
        const int64_t chunks = (count + kChunkElements - 1) / kChunkElements;
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
            const int64_t start = chunk * kChunkElements;
            const int64_t rank = (chunk * ranks / chunks + parameter) % ranks;
            add_piece(bucket.pieces, {parameter, static_cast<int32_t>(rank), start,
                                      std::min(kChunkElements, count - start)});
        }
    }
}

} // namespace

std::span<const ShardSlice> ShardBucket::slices_of(int32_t rank) const {
    const auto [first, last] =
        std::equal_range(pieces.begin(), pieces.end(), ShardSlice{0, rank, 0, 0},
                         [](const ShardSlice& a, const ShardSlice& b) { return a.rank < b.rank; });
    return {first, last};
}

int64_t ShardBucket::count() const {
    return std::accumulate(rank_counts.begin(), rank_counts.end(), int64_t{0});
}

ShardPlan::ShardPlan(const ShardOptions& options, std::span<const int64_t> counts)
    : options_(options), bucket_of_(counts.size()), by_parameter_(counts.size()) {
    check(options, counts);
    if (options_.kind == ShardKind::greedy) {
        owners_ = assign_greedily(counts, options_.ranks).owner;
    }
    fill_buckets(counts);
    for (ShardBucket& bucket : buckets_) {
        cut(bucket, counts);
    }
}

void ShardPlan::fill_buckets(std::span<const int64_t> counts) {
    int64_t filled = options_.bucket_elements;
    for (std::size_t i = counts.size(); i-- > 0;) {
        if (filled >= options_.bucket_elements) {
            buckets_.emplace_back();
            filled = 0;
        }
        buckets_.back().parameters.push_back(static_cast<int32_t>(i));
        bucket_of_[i] = static_cast<int32_t>(buckets_.size()) - 1;
        filled += counts[i];
    }
}

void ShardPlan::cut(ShardBucket& bucket, std::span<const int64_t> counts) {
    switch (options_.kind) {
    case ShardKind::flat:
        cut_flat(bucket, counts, options_.ranks);
        break;
    case ShardKind::per_parameter:
        cut_each(bucket, counts, options_.ranks);
        break;
    case ShardKind::greedy:
        for (const int32_t parameter : bucket.parameters) {
            const auto i = static_cast<std::size_t>(parameter);
            if (counts[i] > 0) {
                bucket.pieces.push_back({parameter, owners_[i], 0, counts[i]});
            }
        }
        break;
    }
    for (const ShardSlice& piece : bucket.pieces) {
        by_parameter_[static_cast<std::size_t>(piece.parameter)].push_back(piece);
    }
    std::stable_sort(bucket.pieces.begin(), bucket.pieces.end(),
                     [](const ShardSlice& a, const ShardSlice& b) { return a.rank < b.rank; });
    bucket.rank_counts.assign(static_cast<std::size_t>(options_.ranks), 0);
    for (const ShardSlice& piece : bucket.pieces) {
        bucket.rank_counts[static_cast<std::size_t>(piece.rank)] += piece.count;
    }
}

ShardSlice ShardPlan::piece_on(int32_t parameter, int32_t rank) const {
    for (const ShardSlice& piece : slices_of(parameter)) {
        if (piece.rank == rank) {
            return piece;
        }
    }
    return {parameter, rank, 0, 0};
}

int64_t ShardPlan::elements_of(int32_t rank) const {
    int64_t total = 0;
    for (const ShardBucket& bucket : buckets_) {
        total += bucket.rank_counts[static_cast<std::size_t>(rank)];
    }
    return total;
}

uint64_t ShardPlan::hash() const noexcept {
    system::Fnv64 hash;
    hash.add(options_.kind);
    hash.add(options_.ranks);
    for (const ShardBucket& bucket : buckets_) {
        hash.add(bucket.pieces.size());
        for (const ShardSlice& piece : bucket.pieces) {
            hash.add(piece.parameter);
            hash.add(piece.rank);
            hash.add(piece.start);
            hash.add(piece.count);
        }
    }
    return hash.value();
}

} // namespace mp::shard
