// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

// Factors once for all rows, so that a job reads and writes whole rows: memory gives long runs faster.
Status scale_columns(const Resources& with, const ScaleColumnsDesc& op) noexcept {
    if (op.rows == 0 || op.columns == 0) {
        return {};
    }
    ScratchPool::Lease scratch;
    const bool has_bias = op.bias.dtype != DType::none;
    const int64_t floats = op.columns * (has_bias ? 2 : 1);
    if (Status status =
            with.scratch.take(static_cast<std::size_t>(floats) * sizeof(float), scratch);
        !status.ok()) {
        return status;
    }
    const IsaTable& table = active_isa();
    auto* const factors = static_cast<float*>(scratch.data());
    float* const biases = has_bias ? factors + op.columns : nullptr;
    table.column_factors(op, factors, biases);
    const int64_t rows = divide_up(kChunkElements, op.columns);
    // What is read first is in the caches.
    const bool stream = op.source.data != op.destination.data &&
                        op.rows * op.columns * dtype_size(op.destination.dtype) >= kStreamBytes;
    with.threads.for_each(divide_up(op.rows, rows), [&](int64_t job) {
        const int64_t first = job * rows;
        table.scale_columns({&op, factors, biases, first, std::min(rows, op.rows - first), stream});
    });
    return {};
}

} // namespace

const Candidate kScaleColumns = kByThreads<scale_columns, ScaleColumnsDesc>;

} // namespace mp::backends::host
