// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/ops/candidates.hpp"
#include "host/resources/atomic_max.hpp"
#include "numerics/bits.hpp"
#include "numerics/scale_rules.hpp"

namespace mp::backends::host {

uint32_t largest_pattern(ThreadPool& threads, const TensorRef& source) noexcept {
    const IsaTable& table = active_isa();
    uint32_t largest = 0;
    threads.for_each(divide_up(source.count, kChunkElements), [&](int64_t chunk) {
        const int64_t start = chunk * kChunkElements;
        raise(largest, table.amax(source, start, chunk_length(source.count, start)));
    });
    return largest;
}

namespace {

void amax(ThreadPool& threads, const AmaxDesc& op) noexcept {
    if (op.skip != nullptr && *op.skip != 0) {
        return;
    }
    const uint32_t before = numerics::amax_so_far(op.accumulate ? *op.result : 0.0F);
    *op.result = numerics::float_from_bits(std::max(before, largest_pattern(threads, op.source)));
}

} // namespace

const Candidate kAmax = kByThreads<amax, AmaxDesc>;

} // namespace mp::backends::host
