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

std::vector<double> PlacedSums::read(Stream& stream) const {
    std::vector<int32_t> order(places != nullptr ? static_cast<std::size_t>(count) : 0);
    std::vector<double> lying(static_cast<std::size_t>(places != nullptr ? held : count));
    if (!order.empty()) {
        stream.copy(order.data(), places, order.size() * sizeof(int32_t), CopyKind::device_to_host);
    }
    if (!lying.empty()) {
        stream.copy(lying.data(), sums, lying.size() * sizeof(double), CopyKind::device_to_host);
    }
    stream.sync();
    if (places == nullptr) {
        return lying;
    }
    std::vector<double> in_order;
    in_order.reserve(order.size());
    for (const int32_t place : order) {
        in_order.push_back(lying[static_cast<std::size_t>(place)]);
    }
    return in_order;
}

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

PlacedSums SegmentPlan::sums_here() const noexcept {
    return {nullptr, chunk_sums(), nullptr, chunk_count_, chunk_count_};
}

// Of a plan of the host's.
PlacedSums SegmentPlan::from_host(Stream& stream, Stream& host) const {
    PlacedSums sums = sums_here();
    host.sync();
    const auto bytes = static_cast<std::size_t>(chunk_count_) * sizeof(double);
    sums.memory = std::make_unique<Scratch>(stream, bytes);
    sums.sums = static_cast<double*>(sums.memory->data());
    if (bytes > 0) {
        stream.copy(sums.sums, chunk_sums(), bytes, CopyKind::host_to_device);
    }
    return sums;
}

void SegmentPlan::grad_stats(Stream& stream, numerics::OptimizerState* state,
                             ChunkSumExchange* exchange, Stream* host) const {
    GradStatsDesc op{};
    op.kind = OpKind::grad_stats;
    op.table = table();
    op.chunk_sums = chunk_sums();
    op.state = state;
    if (exchange == nullptr && host == nullptr) {
        run_op(stream, op);
        return;
    }
    op.stage = StatsStage::chunks;
    run_op(host != nullptr ? *host : stream, op);
    const PlacedSums own = host != nullptr ? from_host(stream, *host) : sums_here();
    PlacedSums others;
    if (exchange != nullptr) {
        others = exchange->sums(stream, own);
    }
    const PlacedSums& all = exchange != nullptr ? others : own;
    op.stage = StatsStage::tree;
    op.chunk_sums = all.sums;
    op.places = all.places;
    op.sum_count = all.count;
    run_op(stream, op);
}

} // namespace mp
