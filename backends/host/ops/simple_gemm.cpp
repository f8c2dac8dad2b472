// SPDX-License-Identifier: Apache-2.0
// The product that takes every type and scale, tile by tile, where no other does.
#include <algorithm>

#include "device/desc_plan.hpp"
#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

Status run(Device& device, Queue& /*queue*/, Plan& plan, const GemmBuffers& buffers) noexcept {
    const GemmDesc& op = DescPlan::of(plan);
    const IsaTable& table = active_isa();
    const int64_t row_tiles = divide_up(op.m, kGemmTileRows);
    const int64_t column_tiles = divide_up(op.n, kGemmTileColumns);
    ThreadScratch scratch;
    const Status status = scratch.take(resources_of(device), kGemmScratch);
    if (!status.ok()) {
        return status;
    }
    const auto multiply = [&](int64_t tile, int32_t thread) {
        const int64_t row = tile % row_tiles * kGemmTileRows;
        const int64_t column = tile / row_tiles % column_tiles * kGemmTileColumns;
        table.gemm({&op, &buffers, tile / row_tiles / column_tiles, row,
                    std::min(op.m - row, kGemmTileRows), column,
                    std::min(op.n - column, kGemmTileColumns), scratch.of(thread)});
    };
    threads_of(device).for_each_on(row_tiles * column_tiles * op.batch_count, multiply);
    return {};
}

} // namespace

const Candidate kGemm = {"simple", takes_all<GemmDesc>, nullptr, DescPlan::prepare, run};

} // namespace mp::backends::host
