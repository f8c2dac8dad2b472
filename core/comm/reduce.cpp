// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce.hpp"

#include "comm/arrival.hpp"
#include "comm/capture.hpp"
#include "comm/shares.hpp"
#include "numerics/bits.hpp"
#include "numerics/part_sum.hpp"
#include "status/status.hpp"

namespace mp::comm {

void AllReduce::begin(const ReduceDesc& desc, std::span<const ArrayRef> sources,
                      const TensorRef& destination, const Format* gather) {
    const Format plain = wire_format(destination.dtype);
    gather_desc_ = {gather == nullptr ? plain : *gather, {}, desc.deadline_ms, desc.site};
    gather_desc_.rounding.first_element = desc.rounding.first_element;
    check_wire(gather_desc_.wire, "all-reduce");
    if (native_ != nullptr || scatter_.is_open() || gather_.is_open()) {
        fail(Code::bad_state, "all-reduce: the last one has not been waited for");
    }
    refuse_capture(*stream_);
    destination_ = destination;
    if (traits(desc.order).may_be_native && comm_.caps().sum_f32 && sources.size() == 1 &&
        desc.accumulate != Accumulate::fp64 && desc.wire.dtype == DType::fp32 &&
        gather_desc_.wire == wire_format(DType::fp32) && gather_desc_.wire == plain) {
        begin_native(desc, sources[0]);
        return;
    }
    counts_ = even_counts(destination.count, comm_.size(), numerics::kExactBlock);
    const auto me = static_cast<std::size_t>(comm_.rank());
    const int64_t first = sums_before(counts_)[me];
    shard_ = slice(destination, first, counts_[me]);
    if (gather_desc_.wire != plain) {
        wide_ = std::make_unique<Scratch>(*stream_, 4 * static_cast<std::size_t>(counts_[me]));
        shard_ = {wide_->data(), counts_[me], DType::fp32};
    }
    scatter_.begin(desc, sources, counts_, shard_);
}

void AllReduce::begin_native(const ReduceDesc& desc, const ArrayRef& source) {
    check_reduce(desc, destination_.dtype, "all-reduce");
    if (source.count() != destination_.count) {
        fail(Code::invalid_shape, "all-reduce: %lld elements to %lld",
             static_cast<long long>(source.count()), static_cast<long long>(destination_.count));
    }
    pack(*stream_, source, 0, destination_.count, desc.wire, destination_.data);
    auto buffer = std::make_unique<WireBuffer>(*stream_, comm_, destination_.data,
                                               bytes_of(DType::fp32, destination_.count));
    buffer->to_wire();
    check(comm_.begin(SumF32{reinterpret_cast<float*>(buffer->wire()), destination_.count},
                      {desc.deadline_ms, desc.site, &stream_->queue()}, &native_request_));
    native_ = std::move(buffer);
}

void AllReduce::end_native(WireBuffer& buffer) const {
    buffer.from_wire();
    sync_unordered(*stream_, comm_);
}

void AllReduce::begin_gather() {
    gather_.begin(gather_desc_, plain_array(shard_), counts_, destination_);
}

void AllReduce::wait() {
    if (native_ != nullptr) {
        const std::unique_ptr<WireBuffer> buffer = std::move(native_); // closed where it fails
        await_arrival(*stream_, comm_, native_request_);
        end_native(*buffer);
        return;
    }
    begin_rest();
    gather_.wait();
    wide_.reset();
}

void AllReduce::begin_rest() {
    if (begins_more()) {
        scatter_.wait();
        begin_gather();
    }
}

bool AllReduce::test() {
    if (native_ != nullptr) {
        std::unique_ptr<WireBuffer> buffer = std::move(native_);
        const bool done = comm::step(native_request_) == Advance::done;
        if (done) {
            end_native(*buffer);
        } else {
            native_ = std::move(buffer);
        }
        return done;
    }
    if (scatter_.is_open()) {
        if (scatter_.test()) {
            begin_gather();
        }
        return false;
    }
    const bool done = gather_.test();
    if (done) {
        wide_.reset();
    }
    return done;
}

Advance AllReduce::step(Stream& stream) {
    if (!scatter_.is_open()) {
        return test() ? Advance::done : Advance::waits;
    }
    const Advance advance = scatter_.step(stream);
    if (advance != Advance::done) {
        return advance;
    }
    begin_gather();
    return Advance::moved;
}

// ---- maxima ----------------------------------------------------------------------------------------

void all_reduce_max_abs(Communicator& comm, Stream& stream, const TensorRef& source,
                        const TensorRef& destination, const CallOptions& options) {
    if (destination.dtype != DType::fp32 || destination.count != source.count) {
        fail(Code::invalid_argument,
             "all-reduce of maxima: %lld elements of %s to %lld of %s; the "
             "result is fp32 and as long",
             static_cast<long long>(source.count), dtype_name(source.dtype),
             static_cast<long long>(destination.count), dtype_name(destination.dtype));
    }
    refuse_capture(stream);
    const Scratch wide(stream, 4 * static_cast<std::size_t>(source.count));
    pack(stream, plain_array(source), 0, source.count, wire_format(DType::fp32), wide.data());
    std::vector<uint32_t> bits(static_cast<std::size_t>(source.count));
    const std::size_t bytes = bits.size() * sizeof(uint32_t);
    if (bytes > 0) {
        stream.copy(bits.data(), wide.data(), bytes, CopyKind::device_to_host);
    }
    stream.sync();
    for (uint32_t& x : bits) {
        x &= numerics::kFloatMagnitudeMask;
        x = numerics::is_nan_bits(x) ? numerics::kFloatQuietNan : x;
    }
    check(comm.run(MaxU32{bits.data(), source.count}, options));
    if (bytes > 0) {
        stream.copy(destination.data, bits.data(), bytes, CopyKind::host_to_device);
        stream.sync();
    }
}

} // namespace mp::comm
