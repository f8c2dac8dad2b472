// SPDX-License-Identifier: Apache-2.0
#include "shard/plan.hpp"

#include <algorithm>
#include <functional>
#include <map>
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

// Adds a run of elements; joins it with the last slice where it goes on from there.
void add_slice(std::vector<ShardSlice>& slices, const ShardSlice& slice) {
    if (!slices.empty()) {
        ShardSlice& last = slices.back();
        if (last.parameter == slice.parameter && last.rank == slice.rank &&
            last.start + last.count == slice.start) {
            last.count += slice.count;
            return;
        }
    }
    slices.push_back(slice);
}

// Chunks go to the rank in whose equal run of the bucket they begin.
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
            add_slice(bucket.slices, {parameter, rank, start, here});
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
            add_slice(bucket.slices, {parameter, static_cast<int32_t>(rank), start,
                                      std::min(kChunkElements, count - start)});
        }
    }
}

} // namespace

std::span<const ShardSlice> ShardBucket::slices_of(int32_t rank) const {
    const auto [first, last] =
        std::equal_range(slices.begin(), slices.end(), ShardSlice{0, rank, 0, 0},
                         [](const ShardSlice& a, const ShardSlice& b) { return a.rank < b.rank; });
    return {first, last};
}

int64_t ShardBucket::count() const {
    return std::accumulate(rank_counts.begin(), rank_counts.end(), int64_t{0});
}

std::size_t ShardBucket::place_of(int32_t parameter) const {
    const auto found =
        std::lower_bound(parameters.begin(), parameters.end(), parameter, std::greater<>());
    return static_cast<std::size_t>(found - parameters.begin());
}

ShardPlan::ShardPlan(const ShardOptions& options, std::span<const int64_t> counts,
                     std::span<const int32_t> kinds)
    : options_(options), bucket_of_(counts.size()), by_parameter_(counts.size()) {
    check(options, counts);
    if (options_.kind == ShardKind::greedy) {
        owners_ = assign_greedily(counts, options_.ranks).owner;
    }
    fill_buckets(counts, kinds);
    for (ShardBucket& bucket : buckets_) {
        cut(bucket, counts);
    }
}

void ShardPlan::fill_buckets(std::span<const int64_t> counts, std::span<const int32_t> kinds) {
    struct Open {
        int32_t bucket;
        int64_t filled;
    };
    std::map<int32_t, Open> open; // by kind
    for (std::size_t i = counts.size(); i-- > 0;) {
        const auto [found, is_first] = open.try_emplace(kinds.empty() ? 0 : kinds[i]);
        Open& bucket = found->second;
        if (is_first || bucket.filled >= options_.bucket_elements) {
            bucket = {static_cast<int32_t>(buckets_.size()), 0};
            buckets_.emplace_back();
        }
        buckets_[static_cast<std::size_t>(bucket.bucket)].parameters.push_back(
            static_cast<int32_t>(i));
        bucket_of_[i] = bucket.bucket;
        bucket.filled += counts[i];
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
                bucket.slices.push_back({parameter, owners_[i], 0, counts[i]});
            }
        }
        break;
    }
    for (const ShardSlice& slice : bucket.slices) {
        by_parameter_[static_cast<std::size_t>(slice.parameter)].push_back(slice);
    }
    std::stable_sort(bucket.slices.begin(), bucket.slices.end(),
                     [](const ShardSlice& a, const ShardSlice& b) { return a.rank < b.rank; });
    bucket.rank_counts.assign(static_cast<std::size_t>(options_.ranks), 0);
    for (const ShardSlice& slice : bucket.slices) {
        bucket.rank_counts[static_cast<std::size_t>(slice.rank)] += slice.count;
    }
}

ShardSlice ShardPlan::slice_on(int32_t parameter, int32_t rank) const {
    for (const ShardSlice& slice : slices_of(parameter)) {
        if (slice.rank == rank) {
            return slice;
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
        hash.add(bucket.slices.size());
        for (const ShardSlice& slice : bucket.slices) {
            hash.add(slice.parameter);
            hash.add(slice.rank);
            hash.add(slice.start);
            hash.add(slice.count);
        }
    }
    return hash.value();
}

} // namespace mp::shard
