// SPDX-License-Identifier: Apache-2.0
// quantize as Kokkos kernels: a team for each block, or for each block of elements of a matrix with one scale. The scale of a
// whole matrix is found by kernels of their own before and after, so that nobody waits for the device. Only the device knows
// whether a delayed scale is warm; if so, the one that looks for the amax ends at once.
#pragma once

#include "kernels/amax.hpp"
#include "kernels/array.hpp"
#include "kernels/exec.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::kernels {

// What a kernel is handed of a QuantizeOne: no more than it reads, part by part. (Handed the arrays whole, nvcc 13.0 makes a
// fifth more instructions of an element.)
struct QuantizeParts {
    explicit QuantizeParts(const QuantizeOne& one)
        : source(one.source.elements()), rows(one.source.rows), columns(one.source.columns),
          dtype(one.code_type()), codes(one.sink.codes.data), codes_transposed(one.sink.transposed),
          grid(one.grid()), scale_inv(one.sink.codes.scale_inv), policy(one.policy()),
          delayed(one.sink.tracking.delayed), delayed_amax(one.sink.tracking.amax),
          warm_up(one.sink.tracking.warm_up), amax(one.sink.codes.amax),
          stats(one.sink.tracking.stats), given_amax(one.sink.given_amax),
          rounding(one.sink.rounding) {}

    TensorRef source;
    int64_t rows, columns;
    DType dtype;
    void* codes;
    void* codes_transposed;
    ScaleGrid grid;
    void* scale_inv;
    numerics::ScalePolicy policy;
    numerics::DelayedState* delayed;
    float* delayed_amax;
    int32_t warm_up;
    float* amax;
    numerics::QuantStats* stats;
    const float* given_amax;
    numerics::Rounding rounding;
};

// Where the amax of a whole matrix waits for the kernels that read it: where it is asked for, or where its
// scale will be.
inline float* amax_place(const QuantizeParts& op) {
    return op.amax != nullptr ? op.amax : static_cast<float*>(op.scale_inv);
}

// The only scale of a matrix, computed by every team anew. MS-AMP's is stored before the teams start, since it
// may be the previous one.
struct MatrixScale {
    QuantizeParts op;
    const float* amax;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION bool uses_delayed_scale() const {
        return DelayedWarmth{op.delayed, op.warm_up}.is_warm();
    }
    [[nodiscard]] KOKKOS_INLINE_FUNCTION numerics::BlockScale find() const {
        if (uses_delayed_scale()) {
            return {op.delayed->multiply, 1.0F / op.delayed->multiply};
        }
        const float from =
            op.delayed != nullptr
                ? 1.0F / op.delayed->multiply
                : numerics::previous_scale(op.policy.rule, op.grid.dtype, op.scale_inv, 0);
        const float chosen = numerics::given_magnitude(amax);
        return numerics::block_scale(op.policy, chosen, from, chosen);
    }
    [[nodiscard]] KOKKOS_INLINE_FUNCTION float multiply() const {
        if (op.policy.rule == numerics::ScaleRule::msamp && !uses_delayed_scale()) {
            return 1.0F / numerics::load_as_float(op.grid.dtype, op.scale_inv, 0);
        }
        return find().multiply;
    }
    // Stores it.
    KOKKOS_INLINE_FUNCTION void operator()(int64_t) const {
        numerics::store_from_float(op.grid.dtype, op.scale_inv, 0, find().scale_inv, true);
    }
};

template <class Exec> struct QuantizeTeams {
    // Of a matrix with one scale.
    static constexpr int64_t kPiece = 4096;
    struct Shared {
        float multiply;
        uint32_t largest;
        unsigned long long counts[4];
    };
    static constexpr std::size_t kScratch = sizeof(Shared);

    static constexpr int kThreads = 256;
    static constexpr unsigned kTeams = 3; // else it is by chance 78 or 93 registers, for 3 or 2

    MatrixScale scale; // with the operation
    numerics::SrKey key;
    bool has_one_scale;
    bool gathers_amax; // into scale.op.amax, where it may not be yet

    // The team's elements: the i-th is (row + i / width, column + i % width).
    struct Region {
        int64_t row, column, width, count;
    };

    static constexpr int kEach = 4;

    [[nodiscard]] KOKKOS_INLINE_FUNCTION Region region_of(int64_t team) const {
        if (has_one_scale) {
            const int64_t first = team * kPiece;
            const int64_t left = scale.op.source.count - first;
            return {0, first, scale.op.source.count, left < kPiece ? left : kPiece};
        }
        const int64_t across = scale.op.grid.columns(scale.op.columns);
        const int64_t row = team / across * scale.op.grid.block_rows;
        const int64_t column = team % across * scale.op.grid.block_columns;
        const int64_t rows_left = scale.op.rows - row;
        const int64_t left = scale.op.columns - column;
        const int64_t height = scale.op.grid.block_rows;
        const int64_t width = scale.op.grid.block_columns;
        const int64_t rows = height == 0 || height > rows_left ? rows_left : height;
        const int64_t columns = width == 0 || width > left ? left : width;
        return {row, column, columns, rows * columns};
    }

    // Most regions are of one row, and a division takes longer than all else.
    [[nodiscard]] KOKKOS_INLINE_FUNCTION int64_t element_of(const Region& region, int64_t i) const {
        if (region.count <= region.width) {
            return region.row * scale.op.columns + region.column + i;
        }
        return (region.row + i / region.width) * scale.op.columns + region.column +
               i % region.width;
    }

    template <DType kTo>
    KOKKOS_INLINE_FUNCTION uint32_t code_of(int64_t element, float x, float multiply,
                                            numerics::QuantStats& stats) const {
        uint32_t code = 0;
        if (scale.op.rounding.stochastic) {
            const uint32_t bits = numerics::sr_bits32_at(
                key, numerics::Purpose::cast,
                static_cast<uint64_t>(scale.op.rounding.first_element + element));
            code = numerics::quantize_element_sr<kTo>(x, multiply, bits);
        } else {
            code = numerics::quantize_element<numerics::Codec<kTo>>(x, multiply);
        }
        numerics::count_element(stats, kTo, x, multiply, code);
        return code;
    }

    // x are the tile's elements of the region.
    template <DType kTo>
    KOKKOS_INLINE_FUNCTION void quantize_tile(const Region& region, const Tile<kEach>& tile,
                                              const float (&x)[kEach], float multiply,
                                              numerics::QuantStats& stats) const {
        using Word = typename numerics::Codec<kTo>::storage;
        const auto count = static_cast<std::size_t>(scale.op.source.count);
        const Words<Word> codes(static_cast<Word*>(scale.op.codes), count);
        const Words<Word> transposed(static_cast<Word*>(scale.op.codes_transposed), count);
        tile.for_each([&](int j, int64_t i) {
            const int64_t element = element_of(region, i);
            const auto code = static_cast<Word>(code_of<kTo>(element, x[j], multiply, stats));
            if (scale.op.codes != nullptr) {
                codes(element) = code;
            }
            if (scale.op.codes_transposed != nullptr) {
                transposed(element % scale.op.columns * scale.op.rows +
                           element / scale.op.columns) = code;
            }
        });
    }

    // The types whose codes fill a word each.
    KOKKOS_INLINE_FUNCTION void quantize_words(const TeamOf<Exec>& team, const Region& region,
                                               float multiply, numerics::QuantStats& stats) const {
        const int64_t stride = team.team_size();
        for (int64_t i = team.team_rank(); i < region.count; i += kEach * stride) {
            const Tile<kEach> tile{i, stride, region.count};
            float x[kEach] = {};
            visit_array(scale.op.source, [&](const auto& source) {
                tile.for_each([&](int j, int64_t at) { x[j] = source(element_of(region, at)); });
            });
            visit_floating(scale.op.dtype, [&](auto type) MP_INLINED {
                if constexpr (is_code(type.value)) {
                    quantize_tile<type.value>(region, tile, x, multiply, stats);
                }
            });
        }
    }

    // A byte of two codes is written by one thread; supports() sees to it that both are in the region.
    template <DType kTo>
    KOKKOS_INLINE_FUNCTION void quantize_pairs(const TeamOf<Exec>& team, const Region& region,
                                               float multiply, numerics::QuantStats& stats) const {
        const int64_t count = scale.op.source.count;
        const Words<uint8_t> codes(static_cast<uint8_t*>(scale.op.codes),
                                   static_cast<std::size_t>((count + 1) / 2));
        visit_array(scale.op.source, [&](const auto& source) {
            for (int64_t i = 2 * team.team_rank(); i < region.count; i += 2 * team.team_size()) {
                const int64_t element = element_of(region, i);
                uint32_t pair = code_of<kTo>(element, source(element), multiply, stats);
                if (element + 1 < count) {
                    pair |= code_of<kTo>(element + 1, source(element + 1), multiply, stats) << 4;
                } else {
                    pair |= codes(element / 2) & 0xf0U;
                }
                codes(element / 2) = static_cast<uint8_t>(pair);
            }
        });
    }

    KOKKOS_INLINE_FUNCTION void find_scale(const TeamOf<Exec>& team, const Region& region,
                                           Shared& shared) const {
        uint32_t largest = 0;
        if (!has_one_scale) {
            visit_array(scale.op.source, [&](const auto& source) {
                for (int64_t i = team.team_rank(); i < region.count; i += team.team_size()) {
                    largest = larger_magnitude(largest, source(element_of(region, i)));
                }
            });
        }
        Kokkos::atomic_max(&shared.largest, largest);
        team.team_barrier();
        if (team.team_rank() != 0) {
            return;
        }
        if (has_one_scale) {
            shared.multiply = scale.multiply();
            return;
        }
        const int64_t index = team.league_rank();
        const bool is_nvfp4 = scale.op.policy.rule == numerics::ScaleRule::nvfp4;
        const float previous = numerics::previous_scale(scale.op.policy.rule, scale.op.grid.dtype,
                                                        scale.op.scale_inv, index);
        const numerics::BlockScale found =
            numerics::block_scale(scale.op.policy, numerics::float_from_bits(shared.largest),
                                  previous, is_nvfp4 ? *scale.op.amax : 0.0F);
        shared.multiply = found.multiply;
        numerics::store_from_float(scale.op.grid.dtype, scale.op.scale_inv, index, found.scale_inv,
                                   true);
    }

    KOKKOS_INLINE_FUNCTION void add_stats(const TeamOf<Exec>& team,
                                          const numerics::QuantStats& mine, Shared& shared) const {
        Kokkos::atomic_max(&shared.largest, mine.amax_bits);
        if (scale.op.stats != nullptr) {
            const int64_t counts[4] = {mine.elements, mine.saturated, mine.underflowed,
                                       mine.non_finite};
            MP_HD_UNROLL
            for (int i = 0; i < 4; ++i) {
                Kokkos::atomic_add(&shared.counts[i], static_cast<unsigned long long>(counts[i]));
            }
        }
        team.team_barrier();
        if (team.team_rank() != 0) {
            return;
        }
        if (gathers_amax) {
            Kokkos::atomic_max(reinterpret_cast<uint32_t*>(scale.op.amax), shared.largest);
        }
        if (scale.op.delayed_amax != nullptr) {
            Kokkos::atomic_max(reinterpret_cast<uint32_t*>(scale.op.delayed_amax), shared.largest);
        }
        if (scale.op.stats != nullptr) {
            int64_t* to[4] = {&scale.op.stats->elements, &scale.op.stats->saturated,
                              &scale.op.stats->underflowed, &scale.op.stats->non_finite};
            MP_HD_UNROLL
            for (int i = 0; i < 4; ++i) {
                Kokkos::atomic_add(to[i], static_cast<int64_t>(shared.counts[i]));
            }
            Kokkos::atomic_max(&scale.op.stats->amax_bits, shared.largest);
        }
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto& shared = *static_cast<Shared*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        if (team.team_rank() == 0) {
            shared.largest = 0;
            for (unsigned long long& count : shared.counts) {
                count = 0;
            }
        }
        team.team_barrier();
        const Region region = region_of(team.league_rank());
        find_scale(team, region, shared);
        team.team_barrier();
        numerics::QuantStats mine;
        if (is_packed(scale.op.dtype)) {
            visit_dtype(scale.op.dtype, [&](auto type) MP_INLINED {
                if constexpr (is_packed(type.value)) {
                    quantize_pairs<type.value>(team, region, shared.multiply, mine);
                }
            });
        } else {
            quantize_words(team, region, shared.multiply, mine);
        }
        add_stats(team, mine, shared);
    }
};

template <class Exec> void quantize_one(const Exec& exec, const QuantizeParts& op) {
    using Teams = QuantizeTeams<Exec>;
    const bool is_one = op.grid.is_one();
    const bool may_follow_amax =
        is_one && op.given_amax == nullptr && (op.delayed == nullptr || op.warm_up > 0);
    const bool is_nvfp4 = op.policy.rule == numerics::ScaleRule::nvfp4;
    const MatrixScale scale{op, op.given_amax != nullptr ? op.given_amax : amax_place(op)};
    const bool finds_amax = may_follow_amax || is_nvfp4;
    const bool is_given = op.given_amax != nullptr; // then NVFP4's is that of the one number
    if (finds_amax && (op.source.count > 0 || is_given)) {
        AmaxDesc find{};
        find.source =
            is_given ? TensorRef{const_cast<float*>(op.given_amax), 1, DType::fp32} : op.source;
        find.result = amax_place(op);
        amax(exec, find, {op.delayed, op.warm_up});
    } else if (op.amax != nullptr || finds_amax) {
        for_each(exec, "mp::clear_amax", 1, ClearAmax{amax_place(op), nullptr});
    }
    const bool stores_first = op.policy.rule == numerics::ScaleRule::msamp;
    if (is_one && stores_first) {
        for_each(exec, "mp::quantize_scale", 1, scale);
    }
    const Teams teams{scale, op.rounding.key(), is_one,
                      op.amax != nullptr && (!finds_amax || op.delayed != nullptr)};
    const int64_t count =
        is_one ? divide_up(op.source.count, Teams::kPiece) : op.grid.count(op.rows, op.columns);
    const int64_t size = is_one || count == 0 ? Teams::kPiece : op.source.count / count;
    const int threads = size <= 64 ? 32 : (size < Teams::kPiece ? 128 : Teams::kThreads);
    for_each_team(exec, "mp::quantize", count, threads, Teams::kScratch, teams);
    if (is_one && !stores_first) {
        for_each(exec, "mp::quantize_scale", 1, scale);
    }
}

// A second grid takes a reading of its own: the device's cache may still have what the first one read.
template <class Exec> void quantize(const Exec& exec, const QuantizeDesc& op) {
    quantize_one(exec, QuantizeParts(op.first()));
    if (op.has_second()) {
        quantize_one(exec, QuantizeParts(op.second()));
    }
}

} // namespace mp::kernels
