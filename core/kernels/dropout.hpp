// SPDX-License-Identifier: Apache-2.0
// dropout as a Kokkos kernel.
#pragma once

#include "kernels/array.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

// A team takes kPiece logical elements. First it makes their random bits, each block of them once, then it reads and writes the
// elements, neighbours by neighbouring threads.
template <class Exec> struct DropoutTeams {
    static constexpr int kThreads = 256;
    static constexpr unsigned kTeams = 4; // or its registers would leave room for two
    static constexpr int kEach = 8;       // elements of a block of random bits
    static constexpr int kPiece = kThreads * kEach;
    static constexpr std::size_t kScratch = kThreads * sizeof(numerics::Philox4x32);

    DropoutDesc op;
    numerics::SrKey key;
    float scale;

    // Logical elements before the first one that share its block.
    [[nodiscard]] KOKKOS_INLINE_FUNCTION int64_t into() const { return op.first_element % kEach; }

    KOKKOS_INLINE_FUNCTION void make_bits(const TeamOf<Exec>& team,
                                          numerics::Philox4x32* blocks) const {
        const int64_t first = op.first_element / kEach + team.league_rank() * int64_t{kThreads};
        for_each_in_team(team, kThreads, [&](int i) {
            blocks[i] = numerics::sr_block(key, numerics::Purpose::dropout,
                                           static_cast<uint64_t>(first + i));
        });
        team.team_barrier();
    }

    // `piece`: where the team's piece begins as an element of the array, or would begin.
    KOKKOS_INLINE_FUNCTION void drop(const Tile<kEach>& tile, int64_t piece,
                                     const numerics::Philox4x32* blocks) const {
        float x[kEach];
        load_tile(op.source, tile, x);
        tile.for_each([&](int j, int64_t i) {
            uint32_t bits = 0;
            if (op.drop_below != 0) {
                const auto at = static_cast<uint32_t>(i - piece);
                bits = (blocks[at / kEach].v[at % kEach / 2] >> (at % 2 * 16)) & 0xffffU;
            }
            x[j] = numerics::dropout_value(x[j], scale, bits, op.drop_below);
        });
        if (op.accumulate) {
            float old[kEach];
            load_tile(op.destination, tile, old);
            tile.for_each([&](int j, int64_t /*i*/) { x[j] = old[j] + x[j]; });
        }
        store_tile(op.destination, tile,
                   [&](const auto& to, int j, int64_t i) { to.store(i, x[j]); });
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto* blocks =
            static_cast<numerics::Philox4x32*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        if (op.drop_below != 0) {
            make_bits(team, blocks);
        }
        // The first piece begins where its block does, which may be before the array.
        const int64_t piece = team.league_rank() * int64_t{kPiece} - into();
        const int64_t count = op.destination.count;
        const int64_t end = piece + kPiece < count ? piece + kPiece : count;
        const int64_t size = team.team_size();
        for (int64_t i = (piece < 0 ? 0 : piece) + team.team_rank(); i < end; i += kEach * size) {
            drop({i, size, end}, piece, blocks);
        }
    }
};

template <class Exec> void dropout(const Exec& exec, const DropoutDesc& op) {
    using Teams = DropoutTeams<Exec>;
    const Teams teams{op, op.key(), numerics::dropout_scale(op.drop_below)};
    for_each_team(exec, "mp::dropout",
                  divide_up(op.destination.count + teams.into(), Teams::kPiece), Teams::kThreads,
                  Teams::kScratch, teams);
}

} // namespace mp::kernels
