// SPDX-License-Identifier: Apache-2.0
// dequantize and delayed_update as Kokkos kernels.
#pragma once

#include "kernels/cast.hpp"
#include "kernels/element.hpp"
#include "kernels/exec.hpp"
#include "numerics/quantize.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::kernels {

struct DequantizeJobs {
    DequantizeJob whole;
    int64_t job_rows;
    int64_t job_columns;
    int64_t jobs_in_row;
    TableOps ops;

    void operator()(int64_t i) const {
        const ScaledRef& from = whole.op->source;
        DequantizeJob job = whole;
        job.first_row = i / jobs_in_row * job_rows;
        job.first_column = i % jobs_in_row * job_columns;
        const int64_t rows_left = from.rows - job.first_row;
        const int64_t left = from.columns - job.first_column;
        job.rows = rows_left < job_rows ? rows_left : job_rows;
        job.columns = left < job_columns ? left : job_columns;
        ops.table->dequantize(job);
    }
};

struct DequantizeElements {
    DequantizeDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        const ScaledRef& from = op.source;
        float scale = 1.0F;
        if (from.grid.exists()) {
            const int64_t index = from.grid.index(i / from.columns, i % from.columns, from.columns);
            scale = numerics::load_as_float(from.grid.dtype, from.scale_inv, index);
        }
        if (from.grid.dtype == DType::fp8_e4m3) {
            scale *= numerics::nvfp4_decode(*from.tensor_amax);
        }
        const float code = numerics::load_as_float(from.codes.dtype, from.codes.data, i);
        store_element(op.destination.dtype, op.destination.data, i,
                      numerics::dequantize_element(code, scale));
    }
};

template <class Exec, class Ops>
void dequantize(const Exec& exec, const Ops& ops, const DequantizeDesc& op) {
    if constexpr (kIsHost<Exec>) {
        DequantizeDesc line = op;
        ScaledRef& from = line.source;
        const int64_t width = from.grid.block_columns;
        const bool is_one = !from.grid.exists() || (from.grid.block_rows == 0 && width == 0);
        if (is_one || (from.grid.block_rows == 1 && width > 0 && from.columns % width == 0)) {
            from.columns *= from.rows;
            from.rows = 1;
        }
        if (op.destination.count == 0) {
            return;
        }
        DequantizeJob whole{};
        whole.op = &line;
        whole.stream = op.destination.count * dtype_size(op.destination.dtype) >= kStreamBytes;
        const int64_t columns = from.columns < kChunkElements ? from.columns : kChunkElements;
        const int64_t rows = columns < from.columns ? 1 : divide_up(kChunkElements, columns);
        const int64_t jobs_in_row = divide_up(from.columns, columns);
        for_each(exec, "mp::dequantize", divide_up(from.rows, rows) * jobs_in_row,
                 DequantizeJobs{whole, rows, columns, jobs_in_row, ops});
    } else {
        for_each(exec, "mp::dequantize", op.destination.count, DequantizeElements{op});
    }
}

struct DelayedUpdates {
    DelayedUpdateDesc op;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i) const {
        numerics::update_delayed(op.slots[i], op.histories + i * op.rule.history_len, op.rule);
    }
};

template <class Exec> void delayed_update(const Exec& exec, const DelayedUpdateDesc& op) {
    const DelayedUpdates updates{op};
    if constexpr (kIsHost<Exec>) {
        // Too little to wake a thread for.
        for (int64_t i = 0; i < op.slot_count; ++i) {
            updates(i);
        }
    } else {
        for_each(exec, "mp::delayed_update", op.slot_count, updates);
    }
}

} // namespace mp::kernels
