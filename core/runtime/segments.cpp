// SPDX-License-Identifier: Apache-2.0
#include "runtime/segments.hpp"

#include <algorithm>

#include "runtime/select.hpp"

namespace mp {
namespace {

std::vector<Chunk> cut(std::span<const UpdateSegment> segments) {
    std::vector<Chunk> chunks;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        for (int64_t start = 0; start < segments[i].count; start += kChunkElements) {
            chunks.push_back({start, static_cast<int32_t>(i), 0});
        }
    }
    return chunks;
}

template <typename T> Buffer upload(Stream& stream, const std::vector<T>& values) {
    Buffer buffer = stream.allocate(values.size() * sizeof(T));
    if (!values.empty()) {
        stream.copy(buffer.data(), values.data(), buffer.bytes(), CopyKind::host_to_device);
    }
    return buffer;
}

} // namespace

SegmentPlan::SegmentPlan(Stream& stream, std::vector<UpdateSegment> segments)
    : host_segments_(std::move(segments)) {
    const std::vector<Chunk> chunks = cut(host_segments_);
    chunk_count_ = static_cast<int64_t>(chunks.size());
    segments_ = upload(stream, host_segments_);
    chunks_ = upload(stream, chunks);
    sums_ = stream.allocate(chunks.size() * sizeof(double));
    if (std::any_of(host_segments_.begin(), host_segments_.end(),
                    [](const UpdateSegment& s) { return s.has_scaled_states(); })) {
        scaling_ = stream.allocate(host_segments_.size() * sizeof(UpdateScaling));
    }
}

SegmentTable SegmentPlan::table() const noexcept {
    SegmentTable table;
    table.segments = segments_.as<UpdateSegment>();
    table.host_segments = host_segments_.data();
    table.chunks = chunks_.as<Chunk>();
    table.segment_count = static_cast<int64_t>(host_segments_.size());
    table.chunk_count = chunk_count_;
    return table;
}

void SegmentPlan::grad_stats(Stream& stream, numerics::OptimizerState* state,
                             ChunkSumExchange* exchange) const {
    GradStatsDesc op{};
    op.kind = OpKind::grad_stats;
    op.table = table();
    op.chunk_sums = chunk_sums();
    op.state = state;
    if (exchange == nullptr) {
        run_op(stream, op);
    } else {
        sum_all_ranks(stream, op, *exchange);
    }
}

void SegmentPlan::sum_all_ranks(Stream& stream, GradStatsDesc op,
                                ChunkSumExchange& exchange) const {
    op.stage = StatsStage::chunks;
    run_op(stream, op);
    op.stage = StatsStage::tree;
    if (const auto placed = exchange.sums_on_device(stream, op.chunk_sums); placed.has_value()) {
        op.chunk_sums = static_cast<double*>(placed->sums->data());
        op.places = placed->places;
        op.sum_count = placed->count;
        run_op(stream, op);
        return;
    }
    std::vector<double> own(static_cast<std::size_t>(chunk_count_));
    if (!own.empty()) {
        stream.copy(own.data(), op.chunk_sums, own.size() * sizeof(double),
                    CopyKind::device_to_host);
    }
    stream.sync();
    const std::vector<double> all = exchange.sums(own);
    const Scratch sums(stream, all.size() * sizeof(double));
    if (!all.empty()) {
        stream.copy(sums.data(), all.data(), all.size() * sizeof(double), CopyKind::host_to_device);
    }
    op.chunk_sums = static_cast<double*>(sums.data());
    op.sum_count = static_cast<int64_t>(all.size());
    run_op(stream, op);
    stream.sync(); // before `all` goes
}

} // namespace mp
