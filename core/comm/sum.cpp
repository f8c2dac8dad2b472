// SPDX-License-Identifier: Apache-2.0
#include "comm/sum.hpp"

#include "runtime/select.hpp"

namespace mp::comm {

void sum_parts(Stream& stream, std::span<const SumPart> parts, SumPartsDesc op) {
    op.kind = OpKind::sum_parts;
    op.host_parts = parts.data();
    op.part_count = static_cast<int32_t>(parts.size());
    if (stream.device().is_host() || op.part_count <= kPartsOfLaunch) {
        run_op(stream, op);
        return;
    }
    const Scratch table(stream, parts.size_bytes());
    stream.copy(table.data(), parts.data(), parts.size_bytes(), CopyKind::host_to_device);
    op.parts = static_cast<const SumPart*>(table.data());
    run_op(stream, op);
}

} // namespace mp::comm
