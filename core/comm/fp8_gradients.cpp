// SPDX-License-Identifier: Apache-2.0
#include "comm/fp8_gradients.hpp"

#include <algorithm>

#include "device/select.hpp"
#include "numerics/bits.hpp"
#include "status/status.hpp"

namespace mp::comm {
namespace {

constexpr DType kCodes = DType::fp8_e4m3;
constexpr WireFormat kWire = {kCodes, WireScale::tensor};

// Codes go over the wire without their scale: every rank knows it.
int64_t slice_bytes(const Fp8Slice& slice) { return slice.count; }

} // namespace

Fp8GradientReducer::Fp8GradientReducer(Communicator& comm, Stream& stream, int32_t tensors,
                                       std::vector<Fp8Slice> slices)
    : comm_(comm), stream_(stream.shared_from_this()), slices_(std::move(slices)),
      states_(static_cast<std::size_t>(tensors)) {
    for (const Fp8Slice& slice : slices_) {
        const bool is_known = slice.tensor >= 0 && slice.tensor < tensors && slice.owner >= 0 &&
                              slice.owner < comm.size() && slice.start >= 0 && slice.count >= 0;
        if (!is_known) {
            fail(Code::invalid_argument,
                 "fp8 gradients: a slice of tensor %d of %d for rank %d of %d, from %lld on, %lld "
                 "elements",
                 slice.tensor, tensors, slice.owner, comm.size(),
                 static_cast<long long>(slice.start), static_cast<long long>(slice.count));
        }
        if (slice.owner == comm.rank() && slice.count > 0 && slice.codes == nullptr) {
            fail(Code::null_argument, "fp8 gradients: no memory for the slice of tensor %d",
                 slice.tensor);
        }
    }
}

bool Fp8GradientReducer::is_finite(int32_t tensor) const {
    return at(tensor).amax_bits < numerics::kFloatInfinity;
}

void Fp8GradientReducer::set_mu(int32_t tensor, float mu) {
    if (!(mu >= numerics::kSmallestMu && mu <= numerics::kLargestMu)) {
        fail(Code::invalid_argument, "fp8 gradients: mu is %g; it lies in [2^-16, 2]",
             static_cast<double>(mu));
    }
    State& state = states_.at(static_cast<std::size_t>(tensor));
    state.mu = mu;
    state.was_reduced = false;
}

void Fp8GradientReducer::reduce(std::span<const WireSource> gradients, const CallOptions& options) {
    if (gradients.size() != states_.size()) {
        fail(Code::invalid_argument, "fp8 gradients: %zu gradients for %zu tensors",
             gradients.size(), states_.size());
    }
    for (const Fp8Slice& slice : slices_) {
        const int64_t count = gradients[static_cast<std::size_t>(slice.tensor)].values.count;
        if (slice.start + slice.count > count) {
            fail(Code::invalid_shape,
                 "fp8 gradients: tensor %d has %lld elements, and a slice ends at %lld",
                 slice.tensor, static_cast<long long>(count),
                 static_cast<long long>(slice.start + slice.count));
        }
    }
    agree(gradients, options);
    exchange(gradients, options);
}

// The one message: amaxes as bits, so that a NaN or an infinity of one rank is everybody's, and the flags.
void Fp8GradientReducer::agree(std::span<const WireSource> gradients, const CallOptions& options) {
    const std::size_t tensors = states_.size();
    std::vector<uint32_t> agreed(2 * tensors, 0);
    const Scratch amaxes(*stream_, std::max<std::size_t>(1, tensors) * sizeof(float));
    for (std::size_t i = 0; i < tensors; ++i) {
        AmaxDesc op{};
        op.kind = OpKind::amax;
        op.source = gradients[i].values;
        op.result = static_cast<float*>(amaxes.data()) + i;
        run_op(*stream_, op);
        agreed[tensors + i] = states_[i].trips ? 1 : 0;
    }
    stream_->copy(agreed.data(), amaxes.data(), tensors * sizeof(uint32_t),
                  CopyKind::device_to_host);
    stream_->sync();
    for (std::size_t i = 0; i < tensors; ++i) {
        if (gradients[i].scale_inv != nullptr) {
            float scale = 1.0F;
            stream_->copy(&scale, gradients[i].scale_inv, sizeof scale, CopyKind::device_to_host);
            stream_->sync();
            agreed[i] = numerics::bits_from_float(numerics::float_from_bits(agreed[i]) * scale) &
                        numerics::kFloatMagnitudeMask;
        }
    }
    check(comm_.max_u32(agreed.data(), static_cast<int64_t>(agreed.size()), options));
    for (std::size_t i = 0; i < tensors; ++i) {
        State& state = states_[i];
        // Of the last reduction, whose amax every rank knows: what was not finite leaves mu.
        if (state.was_reduced && state.amax_bits < numerics::kFloatInfinity) {
            state.mu = numerics::next_mu(state.mu, agreed[tensors + i] != 0);
        }
        state.amax_bits = agreed[i];
        state.was_reduced = true;
        state.scale_inv = numerics::shared_gradient_scale(numerics::float_from_bits(agreed[i]),
                                                          state.mu, state.scale_inv)
                              .scale_inv;
    }
}

void Fp8GradientReducer::pack_pieces(std::span<const WireSource> gradients,
                                     std::span<const int64_t> offsets, char* base) {
    const Scratch slots(*stream_, states_.size() * sizeof(numerics::DelayedSlot));
    auto* slot = static_cast<numerics::DelayedSlot*>(slots.data());
    std::vector<numerics::DelayedSlot> shared(states_.size());
    for (std::size_t i = 0; i < states_.size(); ++i) {
        shared[i].multiply = 1.0F / states_[i].scale_inv; // a power of two
    }
    stream_->copy(slot, shared.data(), shared.size() * sizeof(shared[0]), CopyKind::host_to_device);
    int64_t longest = 0;
    for (const Fp8Slice& slice : slices_) {
        longest = std::max(longest, slice.count);
    }
    // The wire form has a scale before the codes; here it would be the same one many times, and is left out.
    const Scratch packed(*stream_, static_cast<std::size_t>(wire_bytes(longest, kWire)));
    for (std::size_t i = 0; i < slices_.size(); ++i) {
        const Fp8Slice& slice = slices_[i];
        const auto tensor = static_cast<std::size_t>(slice.tensor);
        if (slice.count == 0) {
            continue;
        }
        pack(*stream_, gradients[tensor], slice.start, slice.count, kWire, packed.data(),
             {{}, slice.start, slot + tensor});
        stream_->copy(base + offsets[i],
                      static_cast<const char*>(packed.data()) +
                          wire_scale_bytes(slice.count, kWire),
                      static_cast<std::size_t>(slice.count), CopyKind::device_to_device);
    }
    stream_->sync(); // `shared` is a copy's source until then
}

void Fp8GradientReducer::exchange(std::span<const WireSource> gradients,
                                  const CallOptions& options) {
    const auto ranks = static_cast<std::size_t>(comm_.size());
    const auto me = static_cast<std::size_t>(comm_.rank());
    std::vector<int64_t> send_bytes(ranks, 0);
    std::vector<int64_t> send_offsets(ranks, 0);
    std::vector<int64_t> offsets(slices_.size(), 0); // of each slice in the buffer for its owner
    for (std::size_t i = 0; i < slices_.size(); ++i) {
        auto& bytes = send_bytes[static_cast<std::size_t>(slices_[i].owner)];
        offsets[i] = bytes;
        bytes += slice_bytes(slices_[i]);
    }
    int64_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        send_offsets[r] = total;
        total += send_bytes[r];
    }
    std::vector<int64_t> receive_bytes(ranks, send_bytes[me]);
    std::vector<int64_t> receive_offsets(ranks, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
        receive_offsets[r] = static_cast<int64_t>(r) * send_bytes[me];
    }
    WireBuffer send(*stream_, comm_, total);
    WireBuffer receive(*stream_, comm_, static_cast<int64_t>(ranks) * send_bytes[me]);
    std::vector<int64_t> places(slices_.size());
    for (std::size_t i = 0; i < slices_.size(); ++i) {
        places[i] = offsets[i] + send_offsets[static_cast<std::size_t>(slices_[i].owner)];
    }
    pack_pieces(gradients, places, send.device());
    send.to_wire();
    check(comm_.all_to_all({send.wire(), send_bytes.data(), send_offsets.data(), receive.wire(),
                            receive_bytes.data(), receive_offsets.data()},
                           options));
    receive.from_wire();
    sum_pieces(offsets, receive.device());
    stream_->sync();
}

// The rank's own slices: codes of every rank added in fp32, rounded once, saturating; a NaN stays one.
void Fp8GradientReducer::sum_pieces(std::span<const int64_t> offsets, char* received) {
    int64_t block = 0;
    int64_t longest = 0;
    for (const Fp8Slice& slice : slices_) {
        block += slice.owner == comm_.rank() ? slice_bytes(slice) : 0;
        longest = std::max(longest, slice.owner == comm_.rank() ? slice.count : 0);
    }
    const Scratch sums(*stream_, 4 * static_cast<std::size_t>(longest));
    const Scratch one(*stream_, sizeof(float));
    const float unscaled = 1.0F;
    stream_->copy(one.data(), &unscaled, sizeof unscaled, CopyKind::host_to_device);
    for (State& state : states_) {
        state.saturated = 0;
        state.trips = false;
    }
    for (std::size_t i = 0; i < slices_.size(); ++i) {
        const Fp8Slice& slice = slices_[i];
        if (slice.owner != comm_.rank() || slice.count == 0) {
            continue;
        }
        std::vector<SumPart> parts(static_cast<std::size_t>(comm_.size()));
        for (std::size_t r = 0; r < parts.size(); ++r) {
            parts[r] = {received + static_cast<int64_t>(r) * block + offsets[i], one.data(), kCodes,
                        r == 0 ? 0 : 1};
        }
        SumPartsDesc sum{};
        sum.count = slice.count;
        sum.grid = kTensorScale;
        sum.destination = {sums.data(), slice.count, DType::fp32};
        sum_parts(*stream_, parts, sum);
        CastDesc cast{};
        cast.kind = OpKind::cast;
        cast.source = sum.destination;
        cast.destination = {slice.codes, slice.count, kCodes};
        cast.saturate = true;
        run_op(*stream_, cast);
        count_saturated(slice);
    }
}

void Fp8GradientReducer::count_saturated(const Fp8Slice& slice) {
    const auto count = static_cast<std::size_t>(slice.count);
    std::vector<uint8_t> copy;
    const auto* codes = static_cast<const uint8_t*>(slice.codes);
    if (!stream_->device().is_host()) {
        copy.resize(count);
        stream_->copy(copy.data(), slice.codes, count, CopyKind::device_to_host);
        codes = copy.data();
    }
    stream_->sync();
    int64_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        largest += (codes[i] & 0x7FU) == numerics::kE4m3MaxFinite ? 1 : 0;
    }
    State& state = states_[static_cast<std::size_t>(slice.tensor)];
    state.saturated += largest;
    state.trips = state.trips || numerics::mu_trips(largest, slice.count);
}

} // namespace mp::comm
