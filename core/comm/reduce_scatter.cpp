// SPDX-License-Identifier: Apache-2.0
// How a reduce-scatter goes on: its arguments, the transfers one after another, the sum in steps. What its messages hold is
// in reduce_scatter_messages.cpp.
#include "comm/reduce_scatter.hpp"

#include <algorithm>

#include "comm/arrival.hpp"
#include "comm/capture.hpp"
#include "comm/shares.hpp"
#include "numerics/part_sum.hpp"
#include "status/status.hpp"

namespace mp::comm {
namespace {

static_assert(kSumStep % numerics::kExactBlock == 0);

// The part from an element on that begins a block of its scales.
SumPart part_from(const SumPart& part, int64_t first, const ScaleGrid& grid) {
    SumPart rest = part;
    rest.codes = static_cast<const char*>(part.codes) + bytes_of(part.dtype, first);
    if (part.scale_inv != nullptr && grid.block_columns > 0) {
        rest.scale_inv = static_cast<const char*>(part.scale_inv) +
                         first / grid.block_columns * dtype_size(grid.dtype);
    }
    return rest;
}

} // namespace

void ReduceScatter::check_arguments(std::span<const ArrayRef> sources,
                                    std::span<const int64_t> counts,
                                    const TensorRef& result) const {
    constexpr const char* kWhat = "reduce-scatter";
    check_reduce(desc_, result.dtype, kWhat);
    if (counts.size() != static_cast<std::size_t>(comm_.size())) {
        fail(Code::invalid_argument, "%s: %zu counts for %d ranks", kWhat, counts.size(),
             comm_.size());
    }
    if (std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; })) {
        fail(Code::invalid_argument, "%s: a count is negative", kWhat);
    }
    const auto wanted =
        has_slots(desc_.order) ? static_cast<std::size_t>(run_.count()) : std::size_t{1};
    if (sources.size() != wanted) {
        fail(Code::invalid_argument, "%s: %zu arrays, but rank %d of %d has %zu of the %d slots",
             kWhat, sources.size(), comm_.rank(), comm_.size(), wanted, desc_.slots);
    }
    const int64_t total = total_of(counts);
    for (const ArrayRef& source : sources) {
        if (source.count() != total) {
            fail(Code::invalid_shape,
                 "%s: an array has %lld elements, but the counts add up to %lld", kWhat,
                 static_cast<long long>(source.count()), static_cast<long long>(total));
        }
    }
    if (result.count != counts[static_cast<std::size_t>(comm_.rank())]) {
        fail(Code::invalid_shape, "%s: the result has %lld elements; this rank's count is %lld",
             kWhat, static_cast<long long>(result.count),
             static_cast<long long>(counts[static_cast<std::size_t>(comm_.rank())]));
    }
    const int64_t block = wire_block(desc_.wire);
    int64_t begin = desc_.rounding.first_element;
    for (const int64_t count : counts) {
        if (has_slots(desc_.order) && count > 0 && begin % block != 0) {
            fail(Code::unsupported,
                 "%s: order %s needs shares that begin at multiples of %lld elements, as the "
                 "wire's scales do; one begins at %lld",
                 kWhat, order_name(desc_.order), static_cast<long long>(block),
                 static_cast<long long>(begin));
        }
        begin += count;
    }
}

CallOptions ReduceScatter::options() const {
    return {desc_.deadline_ms, desc_.site, &stream_->queue()};
}

void ReduceScatter::begin(const ReduceDesc& desc, std::span<const ArrayRef> sources,
                          std::span<const int64_t> counts, const TensorRef& result) {
    if (is_open_) {
        fail(Code::bad_state, "reduce-scatter: the last one has not been waited for");
    }
    refuse_capture(*stream_);
    desc_ = desc;
    desc_.slots = slots_of_all(desc, comm_.size());
    run_ = slots_of(comm_.rank(), comm_.size(), desc_.slots);
    check_arguments(sources, counts, result);
    sources_.assign(sources.begin(), sources.end());
    counts_.assign(counts.begin(), counts.end());
    offsets_ = sums_before(counts);
    result_ = result;
    finds_amax_ = false;
    has_arrived_ = false;
    summed_ = 0;
    pack_leaves();
    if (traits(desc_.order).is_fixed) {
        begin_amax();
    } else {
        begin_exchange();
    }
    is_open_ = true;
}

void ReduceScatter::take_arrived() {
    if (!finds_amax_) {
        receive_->from_wire();
        has_arrived_ = true;
        return;
    }
    finds_amax_ = false;
    block_amax_->from_wire();
    begin_exchange();
}

Advance ReduceScatter::poll() {
    is_open_ = false; // where it fails
    const Advance advance = comm::step(request_);
    if (advance == Advance::done) {
        take_arrived();
    }
    is_open_ = true;
    return advance;
}

bool ReduceScatter::sum(Stream& stream, int64_t most) {
    is_open_ = false; // where it fails
    const int64_t count = std::min(most, result_.count - summed_);
    if (count > 0) {
        std::vector<SumPart> parts = received_parts();
        for (SumPart& part : parts) {
            part = part_from(part, summed_, wire_grid(desc_.wire));
        }
        SumPartsDesc op = sum_desc(comm_.rank(), summed_, count, slice(result_, summed_, count));
        op.written_first = desc_.written_first;
        sum_parts(stream, parts, op);
        sync_unordered(stream, comm_);
        summed_ += count;
    }
    is_open_ = summed_ < result_.count;
    if (!is_open_) {
        send_.reset();
        receive_.reset();
        block_amax_.reset();
    }
    return !is_open_;
}

void ReduceScatter::check_open() const {
    if (!is_open_) {
        fail(Code::bad_state, "reduce-scatter: none was begun");
    }
}

void ReduceScatter::begin_rest() {
    while (begins_more()) {
        is_open_ = false; // where it fails
        await_arrival(*stream_, comm_, request_);
        take_arrived();
        is_open_ = true;
    }
}

void ReduceScatter::wait() {
    check_open();
    begin_rest();
    if (!has_arrived_) {
        is_open_ = false; // where it fails
        await_arrival(*stream_, comm_, request_);
        take_arrived();
    }
    sum(*stream_, result_.count);
}

bool ReduceScatter::test() {
    check_open();
    while (!has_arrived_) {
        if (poll() != Advance::done) {
            return false;
        }
    }
    return sum(*stream_, result_.count);
}

Advance ReduceScatter::step(Stream& stream) {
    check_open();
    if (!has_arrived_) {
        return poll() == Advance::waits ? Advance::waits : Advance::moved;
    }
    return sum(stream, kSumStep) ? Advance::done : Advance::moved;
}

} // namespace mp::comm
