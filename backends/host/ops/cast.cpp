// SPDX-License-Identifier: Apache-2.0
#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

void cast(ThreadPool& threads, const CastDesc& op) noexcept {
    const IsaTable& table = active_isa();
    const int64_t count = op.destination.count;
    const bool stream = count * dtype_size(op.destination.dtype) >= kStreamBytes;
    threads.for_each(divide_up(count, kChunkElements), [&](int64_t chunk) {
        const int64_t start = chunk * kChunkElements;
        table.cast({&op, start, chunk_length(count, start), stream});
    });
}

} // namespace

const Candidate kCast = kByThreads<cast, CastDesc>;

} // namespace mp::backends::host
