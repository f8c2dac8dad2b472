// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "device/update_scaling.hpp"
#include "host/ops/candidates.hpp"
#include "host/resources/atomic_max.hpp"

namespace mp::backends::host {

namespace {

// From so many chunks on, the parameters of a model do not stay in the caches.
constexpr int64_t kStreamChunks = (int64_t{8} << 20) / kChunkElements;

UpdateJob update_job(const OptimizerUpdateDesc& op, const Chunk& chunk, bool stream) {
    const UpdateSegment& segment = op.table.segments[chunk.segment];
    return {&op,
            &segment,
            chunk.start,
            chunk_length(segment.count, chunk.start),
            static_cast<uint64_t>(op.state->step),
            stream,
            op.scaling != nullptr ? op.scaling + chunk.segment : nullptr};
}

void raise_all(UpdateScaling& all, const UpdateScaling& here) {
    raise(all.weight_amax, here.weight_amax);
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        raise(all.state_amax[k], here.state_amax[k]);
    }
}

// The first pass, over the segments that have scaled states. Returns whether there are any.
bool measure(ThreadPool& threads, const OptimizerUpdateDesc& op) {
    bool any = false;
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        if (op.table.host_segments[i].has_scaled_states()) {
            op.scaling[i] = UpdateScaling{};
            any = true;
        }
    }
    if (!any) {
        return false;
    }
    const IsaTable& table = active_isa();
    threads.for_each(op.table.chunk_count, [&](int64_t i) {
        const Chunk& chunk = op.table.chunks[i];
        if (op.table.segments[chunk.segment].has_scaled_states()) {
            UpdateScaling here;
            table.measure_update(update_job(op, chunk, false), here);
            raise_all(op.scaling[chunk.segment], here);
        }
    });
    return true;
}

template <class Body> void for_each_scaled(const OptimizerUpdateDesc& op, const Body& body) {
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        if (op.table.segments[i].has_scaled_states()) {
            body(op.table.segments[i], op.scaling[i]);
        }
    }
}

// Of a step that is skipped.
void zero_gradients(ThreadPool& threads, const OptimizerUpdateDesc& op) {
    threads.for_each(op.zero_grad ? op.table.chunk_count : 0, [&](int64_t i) {
        const Chunk& chunk = op.table.chunks[i];
        const UpdateSegment& s = op.table.segments[chunk.segment];
        const int64_t count = chunk_length(s.count, chunk.start);
        std::memset(static_cast<char*>(s.grad.data) + bytes_of(s.grad.dtype, chunk.start), 0,
                    static_cast<std::size_t>(bytes_of(s.grad.dtype, count)));
    });
}

void update(ThreadPool& threads, const OptimizerUpdateDesc& op) noexcept {
    if (op.state->skip != 0) {
        zero_gradients(threads, op);
        return;
    }
    const bool has_scales = measure(threads, op);
    if (has_scales) {
        for_each_scaled(op,
                        [](const UpdateSegment& s, UpdateScaling& all) { renew_scales(s, all); });
    }
    const IsaTable& table = active_isa();
    const bool stream = op.table.chunk_count >= kStreamChunks;
    threads.for_each(op.table.chunk_count,
                     [&](int64_t i) { table.update(update_job(op, op.table.chunks[i], stream)); });
    if (has_scales) {
        for_each_scaled(
            op, [](const UpdateSegment& s, const UpdateScaling& all) { store_scales(s, all); });
    }
}

} // namespace

const Candidate kOptimizerUpdate = kByThreads<update, OptimizerUpdateDesc>;

} // namespace mp::backends::host
