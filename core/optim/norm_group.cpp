// SPDX-License-Identifier: Apache-2.0
#include "optim/norm_group.hpp"

#include <cmath>

#include "device/ops.hpp"
#include "dtype/divide.hpp"

namespace mp::optim {

void NormGroup::check_counted(const Parameters& parameters) const {
    for (const Parameter& p : parameters) {
        if (p.counts_elsewhere && !exists()) {
            fail(Code::bad_state,
                 "optimizer: '%s' was added with MP_PARAM_NORM_ELSEWHERE, but there are no other "
                 "ranks to count it; see mp_optimizer_set_norm_comm",
                 p.name.c_str());
        }
    }
}

std::vector<NormGroup::Message> NormGroup::exchange(const Message& own) const {
    const auto ranks = static_cast<std::size_t>(comm_->size());
    const std::vector<int64_t> bytes(ranks, sizeof own);
    std::vector<int64_t> offsets(ranks + 1);
    for (std::size_t i = 0; i <= ranks; ++i) {
        offsets[i] = static_cast<int64_t>(i * sizeof own);
    }
    std::vector<Message> all(ranks);
    comm::CallOptions options;
    options.site = "norm over other parameters";
    check(comm_->run(comm::AllGather{&own, sizeof own, all.data(), bytes.data(), offsets.data()},
                     options));
    return all;
}

void NormGroup::decline() const { (void)exchange({-1.0, 0}); }

NormGroup::Message NormGroup::message(Stream& stream, const PlacedSums& own,
                                      const std::vector<bool>& counts_elsewhere, uint64_t guard) {
    const std::vector<double> chunks = own.read(stream);
    Message mine = {0.0, guard};
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        if (!counts_elsewhere[i] || !std::isfinite(chunks[i])) {
            mine.sum += chunks[i];
        }
    }
    return mine;
}

PlacedSums NormGroup::sums(Stream& stream, const Message& mine) const {
    const std::vector<Message> all = exchange(mine);
    std::vector<double> sums;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].sum < 0.0) {
            fail(Code::peer_error,
                 "optimizer: rank %zu of mp_optimizer_set_norm_comm could not go on; no rank "
                 "changed anything. Its own message says why",
                 rank);
        }
        sums.push_back(all[rank].sum);
    }
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].guard != all[0].guard) {
            fail(Code::rank_mismatch,
                 "optimizer: the guard, or the loss that it watches, differs between the ranks 0 "
                 "and %zu of mp_optimizer_set_norm_comm; give all the same (mp_optimizer_set_loss)",
                 rank);
        }
    }
    PlacedSums placed;
    placed.memory = std::make_unique<Scratch>(stream, sums.size() * sizeof(double));
    placed.sums = static_cast<double*>(placed.memory->data());
    placed.count = static_cast<int64_t>(sums.size());
    stream.copy(placed.sums, sums.data(), sums.size() * sizeof(double), CopyKind::host_to_device);
    return placed;
}

std::vector<bool> chunks_counted_elsewhere(const Parameters& parameters,
                                           const std::vector<int32_t>& enabled) {
    std::vector<bool> chunks;
    for (const int32_t i : enabled) {
        const Parameter& p = parameters[i];
        const int64_t count = divide_up(p.param->count(), kChunkElements);
        chunks.insert(chunks.end(), static_cast<std::size_t>(count), p.counts_elsewhere);
    }
    return chunks;
}

} // namespace mp::optim
