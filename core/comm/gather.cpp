// SPDX-License-Identifier: Apache-2.0
#include "comm/gather.hpp"

#include "comm/arrival.hpp"
#include "comm/capture.hpp"
#include "comm/shares.hpp"
#include "status/status.hpp"

namespace mp::comm {

void AllGatherValues::begin(const GatherDesc& desc, const ArrayRef& shard,
                            std::span<const int64_t> counts, const TensorRef& destination) {
    constexpr const char* kWhat = "all-gather";
    if (is_open_) {
        fail(Code::bad_state, "%s: the last one has not been waited for", kWhat);
    }
    refuse_capture(*stream_);
    check_wire(desc.wire, kWhat);
    check_rounding(desc.rounding, kWhat);
    const auto ranks = static_cast<std::size_t>(comm_.size());
    const auto me = static_cast<std::size_t>(comm_.rank());
    if (counts.size() != ranks || shard.count() != counts[me] ||
        destination.count != total_of(counts)) {
        fail(Code::invalid_shape,
             "%s: %zu counts for %zu ranks, a shard of %lld and a destination of %lld elements",
             kWhat, counts.size(), ranks, static_cast<long long>(shard.count()),
             static_cast<long long>(destination.count));
    }
    desc_ = desc;
    counts_.assign(counts.begin(), counts.end());
    offsets_ = sums_before(counts);
    destination_ = destination;
    is_direct_ = desc.wire.dtype == destination.dtype && !desc.wire.is_quantized();
    std::vector<int64_t> bytes(ranks);
    std::vector<int64_t> at(ranks);
    int64_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        bytes[r] = wire_bytes(counts[r], desc.wire);
        at[r] = is_direct_ ? bytes_of(destination.dtype, offsets_[r]) : total;
        total += round_up(bytes[r], kLine);
    }
    buffer_ = is_direct_
                  ? std::make_unique<WireBuffer>(*stream_, comm_, destination.data,
                                                 bytes_of(destination.dtype, destination.count))
                  : std::make_unique<WireBuffer>(*stream_, comm_, total);
    char* own = buffer_->device() + at[me];
    if (shard.data != own) {
        pack(*stream_, shard, 0, counts[me], desc.wire, own,
             {desc.rounding.from(offsets_[me]), nullptr});
    }
    buffer_->to_wire();
    check(comm_.begin(
        AllGather{buffer_->wire() + at[me], bytes[me], buffer_->wire(), bytes.data(), at.data()},
        {desc.deadline_ms, desc.site, &stream_->queue()}, &request_));
    is_open_ = true;
}

void AllGatherValues::wait() {
    if (!is_open_) {
        fail(Code::bad_state, "all-gather: none was begun");
    }
    is_open_ = false;
    await_arrival(*stream_, comm_, request_);
    unpack_received();
}

bool AllGatherValues::test() {
    if (!is_open_) {
        fail(Code::bad_state, "all-gather: none was begun");
    }
    is_open_ = false; // where it fails
    const bool done = step(request_) == Advance::done;
    is_open_ = !done;
    if (done) {
        unpack_received();
    }
    return done;
}

void AllGatherValues::unpack_received() {
    buffer_->from_wire();
    int64_t at = 0;
    for (std::size_t r = 0; r < counts_.size() && !is_direct_; ++r) {
        unpack(*stream_, buffer_->device() + at, counts_[r], desc_.wire,
               slice(destination_, offsets_[r], counts_[r]));
        at += round_up(wire_bytes(counts_[r], desc_.wire), kLine);
    }
    sync_unordered(*stream_, comm_);
    buffer_.reset();
}

} // namespace mp::comm
