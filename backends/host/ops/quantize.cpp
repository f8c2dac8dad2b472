// SPDX-License-Identifier: Apache-2.0
// Nothing depends on how the matrix is cut: maxima and integer sums have no order.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>

#include "host/ops/candidates.hpp"
#include "host/resources/atomic_max.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::backends::host {

namespace {

// One job has about so many elements.
constexpr int64_t kQuantizeJob = 32768;

// The same operation on one long row; none where blocks or transposed codes end with a row.
std::optional<QuantizeOne> as_one_row(const QuantizeOne& op) {
    const ScaleGrid& grid = op.grid();
    const bool ends_with_row = grid.block_rows != 1 || grid.block_columns == 0 ||
                               op.source.columns % grid.block_columns != 0;
    if (op.sink.transposed != nullptr || (ends_with_row && !grid.is_one())) {
        return std::nullopt;
    }
    QuantizeOne line = op;
    line.source.columns = op.source.rows * op.source.columns;
    line.source.rows = 1;
    return line;
}

// The extent of one job.
struct QuantizeCut {
    int64_t rows;
    int64_t columns;
};

// Rows that belong together: of a block, or of a panel of transposed codes.
int64_t quantize_band(const QuantizeOne& op) {
    const int64_t height = op.grid().is_one() ? 1 : op.grid().block_rows;
    if (height == 0) {
        return op.source.rows;
    }
    const bool fills_panel = op.sink.transposed == nullptr || height >= kQuantizePanel;
    return fills_panel ? height : kQuantizePanel / height * height;
}

QuantizeCut quantize_cut(const QuantizeOne& op, int64_t threads) {
    const int64_t band = quantize_band(op);
    const int64_t width = op.grid().block_columns;
    const bool splits_columns = op.grid().is_one() || width > 0;
    QuantizeCut cut = {band, op.source.columns};
    // A piece of one row may be of any length; of several rows memory gives long pieces faster.
    const int64_t most = band == 1 ? kQuantizeJob : 4096;
    if (splits_columns && op.source.columns > most) {
        const int64_t unit = width > 0 ? width : 1;
        cut.columns = most > unit ? most / unit * unit : unit;
    } else if (splits_columns && band >= op.source.rows && threads > 1 &&
               (width > 0 || op.sink.transposed != nullptr)) {
        // Few rows of blocks or of a panel: every thread gets some columns, in whole lines where it can be.
        const int64_t unit = width == 0 ? 64 : width % 64 == 0 ? width : width * 64;
        cut.columns = divide_up(divide_up(op.source.columns, threads), unit) * unit;
    } else {
        const int64_t bands =
            kQuantizeJob / (band * (op.source.columns > 0 ? op.source.columns : 1));
        cut.rows = band * (bands > 1 ? bands : 1);
    }
    return cut;
}

// Codes that share a byte belong to one job.
QuantizeCut keep_pairs(const QuantizeOne& op, QuantizeCut cut) {
    if (!is_packed(op.code_type())) {
        return cut;
    }
    if (op.source.columns % 2 != 0 || cut.columns % 2 != 0) {
        cut.columns = op.source.columns;
    }
    if (op.source.columns % 2 != 0 && cut.rows < op.source.rows) {
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
    job.rows = std::min(whole.op->source.rows - job.first_row, cut.rows);
    job.columns = std::min(whole.op->source.columns - job.first_column, cut.columns);
    return job;
}

bool uses_delayed_scale(const QuantizeOne& op) {
    return op.sink.tracking.delayed != nullptr &&
           op.sink.tracking.delayed->updates >= op.sink.tracking.warm_up;
}

// The scale of an operation that has one for the whole tensor.
numerics::BlockScale tensor_scale(const QuantizeOne& op, float amax) {
    if (uses_delayed_scale(op)) {
        return {op.sink.tracking.delayed->multiply, 1.0F / op.sink.tracking.delayed->multiply};
    }
    const float previous = op.sink.tracking.delayed != nullptr
                               ? 1.0F / op.sink.tracking.delayed->multiply
                               : numerics::previous_scale(op.policy().rule, op.grid().dtype,
                                                          op.sink.codes.scale_inv, 0);
    const float chosen =
        op.sink.given_amax != nullptr ? numerics::given_magnitude(op.sink.given_amax) : amax;
    return numerics::block_scale(op.policy(), chosen, previous, chosen);
}

// Without elements blocks have scales all the same.
void scale_nothing(const QuantizeOne& op) {
    for (int64_t i = 0; i < op.grid().count(op.source.rows, op.source.columns); ++i) {
        const float previous =
            numerics::previous_scale(op.policy().rule, op.grid().dtype, op.sink.codes.scale_inv, i);
        const numerics::BlockScale scale =
            op.grid().is_one() ? tensor_scale(op, 0.0F)
                               : numerics::block_scale(op.policy(), 0.0F, previous, 0.0F);
        numerics::store_from_float(op.grid().dtype, op.sink.codes.scale_inv, i, scale.scale_inv,
                                   true);
    }
}

bool is_nvfp4(const QuantizeOne& op) { return op.policy().rule == numerics::ScaleRule::nvfp4; }

// Whether the scales of its blocks are relative to an amax that it was given.
bool has_given_base(const QuantizeOne& op) { return is_nvfp4(op) && op.sink.given_amax != nullptr; }

// `second`: written in the same reading, or null.
void finish_quantize(const QuantizeOne& op, const QuantizeOne* second,
                     const numerics::QuantStats& found) {
    const float amax = numerics::float_from_bits(found.amax_bits);
    for (const QuantizeOne* one : {&op, second}) {
        if (one != nullptr && one->sink.codes.amax != nullptr) {
            *one->sink.codes.amax =
                has_given_base(*one) ? numerics::given_magnitude(one->sink.given_amax) : amax;
        }
    }
    const Tracking& tracking = op.sink.tracking;
    if (tracking.amax != nullptr) {
        *tracking.amax = numerics::detail::larger_amax(*tracking.amax, amax);
    }
    if (tracking.stats != nullptr) {
        numerics::QuantStats& to = *tracking.stats;
        to.elements += found.elements;
        to.saturated += found.saturated;
        to.underflowed += found.underflowed;
        to.non_finite += found.non_finite;
        to.amax_bits = to.amax_bits > found.amax_bits ? to.amax_bits : found.amax_bits;
    }
}

QuantizeJob whole_job(const QuantizeOne& op) {
    QuantizeJob job{};
    job.op = &op;
    job.counts = op.sink.tracking.stats != nullptr;
    job.stream = op.source.count() * dtype_bits(op.code_type()) / 8 >= kStreamBytes;
    return job;
}

// The amax of the whole matrix, in a reading of its own.
void find_tensor_amax(ThreadPool& threads, const QuantizeOne& op, QuantizeJob& whole,
                      numerics::QuantStats& found) {
    found.amax_bits = largest_pattern(threads, op.source.elements());
    whole.is_finite = found.amax_bits < numerics::kFloatInfinity;
    whole.tensor_amax = numerics::float_from_bits(found.amax_bits);
}

// Of a thread, behind its kQuantizeScratch bytes.
uint32_t* column_amaxes(const ThreadScratch& scratch, int32_t thread) {
    return reinterpret_cast<uint32_t*>(static_cast<char*>(scratch.of(thread)) + kQuantizeScratch);
}

// Each job of the cut, and within it each of the arrays that these jobs write, one after another.
void run_jobs(ThreadPool& threads, std::span<const QuantizeJob> wholes, const QuantizeCut& cut,
              const ThreadScratch& scratch, bool backwards, numerics::QuantStats& found) {
    const IsaTable& table = active_isa();
    const ArrayRef& source = wholes.front().op->source;
    const int64_t jobs_in_row = divide_up(source.columns, cut.columns);
    const int64_t jobs = divide_up(source.rows, cut.rows) * jobs_in_row;
    threads.for_each_on(jobs, [&](int64_t number, int32_t thread) {
        const int64_t i = backwards ? jobs - 1 - number : number;
        numerics::QuantStats here;
        for (const QuantizeJob& whole : wholes) {
            QuantizeJob job = job_at(whole, cut, i / jobs_in_row, i % jobs_in_row);
            job.scratch = scratch.of(thread);
            job.column_amaxes =
                whole.column_amaxes == nullptr ? nullptr : column_amaxes(scratch, thread);
            table.quantize(job, here);
        }
        add_stats(here, found);
    });
}

Status quantize_one(const Resources& with, const QuantizeOne& op) noexcept {
    numerics::QuantStats found;
    if (op.source.count() == 0) {
        scale_nothing(op);
        finish_quantize(op, nullptr, found);
        return {};
    }
    const bool is_one = op.grid().is_one();
    ThreadScratch scratch;
    if (!is_one || op.sink.transposed != nullptr) {
        const Status status = scratch.take(with, kQuantizeScratch);
        if (!status.ok()) {
            return status;
        }
    }
    const std::optional<QuantizeOne> one_row = as_one_row(op);
    const QuantizeOne& line = one_row.has_value() ? *one_row : op;
    QuantizeJob whole = whole_job(line);
    const bool reads_twice =
        ((is_one && !uses_delayed_scale(op)) || is_nvfp4(op)) && op.sink.given_amax == nullptr;
    if (reads_twice) {
        find_tensor_amax(with.threads, op, whole, found);
    } else if (has_given_base(op)) {
        whole.tensor_amax = numerics::given_magnitude(op.sink.given_amax);
    }
    numerics::BlockScale scale;
    if (is_one) {
        scale = tensor_scale(op, whole.tensor_amax);
        numerics::store_from_float(op.grid().dtype, op.sink.codes.scale_inv, 0, scale.scale_inv,
                                   true);
        whole.multiply = &scale.multiply;
        // A scale that is NaN makes codes of its own.
        whole.is_finite = whole.is_finite && !numerics::is_nan(scale.multiply);
    }
    const QuantizeCut cut = keep_pairs(line, quantize_cut(line, with.threads.threads()));
    // The second reading begins with what the first read last: it is still in the cache.
    run_jobs(with.threads, {&whole, 1}, cut, scratch, reads_twice, found);
    finish_quantize(op, nullptr, found);
    return {};
}

// ---- two grids in one reading -------------------------------------------------------------------

// Bytes of the source that one core's cache keeps until the second array is written.
constexpr int64_t kSharedTile = int64_t{256} << 10;

// Where blocks of both grids end; no rows: nowhere within a tile.
QuantizeCut shared_cut(const QuantizeOne& one, const QuantizeOne& other, int64_t threads) {
    const ScaleGrid& a = one.grid();
    const ScaleGrid& b = other.grid();
    const bool end =
        a.block_rows > 0 && a.block_columns > 0 && b.block_rows > 0 && b.block_columns > 0;
    if (!end) {
        return {0, 0};
    }
    const int64_t rows = std::lcm(quantize_band(one), quantize_band(other));
    const int64_t unit = std::lcm<int64_t>(a.block_columns, b.block_columns);
    const int64_t size = std::max<int64_t>(1, dtype_size(one.source.dtype()));
    const int64_t most = kSharedTile / size / std::max<int64_t>(1, rows); // columns of a tile
    if (most < unit) {
        return {0, 0};
    }
    QuantizeCut cut = {rows, most / unit * unit};
    const int64_t bands = divide_up(one.source.rows, rows);
    if (bands < threads) { // every thread gets some columns
        const int64_t each = divide_up(one.source.columns, divide_up(threads, bands));
        cut.columns = std::min(cut.columns, divide_up(each, unit) * unit);
    }
    return keep_pairs(one, keep_pairs(other, cut));
}

Status quantize_tiles(const Resources& with, const QuantizeOne& op, const QuantizeOne& second,
                      const QuantizeCut& cut) noexcept {
    ThreadScratch scratch;
    const Status status = scratch.take(with, kQuantizeScratch);
    if (!status.ok()) {
        return status;
    }
    numerics::QuantStats found;
    std::array wholes = {whole_job(op), whole_job(second)};
    if (is_nvfp4(op) || is_nvfp4(second)) {
        find_tensor_amax(with.threads, op, wholes[0], found);
        wholes[1].is_finite = wholes[0].is_finite;
        wholes[1].tensor_amax = wholes[0].tensor_amax;
    }
    run_jobs(with.threads, wholes, cut, scratch, false, found);
    finish_quantize(op, &second, found);
    return {};
}

// ---- a scale for each column --------------------------------------------------------------------

// Each thread keeps amaxes of so many at most.
constexpr int64_t kMostColumns = int64_t{1} << 18;
// A job has so many rows at least: the factors of its columns are made anew.
constexpr int64_t kColumnsRows = 64;

bool has_column_scales(const QuantizeOne& op) {
    return op.grid().block_rows == 0 && op.grid().block_columns == 1 &&
           op.sink.transposed == nullptr && op.policy().rule != numerics::ScaleRule::msamp &&
           !is_nvfp4(op) && op.source.columns <= kMostColumns;
}
bool has_rows_of_blocks(const QuantizeOne& op) { return op.grid().block_rows > 0 && !is_nvfp4(op); }

// The largest of what the threads found, in the first one's place.
uint32_t* join_amaxes(const ThreadScratch& scratch, int32_t threads, int64_t columns) {
    uint32_t* const amaxes = column_amaxes(scratch, 0);
    for (int32_t thread = 1; thread < threads; ++thread) {
        const uint32_t* const others = column_amaxes(scratch, thread);
        for (int64_t i = 0; i < columns; ++i) {
            amaxes[i] = std::max(amaxes[i], others[i]);
        }
    }
    return amaxes;
}

// Columns end with the matrix, so a first reading finds their amaxes. It writes `rows`, where blocks of rows are wanted, too;
// null: they are not.
Status quantize_columns(const Resources& with, const QuantizeOne* rows,
                        const QuantizeOne& columns) noexcept {
    const int64_t width = columns.source.columns;
    const std::size_t bytes =
        static_cast<std::size_t>(divide_up(width, kScaleVector) * kScaleVector) * sizeof(uint32_t);
    ThreadScratch scratch;
    const Status status = scratch.take(with, kQuantizeScratch + bytes);
    if (!status.ok()) {
        return status;
    }
    const int32_t threads = with.threads.threads();
    for (int32_t thread = 0; thread < threads; ++thread) {
        std::memset(column_amaxes(scratch, thread), 0, bytes);
    }
    const QuantizeCut cut =
        keep_pairs(columns, {std::max(kColumnsRows, kQuantizeJob / width), width});
    numerics::QuantStats found;
    QuantizeJob first = whole_job(rows != nullptr ? *rows : columns);
    first.column_amaxes = column_amaxes(scratch, 0);
    first.finds_columns_only = rows == nullptr;
    const QuantizeCut first_cut =
        rows != nullptr ? keep_pairs(*rows, quantize_cut(*rows, threads)) : cut;
    run_jobs(with.threads, {&first, 1}, first_cut, scratch, false, found);
    QuantizeJob second = whole_job(columns);
    second.known_amaxes = join_amaxes(scratch, threads, width);
    run_jobs(with.threads, {&second, 1}, cut, scratch, true, found);
    finish_quantize(columns, rows, found);
    return {};
}

// Every thread has some rows; fewer are cut into columns instead.
bool has_many_rows(const Resources& with, const QuantizeOne& op) {
    return op.source.rows >= kColumnsRows * with.threads.threads();
}

Status quantize_alone(const Resources& with, const QuantizeOne& op) noexcept {
    return has_column_scales(op) && has_many_rows(with, op) && op.source.count() > 0
               ? quantize_columns(with, nullptr, op)
               : quantize_one(with, op);
}

Status quantize_both(const Resources& with, const QuantizeOne& first,
                     const QuantizeOne& second) noexcept {
    const QuantizeCut cut = shared_cut(first, second, with.threads.threads());
    if (cut.rows > 0) {
        return quantize_tiles(with, first, second, cut);
    }
    const bool may_share = has_many_rows(with, first);
    if (may_share && has_rows_of_blocks(first) && has_column_scales(second)) {
        return quantize_columns(with, &first, second);
    }
    if (may_share && has_rows_of_blocks(second) && has_column_scales(first)) {
        return quantize_columns(with, &second, first);
    }
    const Status status = quantize_alone(with, first);
    return status.ok() ? quantize_alone(with, second) : status;
}

Status quantize(const Resources& with, const QuantizeDesc& op) noexcept {
    if (op.has_second() && op.source.count() > 0) {
        return quantize_both(with, op.first(), op.second());
    }
    const Status status = quantize_alone(with, op.first());
    return status.ok() && op.has_second() ? quantize_alone(with, op.second()) : status;
}

} // namespace

const Candidate kQuantize = kByThreads<quantize, QuantizeDesc>;

} // namespace mp::backends::host
