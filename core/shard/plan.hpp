// SPDX-License-Identifier: Apache-2.0
// ShardPlan: which rank owns which elements of which parameter, and in which buckets they travel.
//
// A parameter is cut only at multiples of kChunkElements of its own elements, or of the next multiple of what cannot be parted
// of it. So blocks of codes stay whole, the norm's partial sums are those of one rank that holds everything, and no result
// depends on the number of ranks.
// Ranks may own nothing of a bucket, or nothing at all; exchanges are uneven, so nothing is padded.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dtype/divide.hpp"

namespace mp::shard {

enum class ShardKind : int32_t {
    flat = 0, // a bucket's chunks, one after another, in equal runs: ZeRO as DeepSpeed and Megatron
    per_parameter = 1, // each parameter's chunks in equal runs, as FSDP2
    greedy = 2,        // whole tensors, as MS-AMP: for states with one scale for the tensor
};

// Sums of slices lie this far apart, so that no block of a wire's format reaches from one into the next.
inline constexpr int64_t kSliceGap = 128;
[[nodiscard]] constexpr int64_t with_gap(int64_t count) { return round_up(count, kSliceGap); }

// Throws for more than there may be, so that nothing is made for them.
void check_shard_count(int32_t ranks);

struct ShardOptions {
    ShardKind kind = ShardKind::flat;
    int32_t ranks = 1;
    int64_t bucket_elements = int64_t{1} << 24; // a bucket is closed once it has so many
};

// What a plan is made of: of each parameter its elements; what may share a bucket, those of one kind; and how many elements stay
// together (rows of blocks), at least 1. Without kinds or units all have the same kind, and units of 1.
struct ShardSizes {
    std::vector<int64_t> counts;
    std::vector<int32_t> kinds;
    std::vector<int64_t> units;
};

// Elements start ... start + count - 1 of a parameter.
struct ShardSlice {
    int32_t parameter = 0;
    int32_t rank = 0;
    int64_t start = 0;
    int64_t count = 0;
};

// Whole parameters whose gradients travel together.
struct ShardBucket {
    std::vector<int32_t> parameters;  // as backward passes make their gradients: the last first
    std::vector<ShardSlice> slices;   // by rank, then in the order of `parameters`
    std::vector<int64_t> rank_counts; // elements, by rank

    [[nodiscard]] std::span<const ShardSlice> slices_of(int32_t rank) const;
    [[nodiscard]] int64_t count() const;
    // Where one of the bucket's parameters stands in `parameters`.
    [[nodiscard]] std::size_t place_of(int32_t parameter) const;
};

class ShardPlan {
  public:
    ShardPlan() = default;
    // Throws for sizes that are negative or beyond 2^42 in all.
    ShardPlan(const ShardOptions& options, const ShardSizes& sizes);

    [[nodiscard]] const std::vector<ShardBucket>& buckets() const noexcept { return buckets_; }
    [[nodiscard]] int32_t bucket_of(int32_t parameter) const {
        return bucket_of_[static_cast<std::size_t>(parameter)];
    }
    // A parameter's slices on all ranks, by start; they cover it exactly.
    [[nodiscard]] const std::vector<ShardSlice>& slices_of(int32_t parameter) const {
        return by_parameter_[static_cast<std::size_t>(parameter)];
    }
    // The slice that a rank owns of a parameter; a rank has one at most. count 0: none.
    [[nodiscard]] ShardSlice slice_on(int32_t parameter, int32_t rank) const;
    [[nodiscard]] int64_t elements_of(int32_t rank) const;
    [[nodiscard]] int32_t ranks() const noexcept { return options_.ranks; }
    [[nodiscard]] ShardKind kind() const noexcept { return options_.kind; }
    // Of everything above: ranks with different plans have different ones.
    [[nodiscard]] uint64_t hash() const noexcept;

  private:
    void cut_bucket(ShardBucket& bucket, const ShardSizes& sizes, std::span<const int32_t> owners);

    ShardOptions options_;
    std::vector<ShardBucket> buckets_;
    std::vector<int32_t> bucket_of_;
    std::vector<std::vector<ShardSlice>> by_parameter_;
};

// The same slices, one after another, none of which is kept: for plans of very many parameters.
void visit_slices(const ShardOptions& options, const ShardSizes& sizes,
                  const std::function<void(const ShardSlice&)>& visit);

} // namespace mp::shard
