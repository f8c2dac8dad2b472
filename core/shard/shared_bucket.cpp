// SPDX-License-Identifier: Apache-2.0
#include "shard/shared_bucket.hpp"

#include <algorithm>

#include "comm/arrival.hpp"
#include "comm/shares.hpp"
#include "quant/quantize.hpp"
#include "runtime/select.hpp"

namespace mp::shard {
namespace {

constexpr DType kCodes = DType::fp8_e4m3;

// What one step makes codes of: short enough that nobody waits for it.
constexpr int64_t kPackStep = int64_t{1} << 18;

void zero(Stream& stream, void* data, int64_t bytes) {
    if (bytes > 0) {
        stream.zero(data, static_cast<std::size_t>(bytes));
    }
}

// Adds what the codes stand for under this scale to `fresh`.
void add_codes(Stream& stream, const TensorRef& codes, float* scale_inv, const TensorRef& fresh) {
    const Scratch held(stream, sizeof(float) * static_cast<std::size_t>(codes.count));
    quant::dequantize_matrix(stream, scaled_array(codes, scale_inv),
                             {held.data(), codes.count, DType::fp32});
    const std::vector<SumPart> parts = {{held.data(), nullptr, DType::fp32, 0},
                                        {fresh.data, nullptr, DType::fp32, 1}};
    SumPartsDesc op{};
    op.count = codes.count;
    op.destination = fresh;
    comm::sum_parts(stream, parts, op);
}

} // namespace

SharedBucket::SharedBucket(Stream& stream, comm::Communicator& comm, SharedScales& scales,
                           const Layout& layout,
                           std::vector<std::unique_ptr<Scratch>> contributions)
    : comm_(comm), scales_(scales), layout_(layout), contributions_(std::move(contributions)),
      amaxes_(stream, comm, bytes_of(DType::fp32, static_cast<int64_t>(places()))),
      agreed_(stream, places() * sizeof(float)) {
    zero(stream, amaxes_.device(), bytes_of(DType::fp32, static_cast<int64_t>(places())));
    for (const auto& contribution : contributions_) {
        for (std::size_t i = 0; i < layout_.slices->size(); ++i) {
            const ShardSlice& slice = (*layout_.slices)[i];
            AmaxDesc op{};
            op.kind = OpKind::amax;
            op.source = comm::slice({contribution->data(), total(), DType::fp32},
                                    (*layout_.offsets)[i], slice.count);
            op.result = amax(layout_.bucket->place_of(slice.parameter));
            op.accumulate = true;
            run_op(stream, op);
        }
    }
}

int64_t SharedBucket::total() const { return comm::total_of(*layout_.counts); }

float* SharedBucket::amax(std::size_t place) const {
    return reinterpret_cast<float*>(amaxes_.device()) + place;
}

float* SharedBucket::scale(std::size_t place) const {
    return static_cast<float*>(agreed_.data()) + place;
}

void SharedBucket::begin(Stream& stream) {
    amaxes_.to_wire();
    comm::CallOptions options;
    options.site = "amaxes of gradients";
    options.queue = &stream.queue();
    check(comm_.begin(
        comm::MaxU32{reinterpret_cast<uint32_t*>(amaxes_.wire()), static_cast<int64_t>(places())},
        options, &request_));
}

void SharedBucket::agree(Stream& stream) {
    amaxes_.from_wire();
    for (std::size_t place = 0; place < places(); ++place) {
        const int32_t parameter = layout_.bucket->parameters[place];
        stream.copy(scale(place), scales_.scale(parameter), sizeof(float),
                    CopyKind::device_to_device); // which an amax that gives none keeps
        quant::set_scale(stream, scales_.format(parameter), amax(place), scale(place));
    }
    for (std::size_t i = 0; i < contributions_.size(); ++i) {
        codes_.push_back(std::make_unique<Scratch>(stream, static_cast<std::size_t>(total())));
        zero(stream, codes_.back()->data(), total()); // between the slices, too
    }
    has_agreed_ = true;
}

bool SharedBucket::pack(Stream& stream, int64_t most) {
    while (contribution_ < contributions_.size() && most > 0) {
        if (slice_ == layout_.slices->size()) {
            slice_ = 0;
            ++contribution_;
            continue;
        }
        const ShardSlice& slice = (*layout_.slices)[slice_];
        const int64_t first = (*layout_.offsets)[slice_] + packed_;
        const int64_t count = std::min(most, slice.count - packed_);
        if (count > 0) {
            const auto* values = static_cast<float*>(contributions_[contribution_]->data()) + first;
            const std::size_t place = layout_.bucket->place_of(slice.parameter);
            Sink sink = sink_of({static_cast<char*>(codes_[contribution_]->data()) + first,
                                 scale(place), nullptr, scales_.format(slice.parameter), 1, count});
            sink.given_amax = amax(place); // the scale stays what it is
            quant::quantize_matrix(
                stream, plain_array({const_cast<float*>(values), count, DType::fp32}), sink);
        }
        most -= count;
        packed_ += count;
        if (packed_ == slice.count) {
            packed_ = 0;
            ++slice_;
        }
    }
    return contribution_ == contributions_.size();
}

comm::Advance SharedBucket::step(Stream& stream) {
    if (!has_agreed_) {
        const comm::Advance advance = comm::step(request_);
        if (advance == comm::Advance::done) {
            agree(stream);
        }
        return advance == comm::Advance::waits ? advance : comm::Advance::moved;
    }
    return pack(stream, kPackStep) ? comm::Advance::done : comm::Advance::moved;
}

void SharedBucket::wait(Stream& stream) {
    if (!has_agreed_) {
        comm::await_arrival(stream, comm_, request_);
        agree(stream);
    }
    (void)pack(stream, INT64_MAX);
}

std::vector<ArrayRef> SharedBucket::sources() const {
    std::vector<ArrayRef> sources;
    for (const auto& codes : codes_) {
        sources.push_back(plain_array({codes->data(), total(), kCodes}));
    }
    return sources;
}

// Where there are sums already, both go under the larger of the two scales.
SharedBucket::Rescaled SharedBucket::rescaled(Stream& stream, bool adds) const {
    Rescaled by_place;
    by_place.fresh.resize(places()); // multiplied with 1
    if (!adds) {
        return by_place;
    }
    std::vector<float> here(places());
    std::vector<float> last(places());
    for (std::size_t place = 0; place < places(); ++place) {
        stream.copy(&here[place], scale(place), sizeof(float), CopyKind::device_to_host);
        stream.copy(&last[place], scales_.scale(layout_.bucket->parameters[place]), sizeof(float),
                    CopyKind::device_to_host);
    }
    stream.sync();
    for (std::size_t place = 0; place < places(); ++place) { // powers of two
        const float larger = std::max(last[place], here[place]);
        by_place.fresh[place].multiply = here[place] / larger;
        by_place.before.push_back(last[place] / here[place]);
        stream.copy(scale(place), &larger, sizeof(float), CopyKind::host_to_device);
    }
    return by_place;
}

void SharedBucket::store(Stream& stream, const TensorRef& wide, const TensorRef& sums, bool adds) {
    const std::vector<int64_t> begins = comm::sums_before(*layout_.counts);
    const int64_t begin = begins[static_cast<std::size_t>(comm_.rank())];
    const Rescaled by_place = rescaled(stream, adds);
    const Scratch fresh_states(stream, by_place.fresh.size() * sizeof(by_place.fresh[0]));
    stream.copy(fresh_states.data(), by_place.fresh.data(),
                by_place.fresh.size() * sizeof(by_place.fresh[0]), CopyKind::host_to_device);
    const Scratch before(stream, places() * sizeof(float));
    if (adds) {
        stream.copy(before.data(), by_place.before.data(), places() * sizeof(float),
                    CopyKind::host_to_device);
    }
    const Scratch unused_scale(stream, sizeof(float)); // the rule's own, which a given one leaves
    const Scratch counted(stream, sizeof(numerics::QuantStats));
    auto* const stats = static_cast<numerics::QuantStats*>(counted.data());
    for (std::size_t i = 0; i < layout_.slices->size(); ++i) {
        const ShardSlice& slice = (*layout_.slices)[i];
        const int64_t offset = (*layout_.offsets)[i] - begin;
        if (offset < 0 || offset >= wide.count || slice.count == 0) {
            continue;
        }
        const std::size_t place = layout_.bucket->place_of(slice.parameter);
        const TensorRef fresh = comm::slice(wide, offset, slice.count);
        const TensorRef codes = comm::slice(sums, offset, slice.count);
        if (adds) {
            add_codes(stream, codes, static_cast<float*>(before.data()) + place, fresh);
        }
        zero(stream, stats, sizeof *stats);
        Sink sink = sink_of({codes.data, unused_scale.data(), nullptr,
                             comm::wire_format(kCodes, comm::WireScale::shared), 1, slice.count});
        sink.tracking.delayed = static_cast<numerics::DelayedState*>(fresh_states.data()) + place;
        sink.tracking.stats = stats;
        quant::quantize_matrix(stream, plain_array(fresh), sink);
        scales_.set_clipped(stream, slice, &stats->saturated);
    }
    for (std::size_t place = 0; place < places(); ++place) {
        scales_.set_sum(stream, layout_.bucket->parameters[place], scale(place), amax(place));
    }
    comm::sync_unordered(stream, comm_);
}

} // namespace mp::shard
