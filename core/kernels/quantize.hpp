// SPDX-License-Identifier: Apache-2.0
// quantize as a Kokkos kernel on the host. Nothing depends on how the matrix is cut: maxima and integer sums
// have no order.
#pragma once

#include "kernels/amax.hpp"
#include "kernels/cast.hpp"
#include "kernels/exec.hpp"
#include "kernels/quantize_teams.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::kernels {

// One job has about so many elements.
inline constexpr int64_t kQuantizeJob = 32768;

inline bool has_one_scale(const ScaleGrid& grid) {
    return grid.block_rows == 0 && grid.block_columns == 0;
}

// The same operation on one long row, where neither blocks nor turned codes end with a row.
inline QuantizeDesc as_one_row(const QuantizeDesc& op) {
    QuantizeDesc line = op;
    const ScaleGrid& grid = op.grid;
    const bool ends_with_row =
        grid.block_rows != 1 || grid.block_columns == 0 || op.columns % grid.block_columns != 0;
    if (op.codes_transposed == nullptr && (has_one_scale(grid) || !ends_with_row)) {
        line.columns = op.rows * op.columns;
        line.rows = 1;
    }
    return line;
}

// The extent of one job.
struct QuantizeCut {
    int64_t rows;
    int64_t columns;
};

// Rows that belong together: of a block, or of a panel of turned codes.
inline int64_t quantize_band(const QuantizeDesc& op) {
    const int64_t height = has_one_scale(op.grid) ? 1 : op.grid.block_rows;
    if (height == 0) {
        return op.rows;
    }
    const bool fills_panel = op.codes_transposed == nullptr || height >= kQuantizePanel;
    return fills_panel ? height : kQuantizePanel / height * height;
}

inline QuantizeCut quantize_cut(const QuantizeDesc& op, int64_t threads) {
    const int64_t band = quantize_band(op);
    const int64_t width = op.grid.block_columns;
    const bool splits_columns = has_one_scale(op.grid) || width > 0;
    QuantizeCut cut = {band, op.columns};
    // A piece of one row may be of any length; of several rows memory gives long pieces faster.
    const int64_t most = band == 1 ? kQuantizeJob : 4096;
    if (splits_columns && op.columns > most) {
        const int64_t unit = width > 0 ? width : 1;
        cut.columns = most > unit ? most / unit * unit : unit;
    } else if (splits_columns && band >= op.rows && threads > 1 && width > 0) {
        // Few rows of blocks: every thread gets some columns, in whole lines where it can be.
        const int64_t unit = width % 64 == 0 ? width : width * 64;
        cut.columns = divide_up(divide_up(op.columns, threads), unit) * unit;
    } else {
        const int64_t bands = kQuantizeJob / (band * (op.columns > 0 ? op.columns : 1));
        cut.rows = band * (bands > 1 ? bands : 1);
    }
    return cut;
}

// Codes that share a byte belong to one job.
inline QuantizeCut keep_pairs(const QuantizeDesc& op, QuantizeCut cut) {
    if (op.dtype != DType::fp4_e2m1) {
        return cut;
    }
    if (op.columns % 2 != 0 || cut.columns % 2 != 0) {
        cut.columns = op.columns;
    }
    if (op.columns % 2 != 0 && cut.rows < op.rows) {
        cut.rows += cut.rows % 2 == 0 ? 0 : cut.rows;
    }
    return cut;
}

inline void add_stats(const numerics::QuantStats& from, numerics::QuantStats& to) {
    Kokkos::atomic_max(&to.amax_bits, from.amax_bits);
    if (from.elements != 0) {
        Kokkos::atomic_add(&to.elements, from.elements);
        Kokkos::atomic_add(&to.saturated, from.saturated);
        Kokkos::atomic_add(&to.underflowed, from.underflowed);
        Kokkos::atomic_add(&to.non_finite, from.non_finite);
    }
}

struct QuantizeJobs {
    QuantizeJob whole;
    QuantizeCut cut;
    int64_t jobs_in_row;
    TableOps ops;
    numerics::QuantStats* stats;
    // Where a first pass has read everything, the second begins with what that read last: it is still in the
    // cache.
    bool backwards;
    int64_t count;

    void operator()(int64_t number) const {
        const QuantizeDesc& op = *whole.op;
        const int64_t i = backwards ? count - 1 - number : number;
        QuantizeJob job = whole;
        job.first_row = i / jobs_in_row * cut.rows;
        job.first_column = i % jobs_in_row * cut.columns;
        job.rows = op.rows - job.first_row < cut.rows ? op.rows - job.first_row : cut.rows;
        const int64_t left = op.columns - job.first_column;
        job.columns = left < cut.columns ? left : cut.columns;
        numerics::QuantStats here;
        ops.table->quantize(job, here);
        add_stats(here, *stats);
    }
};

template <class Exec> uint32_t largest_pattern(const Exec& exec, TableOps ops, TensorRef source) {
    uint32_t largest = 0;
    for_each(exec, "mp::amax", divide_up(source.count, kChunkElements),
             AmaxChunks{source, ops, &largest});
    return largest;
}

inline bool follows_slot(const QuantizeDesc& op) {
    return op.slot != nullptr && op.slot->updates >= op.warm_up;
}

// The scale of an operation that has one for the whole tensor.
inline numerics::BlockScale tensor_scale(const QuantizeDesc& op, float amax) {
    if (follows_slot(op)) {
        return {op.slot->multiply, 1.0F / op.slot->multiply};
    }
    const float previous = op.slot != nullptr
                               ? 1.0F / op.slot->multiply
                               : numerics::load_as_float(op.grid.dtype, op.scale_inv, 0);
    return numerics::block_scale(op.policy, amax, previous, amax);
}

// Without elements blocks have scales all the same.
inline void scale_nothing(const QuantizeDesc& op) {
    for (int64_t i = 0; i < op.grid.count(op.rows, op.columns); ++i) {
        const float previous = numerics::load_as_float(op.grid.dtype, op.scale_inv, i);
        const numerics::BlockScale scale =
            has_one_scale(op.grid) ? tensor_scale(op, 0.0F)
                                   : numerics::block_scale(op.policy, 0.0F, previous, 0.0F);
        numerics::store_from_float(op.grid.dtype, op.scale_inv, i, scale.scale_inv, true);
    }
}

inline void finish_quantize(const QuantizeDesc& op, const numerics::QuantStats& found) {
    const float amax = numerics::float_from_bits(found.amax_bits);
    if (op.amax != nullptr) {
        *op.amax = amax;
    }
    if (op.slot != nullptr) {
        op.slot->amax = numerics::detail::larger_amax(op.slot->amax, amax);
    }
    if (op.stats != nullptr) {
        numerics::QuantStats& to = *op.stats;
        to.elements += found.elements;
        to.saturated += found.saturated;
        to.underflowed += found.underflowed;
        to.non_finite += found.non_finite;
        to.amax_bits = to.amax_bits > found.amax_bits ? to.amax_bits : found.amax_bits;
    }
}

template <class Exec>
void quantize_on_host(const Exec& exec, TableOps ops, const QuantizeDesc& op) {
    numerics::QuantStats found;
    if (op.source.count == 0) {
        scale_nothing(op);
        finish_quantize(op, found);
        return;
    }
    const QuantizeDesc line = as_one_row(op);
    QuantizeJob whole{};
    whole.op = &line;
    whole.counts = op.stats != nullptr;
    whole.stream = op.source.count * dtype_bits(op.dtype) / 8 >= kStreamBytes;
    const bool is_one = has_one_scale(op.grid);
    if ((is_one && !follows_slot(op)) || op.policy.rule == numerics::ScaleRule::nvfp4) {
        found.amax_bits = largest_pattern(exec, ops, op.source);
        whole.is_finite = found.amax_bits < numerics::kFloatInfinity;
        whole.tensor_amax = numerics::float_from_bits(found.amax_bits);
    }
    numerics::BlockScale scale;
    if (is_one) {
        scale = tensor_scale(op, whole.tensor_amax);
        numerics::store_from_float(op.grid.dtype, op.scale_inv, 0, scale.scale_inv, true);
        whole.multiply = &scale.multiply;
        // A scale that is NaN makes codes of its own.
        whole.is_finite = whole.is_finite && !numerics::is_nan(scale.multiply);
    }
    const QuantizeCut cut = keep_pairs(line, quantize_cut(line, exec.concurrency()));
    const int64_t jobs_in_row = divide_up(line.columns, cut.columns);
    const int64_t jobs = divide_up(line.rows, cut.rows) * jobs_in_row;
    for_each(exec, "mp::quantize", jobs,
             QuantizeJobs{whole, cut, jobs_in_row, ops, &found, found.amax_bits != 0, jobs});
    finish_quantize(op, found);
}

template <class Exec, class Ops>
void quantize(const Exec& exec, const Ops& ops, const QuantizeDesc& op) {
    if constexpr (kIsHost<Exec>) {
        quantize_on_host(exec, ops, op);
    } else {
        quantize_on_device(exec, op);
    }
}

} // namespace mp::kernels
