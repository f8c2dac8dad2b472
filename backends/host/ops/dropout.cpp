// SPDX-License-Identifier: Apache-2.0
#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

void dropout(ThreadPool& threads, const DropoutDesc& op) noexcept {
    const IsaTable& table = active_isa();
    const int64_t count = op.destination.count;
    // What is read first is in the caches.
    const bool is_read = op.accumulate || op.source.data == op.destination.data;
    const bool stream = !is_read && count * dtype_size(op.destination.dtype) >= kStreamBytes;
    threads.for_each(divide_up(count, kChunkElements), [&](int64_t chunk) {
        const int64_t start = chunk * kChunkElements;
        table.dropout({&op, start, chunk_length(count, start), stream});
    });
}

} // namespace

const Candidate kDropout = kByThreads<dropout, DropoutDesc>;

} // namespace mp::backends::host
