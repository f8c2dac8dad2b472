// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

// Cut where logical elements are multiples of kChunkElements, so that no block of amaxes is cut.
void sum_parts(ThreadPool& threads, const SumPartsDesc& op) noexcept {
    const IsaTable& table = active_isa();
    const int64_t bytes = op.count * dtype_size(op.destination.dtype);
    const bool stream = std::max(bytes, op.written_first) >= kStreamBytes;
    const int64_t into = op.first_element % kChunkElements;
    threads.for_each(op.count == 0 ? 0 : divide_up(into + op.count, kChunkElements),
                     [&](int64_t i) {
                         const int64_t begin = std::max<int64_t>(i * kChunkElements - into, 0);
                         const int64_t end = std::min((i + 1) * kChunkElements - into, op.count);
                         table.sum_parts({&op, begin, end - begin, stream});
                     });
}

} // namespace

const Candidate kSumParts = kByThreads<sum_parts, SumPartsDesc>;

} // namespace mp::backends::host
