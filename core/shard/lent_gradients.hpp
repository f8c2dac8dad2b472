// SPDX-License-Identifier: Apache-2.0
// Where the slices of a bucket of gradients lie for ranks that read them in place: in the gradients themselves, or staged.
#pragma once

#include <memory>
#include <vector>

#include "comm/lent_sum.hpp"
#include "shard/plan.hpp"
#include "tensor/tensor.hpp"

namespace mp::shard {

// How slices are staged behind each other, by the rank that they go to.
struct StagedLayout {
    const std::vector<ShardSlice>* slices = nullptr;
    const std::vector<int64_t>* offsets = nullptr; // elements, by slice
    const std::vector<int64_t>* counts = nullptr;  // elements with gaps, by rank
};

// Whether all gradients have memory, and hold the numbers that would be staged.
[[nodiscard]] bool lie_as_staged(const std::vector<ShardSlice>& slices,
                                 const std::vector<std::shared_ptr<Tensor>>& gradients,
                                 DType staged);

// By contribution, null where it lies in the gradients.
[[nodiscard]] comm::LentSlots lent_slots(const StagedLayout& layout,
                                         const std::vector<std::unique_ptr<Scratch>>& contributions,
                                         DType staged,
                                         const std::vector<std::shared_ptr<Tensor>>& gradients);

// What goes to a rank.
[[nodiscard]] std::vector<comm::LentPiece> lent_pieces(const StagedLayout& layout, int32_t rank);

} // namespace mp::shard
