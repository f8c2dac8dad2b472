// SPDX-License-Identifier: Apache-2.0
#include "shard/plan.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "device/ops.hpp"
#include "dtype/divide.hpp"
#include "shard/greedy.hpp"
#include "status/status.hpp"
#include "system/fnv.hpp"

namespace mp::shard {

void check_shard_count(int32_t ranks) {
    constexpr int32_t kMost = 1 << 20;
    if (ranks < 1 || ranks > kMost) {
        fail(Code::invalid_argument, "shard plan: %d ranks; there must be 1 to %d", ranks, kMost);
    }
}

namespace {

// So that an element's number times the ranks stays within 64 bits.
constexpr int64_t kLargestTotal = int64_t{1} << 42;

void check(const ShardOptions& options, const ShardSizes& sizes) {
    check_shard_count(options.ranks);
    if (options.bucket_elements < 1) {
        fail(Code::invalid_argument,
             "shard plan: buckets of %lld elements; there must be at least 1",
             static_cast<long long>(options.bucket_elements));
    }
    int64_t total = 0;
    for (const int64_t count : sizes.counts) {
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

using Visit = std::function<void(const ShardSlice&)>;

// A chunk of a parameter, which nothing parts.
[[nodiscard]] int64_t chunk_of(const ShardSizes& sizes, std::size_t parameter) {
    return sizes.units.empty() ? kChunkElements : round_up(kChunkElements, sizes.units[parameter]);
}

// Chunks go to the rank in whose equal run of the bucket they begin. What one rank gets of a parameter is one slice.
void cut_flat(std::span<const int32_t> parameters, const ShardSizes& sizes, int32_t ranks,
              const Visit& visit) {
    int64_t total = 0;
    for (const int32_t parameter : parameters) {
        total += sizes.counts[static_cast<std::size_t>(parameter)];
    }
    if (total == 0) {
        return;
    }
    int64_t position = 0;
    for (const int32_t parameter : parameters) {
        const int64_t count = sizes.counts[static_cast<std::size_t>(parameter)];
        const int64_t chunk = chunk_of(sizes, static_cast<std::size_t>(parameter));
        for (int64_t start = 0; start < count;) {
            const int64_t rank = position * ranks / total;
            const int64_t next = divide_up((rank + 1) * total, ranks); // where the next run begins
            const int64_t here = std::min(divide_up(next - position, chunk) * chunk, count - start);
            visit({parameter, static_cast<int32_t>(rank), start, here});
            position += here;
            start += here;
        }
    }
}

// Each parameter begins at another rank, so that small ones do not all go to the first.
void cut_each(std::span<const int32_t> parameters, const ShardSizes& sizes, int32_t ranks,
              const Visit& visit) {
    for (const int32_t parameter : parameters) {
        const int64_t count = sizes.counts[static_cast<std::size_t>(parameter)];
        const int64_t size = chunk_of(sizes, static_cast<std::size_t>(parameter));
        const int64_t chunks = divide_up(count, size);
        for (int64_t chunk = 0; chunk < chunks;) {
            const int64_t run = chunk * ranks / chunks;
            const int64_t next = divide_up((run + 1) * chunks, ranks);
            const int64_t start = chunk * size;
            visit({parameter, static_cast<int32_t>((run + parameter) % ranks), start,
                   std::min((next - chunk) * size, count - start)});
            chunk = next;
        }
    }
}

void cut(const ShardOptions& options, std::span<const int32_t> parameters, const ShardSizes& sizes,
         std::span<const int32_t> owners, const Visit& visit) {
    switch (options.kind) {
    case ShardKind::flat:
        cut_flat(parameters, sizes, options.ranks, visit);
        break;
    case ShardKind::per_parameter:
        cut_each(parameters, sizes, options.ranks, visit);
        break;
    case ShardKind::greedy:
        for (const int32_t parameter : parameters) {
            const auto i = static_cast<std::size_t>(parameter);
            if (sizes.counts[i] > 0) {
                visit({parameter, owners[i], 0, sizes.counts[i]});
            }
        }
        break;
    }
}

// The parameters of each bucket.
std::vector<ShardBucket> fill_buckets(int64_t bucket_elements, const ShardSizes& sizes) {
    const std::vector<int64_t>& counts = sizes.counts;
    const std::vector<int32_t>& kinds = sizes.kinds;
    struct Open {
        std::size_t bucket;
        int64_t filled;
    };
    std::vector<ShardBucket> buckets;
    std::map<int32_t, Open> open; // by kind
    for (std::size_t i = counts.size(); i-- > 0;) {
        const auto [found, is_first] = open.try_emplace(kinds.empty() ? 0 : kinds[i]);
        Open& bucket = found->second;
        if (is_first || bucket.filled >= bucket_elements) {
            bucket = {buckets.size(), 0};
            buckets.emplace_back();
        }
        buckets[bucket.bucket].parameters.push_back(static_cast<int32_t>(i));
        bucket.filled += counts[i];
    }
    return buckets;
}

std::vector<int32_t> owners_of(const ShardOptions& options, std::span<const int64_t> counts) {
    return options.kind == ShardKind::greedy ? assign_greedily(counts, options.ranks).owner
                                             : std::vector<int32_t>();
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

void visit_slices(const ShardOptions& options, const ShardSizes& sizes, const Visit& visit) {
    check(options, sizes);
    const std::vector<int32_t> owners = owners_of(options, sizes.counts);
    for (const ShardBucket& bucket : fill_buckets(options.bucket_elements, sizes)) {
        cut(options, bucket.parameters, sizes, owners, visit);
    }
}

ShardPlan::ShardPlan(const ShardOptions& options, const ShardSizes& sizes)
    : options_(options), bucket_of_(sizes.counts.size()), by_parameter_(sizes.counts.size()) {
    check(options, sizes);
    const std::vector<int32_t> owners = owners_of(options, sizes.counts);
    buckets_ = fill_buckets(options_.bucket_elements, sizes);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        for (const int32_t parameter : buckets_[i].parameters) {
            bucket_of_[static_cast<std::size_t>(parameter)] = static_cast<int32_t>(i);
        }
        cut_bucket(buckets_[i], sizes, owners);
    }
}

void ShardPlan::cut_bucket(ShardBucket& bucket, const ShardSizes& sizes,
                           std::span<const int32_t> owners) {
    bucket.rank_counts.assign(static_cast<std::size_t>(options_.ranks), 0);
    cut(options_, bucket.parameters, sizes, owners, [&](const ShardSlice& slice) {
        bucket.slices.push_back(slice);
        by_parameter_[static_cast<std::size_t>(slice.parameter)].push_back(slice);
        bucket.rank_counts[static_cast<std::size_t>(slice.rank)] += slice.count;
    });
    std::stable_sort(bucket.slices.begin(), bucket.slices.end(),
                     [](const ShardSlice& a, const ShardSlice& b) { return a.rank < b.rank; });
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
