// SPDX-License-Identifier: Apache-2.0
#include "shard/lent_gradients.hpp"

#include <algorithm>

#include "comm/shares.hpp"
#include "tensor/slice.hpp"

namespace mp::shard {
namespace {

// fp32 has every number of the others.
bool keeps_numbers(DType from, DType to) {
    return from == to || (to == DType::fp32 && (from == DType::bf16 || from == DType::fp16));
}

} // namespace

bool lie_as_staged(const std::vector<ShardSlice>& slices,
                   const std::vector<std::shared_ptr<Tensor>>& gradients, DType staged) {
    return std::all_of(slices.begin(), slices.end(), [&](const ShardSlice& slice) {
        const Tensor& gradient = *gradients[static_cast<std::size_t>(slice.parameter)];
        return gradient.has_memory() && !gradient.format().is_quantized() &&
               keeps_numbers(gradient.dtype(), staged);
    });
}

comm::LentSlots lent_slots(const StagedLayout& layout,
                           const std::vector<std::unique_ptr<Scratch>>& contributions, DType staged,
                           const std::vector<std::shared_ptr<Tensor>>& gradients) {
    comm::LentSlots slots;
    for (const std::unique_ptr<Scratch>& contribution : contributions) {
        std::vector<comm::LentElements>& pieces = slots.emplace_back();
        for (std::size_t i = 0; i < layout.slices->size(); ++i) {
            const ShardSlice& slice = (*layout.slices)[i];
            if (contribution != nullptr) {
                const auto* base = static_cast<const char*>(contribution->data());
                pieces.push_back({base + bytes_of(staged, (*layout.offsets)[i]), staged});
                continue;
            }
            const Tensor& gradient = *gradients[static_cast<std::size_t>(slice.parameter)];
            pieces.push_back({slice_of(gradient, slice.start, slice.count).data, gradient.dtype()});
        }
    }
    return slots;
}

std::vector<comm::LentPiece> lent_pieces(const StagedLayout& layout, int32_t rank) {
    const auto to = static_cast<std::size_t>(rank);
    const int64_t begin = comm::sums_before(*layout.counts)[to];
    std::vector<comm::LentPiece> pieces;
    for (std::size_t i = 0; i < layout.slices->size(); ++i) {
        const int64_t first = (*layout.offsets)[i] - begin;
        const int64_t count = (*layout.slices)[i].count;
        if (first >= 0 && first < (*layout.counts)[to] && count > 0) {
            pieces.push_back({i, first, count});
        }
    }
    return pieces;
}

} // namespace mp::shard
