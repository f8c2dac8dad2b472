// SPDX-License-Identifier: Apache-2.0
#include "shard/fp8_gather.hpp"

#include <algorithm>

#include "comm/all_max.hpp"
#include "comm/arrival.hpp"
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

SliceGather::Slices slices_of(const std::vector<Fp8Weight>& weights) {
    SliceGather::Slices slices;
    slices.reserve(weights.size());
    for (const Fp8Weight& weight : weights) {
        slices.push_back(weight.slices);
    }
    return slices;
}

} // namespace

void Fp8Scales::agree(Stream& stream, comm::Communicator& comm,
                      const std::vector<Fp8Weight>& weights) {
    std::for_each(weights.begin(), weights.end(), check_weight);
    const std::size_t bytes = weights.size() * sizeof(float);
    if (values_.bytes() != 2 * bytes) {
        values_ = stream.allocate(2 * bytes);
    }
    versions_.assign(weights.size(), 0);
    stream.zero(values_.data(), bytes);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        versions_[i] = version_of(weights[i]);
        if (weights[i].own == nullptr) {
            continue;
        }
        AmaxDesc op{};
        op.kind = OpKind::amax;
        op.source = weights[i].own->ref();
        op.result = (*this)[i].amax;
        run_op(stream, op);
    }
    comm::CallOptions options;
    options.site = "amaxes of weights";
    comm::all_reduce_max(comm, stream, values_.as<uint32_t>(), static_cast<int64_t>(weights.size()),
                         options);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const Fp8Scale scale = (*this)[i];
        const Tensor& full = *weights[i].full;
        stream.copy(scale.scale_inv, full.scales()->scale_inv->data(), sizeof(float),
                    CopyKind::device_to_device); // which an amax that gives none keeps
        quant::set_scale(stream, full.format(), scale.amax, scale.scale_inv);
    }
}

Fp8Scale Fp8Scales::operator[](std::size_t weight) const {
    auto* const amax = values_.as<float>() + weight;
    return {amax, amax + versions_.size(), versions_[weight]};
}

std::vector<Fp8Scale> Fp8Scales::all() const {
    std::vector<Fp8Scale> scales;
    for (std::size_t i = 0; i < versions_.size(); ++i) {
        scales.push_back((*this)[i]);
    }
    return scales;
}

Fp8Gather::Fp8Gather(Stream& stream, comm::Communicator& comm, std::vector<Fp8Weight> weights,
                     std::vector<Fp8Scale> scales, Stream* between)
    : comm_(comm), weights_(std::move(weights)), scales_(std::move(scales)),
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
        if (scales_.size() != weights_.size() || scales_[i].version != version_of(weights_[i])) {
            fail(
                Code::bad_state,
                "fp8 all-gather: weight %zu was written after its scale was agreed on; agree again",
                i);
        }
    }
}

void Fp8Gather::quantize(Stream& stream) {
    for (const SliceGather::Slice& slice : gather_.slices()) {
        if (!gather_.is_own(slice)) {
            continue;
        }
        const Fp8Weight& weight = weights_[slice.tensor];
        Sink sink = sink_of({gather_.at(stream, slice), scales_[slice.tensor].scale_inv, nullptr,
                             weight.full->format(), 1, slice.elements.count});
        sink.given_amax = scales_[slice.tensor].amax; // the scale stays what it is
        quant::quantize_matrix(stream, plain_array(weight.own->ref()), sink);
    }
}

void Fp8Gather::write_scales(Stream& stream) const {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        const TensorScales& of = *weights_[i].full->scales();
        stream.copy(of.scale_inv->data(), scales_[i].scale_inv, sizeof(float),
                    CopyKind::device_to_device);
        stream.copy(of.amax->data(), scales_[i].amax, sizeof(float), CopyKind::device_to_device);
    }
    comm::sync_unordered(stream, comm_);
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
