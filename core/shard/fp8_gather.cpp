// SPDX-License-Identifier: Apache-2.0
#include "shard/fp8_gather.hpp"

#include <algorithm>

#include "numerics/bits.hpp"
#include "quant/quantize.hpp"
#include "runtime/select.hpp"

namespace mp::shard {
namespace {

uint64_t version_of(const Fp8Weight& weight) {
    return weight.own != nullptr ? weight.own->version() : 0;
}

void check_weight(const Fp8Weight& weight) {
    const Format format = weight.full->format();
    if (format.grid != kTensorScale || dtype_size(format.dtype) != 1) {
        fail(Code::invalid_dtype,
             "fp8 all-gather: a weight is %s; it must be fp8 with one scale for the tensor",
             format_text(format).c_str());
    }
}

// The largest |x| of this rank's slice of each weight, as bits; 0 where it has none.
std::vector<uint32_t> own_amaxes(Stream& stream, const std::vector<Fp8Weight>& weights) {
    std::vector<float> amaxes(weights.size(), 0.0F);
    const Scratch device(stream, weights.size() * sizeof(float));
    auto* results = static_cast<float*>(device.data());
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i].own == nullptr) {
            continue;
        }
        AmaxDesc op{};
        op.kind = OpKind::amax;
        op.source = weights[i].own->ref();
        op.result = results + i;
        run_op(stream, op);
        stream.copy(&amaxes[i], results + i, sizeof(float), CopyKind::device_to_host);
    }
    stream.sync();
    std::vector<uint32_t> bits;
    bits.reserve(amaxes.size());
    for (const float amax : amaxes) {
        bits.push_back(numerics::bits_from_float(amax));
    }
    return bits;
}

SliceGather::Slices slices_of(const std::vector<Fp8Weight>& weights) {
    SliceGather::Slices slices;
    slices.reserve(weights.size());
    for (const Fp8Weight& weight : weights) {
        slices.push_back(weight.slices);
    }
    return slices;
}

} // namespace

Fp8Scales agree_on_scales(Stream& stream, comm::Communicator& comm,
                          const std::vector<Fp8Weight>& weights) {
    std::for_each(weights.begin(), weights.end(), check_weight);
    std::vector<uint32_t> bits = own_amaxes(stream, weights);
    comm::CallOptions options;
    options.site = "amaxes of weights";
    check(comm.run(comm::MaxU32{bits.data(), static_cast<int64_t>(bits.size())}, options));
    std::vector<float> previous(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
        stream.copy(&previous[i], weights[i].full->scales()->scale_inv->data(), sizeof(float),
                    CopyKind::device_to_host);
    }
    stream.sync(); // once for all weights
    Fp8Scales agreed;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const float amax = numerics::float_from_bits(bits[i]);
        agreed.amaxes.push_back(amax);
        agreed.scales.push_back(
            numerics::block_scale(weights[i].full->format().policy, amax, previous[i], 0.0F));
        agreed.versions.push_back(version_of(weights[i]));
    }
    return agreed;
}

Fp8Gather::Fp8Gather(Stream& stream, comm::Communicator& comm, std::vector<Fp8Weight> weights,
                     Fp8Scales scales, Stream* between)
    : weights_(std::move(weights)), scales_(std::move(scales)),
      gather_(
          stream, comm, slices_of(weights_),
          [](std::size_t /*tensor*/, int64_t count) { return count; }, between,
          [this](Stream& arriving, const SliceGather::Slice& slice, const char* at) {
              auto* codes = static_cast<char*>(weights_[slice.tensor].full->data());
              arriving.copy(codes + slice.elements.start, at,
                            static_cast<std::size_t>(slice.elements.count),
                            CopyKind::device_to_device);
          }) {
    check_scales();
    quantize(stream);
    gather_.begin(stream, "fp8 weights");
}

void Fp8Gather::check_scales() const {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        if (scales_.versions.size() != weights_.size() ||
            scales_.versions[i] != version_of(weights_[i])) {
            fail(
                Code::bad_state,
                "fp8 all-gather: weight %zu was written after its scale was agreed on; agree again",
                i);
        }
    }
}

void Fp8Gather::quantize(Stream& stream) {
    std::vector<numerics::DelayedState> states(weights_.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
        states[i].multiply = scales_.scales[i].multiply;
    }
    const Scratch device(stream, states.size() * sizeof(states[0]));
    const Scratch unused_scale(stream, sizeof(float));
    if (!states.empty()) {
        stream.copy(device.data(), states.data(), states.size() * sizeof(states[0]),
                    CopyKind::host_to_device);
    }
    for (const SliceGather::Slice& slice : gather_.slices()) {
        if (!gather_.is_own(slice)) {
            continue;
        }
        const Fp8Weight& weight = weights_[slice.tensor];
        Sink sink;
        sink.codes = {
            gather_.at(stream, slice), unused_scale.data(), nullptr, weight.full->format(), 1,
            slice.elements.count};
        sink.tracking.delayed = static_cast<numerics::DelayedState*>(device.data()) + slice.tensor;
        quant::quantize_matrix(stream, plain_array(weight.own->ref()), sink);
    }
    stream.sync(); // before `states` goes
}

void Fp8Gather::write_scales(Stream& stream) const {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        const TensorScales& of = *weights_[i].full->scales();
        stream.copy(of.scale_inv->data(), &scales_.scales[i].scale_inv, sizeof(float),
                    CopyKind::host_to_device);
        stream.copy(of.amax->data(), &scales_.amaxes[i], sizeof(float), CopyKind::host_to_device);
    }
    stream.sync();
}

comm::Advance Fp8Gather::step(Stream& stream) {
    const comm::Advance advance = gather_.step(stream);
    if (advance == comm::Advance::done) {
        write_scales(stream);
    }
    return advance;
}

void Fp8Gather::finish(Stream& stream) {
    gather_.wait(stream);
    write_scales(stream);
}

} // namespace mp::shard
