// SPDX-License-Identifier: Apache-2.0
// Nothing depends on how the matrix is cut: maxima and integer sums have no order.
#include <algorithm>

#include "host/ops/candidates.hpp"
#include "host/resources/atomic_max.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::backends::host {

namespace {

// One job has about so many elements.
constexpr int64_t kQuantizeJob = 32768;

bool has_one_scale(const ScaleGrid& grid) {
    return grid.block_rows == 0 && grid.block_columns == 0;
}

// The same operation on one long row, where neither blocks nor turned codes end with a row.
QuantizeDesc as_one_row(const QuantizeDesc& op) {
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
int64_t quantize_band(const QuantizeDesc& op) {
    const int64_t height = has_one_scale(op.grid) ? 1 : op.grid.block_rows;
    if (height == 0) {
        return op.rows;
    }
    const bool fills_panel = op.codes_transposed == nullptr || height >= kQuantizePanel;
    return fills_panel ? height : kQuantizePanel / height * height;
}

QuantizeCut quantize_cut(const QuantizeDesc& op, int64_t threads) {
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
QuantizeCut keep_pairs(const QuantizeDesc& op, QuantizeCut cut) {
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

void add_stats(const numerics::QuantStats& from, numerics::QuantStats& to) {
    raise(to.amax_bits, from.amax_bits);
    if (from.elements != 0) {
        __atomic_fetch_add(&to.elements, from.elements, __ATOMIC_RELAXED);
        __atomic_fetch_add(&to.saturated, from.saturated, __ATOMIC_RELAXED);
        __atomic_fetch_add(&to.underflowed, from.underflowed, __ATOMIC_RELAXED);
        __atomic_fetch_add(&to.non_finite, from.non_finite, __ATOMIC_RELAXED);
    }
}

QuantizeJob job_at(const QuantizeJob& whole, const QuantizeCut& cut, int64_t row, int64_t column) {
    QuantizeJob job = whole;
    job.first_row = row * cut.rows;
    job.first_column = column * cut.columns;
    job.rows = std::min(whole.op->rows - job.first_row, cut.rows);
    job.columns = std::min(whole.op->columns - job.first_column, cut.columns);
    return job;
}

bool follows_slot(const QuantizeDesc& op) {
    return op.slot != nullptr && op.slot->updates >= op.warm_up;
}

// The scale of an operation that has one for the whole tensor.
numerics::BlockScale tensor_scale(const QuantizeDesc& op, float amax) {
    if (follows_slot(op)) {
        return {op.slot->multiply, 1.0F / op.slot->multiply};
    }
    const float previous =
        op.slot != nullptr
            ? 1.0F / op.slot->multiply
            : numerics::previous_scale(op.policy.rule, op.grid.dtype, op.scale_inv, 0);
    const float chosen = op.given_amax != nullptr ? numerics::given_magnitude(op.given_amax) : amax;
    return numerics::block_scale(op.policy, chosen, previous, chosen);
}

// Without elements blocks have scales all the same.
void scale_nothing(const QuantizeDesc& op) {
    for (int64_t i = 0; i < op.grid.count(op.rows, op.columns); ++i) {
        const float previous =
            numerics::previous_scale(op.policy.rule, op.grid.dtype, op.scale_inv, i);
        const numerics::BlockScale scale =
            has_one_scale(op.grid) ? tensor_scale(op, 0.0F)
                                   : numerics::block_scale(op.policy, 0.0F, previous, 0.0F);
        numerics::store_from_float(op.grid.dtype, op.scale_inv, i, scale.scale_inv, true);
    }
}

void finish_quantize(const QuantizeDesc& op, const numerics::QuantStats& found) {
    const float amax = numerics::float_from_bits(found.amax_bits);
    if (op.amax != nullptr) {
        *op.amax = amax;
    }
    if (op.slot_amax != nullptr) {
        *op.slot_amax = numerics::detail::larger_amax(*op.slot_amax, amax);
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

Status quantize(const Resources& with, const QuantizeDesc& op) noexcept {
    numerics::QuantStats found;
    if (op.source.count == 0) {
        scale_nothing(op);
        finish_quantize(op, found);
        return {};
    }
    const bool is_one = has_one_scale(op.grid);
    ThreadScratch scratch;
    if (!is_one || op.codes_transposed != nullptr) {
        const Status status = scratch.take(with, kQuantizeScratch);
        if (!status.ok()) {
            return status;
        }
    }
    ThreadPool& threads = with.threads;
    const IsaTable& table = active_isa();
    const QuantizeDesc line = as_one_row(op);
    QuantizeJob whole{};
    whole.op = &line;
    whole.counts = op.stats != nullptr;
    whole.stream = op.source.count * dtype_bits(op.dtype) / 8 >= kStreamBytes;
    const bool reads_twice = (is_one && !follows_slot(op) && op.given_amax == nullptr) ||
                             op.policy.rule == numerics::ScaleRule::nvfp4;
    if (reads_twice) {
        found.amax_bits = largest_pattern(threads, op.source);
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
    const QuantizeCut cut = keep_pairs(line, quantize_cut(line, threads.threads()));
    const int64_t jobs_in_row = divide_up(line.columns, cut.columns);
    const int64_t jobs = divide_up(line.rows, cut.rows) * jobs_in_row;
    threads.for_each_on(jobs, [&](int64_t number, int32_t thread) {
        // The second reading begins with what the first read last: it is still in the cache.
        const int64_t i = reads_twice ? jobs - 1 - number : number;
        numerics::QuantStats here;
        QuantizeJob job = job_at(whole, cut, i / jobs_in_row, i % jobs_in_row);
        job.scratch = scratch.of(thread);
        table.quantize(job, here);
        add_stats(here, found);
    });
    finish_quantize(op, found);
    return {};
}

} // namespace

const Candidate kQuantize = kByThreads<quantize, QuantizeDesc>;

} // namespace mp::backends::host
