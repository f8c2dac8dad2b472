// SPDX-License-Identifier: Apache-2.0
#include "shard/shared_bucket.hpp"

#include <algorithm>

#include "comm/shares.hpp"
#include "numerics/bits.hpp"
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
      amaxes_(layout.bucket->parameters.size(), 0) {
    const std::size_t slices = layout_.slices->size();
    const std::size_t all = slices * contributions_.size();
    const Scratch device(stream, std::max<std::size_t>(1, all) * sizeof(float));
    zero(stream, device.data(), static_cast<int64_t>(all * sizeof(float)));
    for (std::size_t i = 0; i < all; ++i) {
        AmaxDesc op{};
        op.kind = OpKind::amax;
        op.source =
            comm::slice({contributions_[i / slices]->data(), total(), DType::fp32},
                        (*layout_.offsets)[i % slices], (*layout_.slices)[i % slices].count);
        op.result = static_cast<float*>(device.data()) + i;
        run_op(stream, op);
    }
    std::vector<uint32_t> bits(all);
    if (all > 0) {
        stream.copy(bits.data(), device.data(), all * sizeof(uint32_t), CopyKind::device_to_host);
    }
    stream.sync();
    for (std::size_t i = 0; i < all; ++i) {
        uint32_t& amax = amaxes_[layout_.bucket->place_of((*layout_.slices)[i % slices].parameter)];
        amax = std::max(amax, bits[i]);
    }
}

int64_t SharedBucket::total() const { return comm::total_of(*layout_.counts); }

void SharedBucket::begin() {
    comm::CallOptions options;
    options.site = "amaxes of gradients";
    check(comm_.begin(comm::MaxU32{amaxes_.data(), static_cast<int64_t>(amaxes_.size())}, options,
                      &request_));
}

void SharedBucket::agree(Stream& stream) {
    std::vector<float> multiply;
    for (std::size_t place = 0; place < amaxes_.size(); ++place) {
        agreed_.push_back(scales_.scale_for(layout_.bucket->parameters[place], amaxes_[place]));
        multiply.push_back(agreed_.back().multiply);
    }
    write_scales(stream, multiply);
    for (std::size_t i = 0; i < contributions_.size(); ++i) {
        codes_.push_back(std::make_unique<Scratch>(stream, static_cast<std::size_t>(total())));
        zero(stream, codes_.back()->data(), total()); // between the slices, too
    }
    has_agreed_ = true;
}

void SharedBucket::write_scales(Stream& stream, const std::vector<float>& multiply) {
    host_scales_.assign(multiply.size(), {});
    for (std::size_t i = 0; i < multiply.size(); ++i) {
        host_scales_[i].multiply = multiply[i];
    }
    const std::size_t bytes = host_scales_.size() * sizeof(host_scales_[0]);
    device_scales_ = std::make_unique<Scratch>(stream, bytes);
    unused_scale_ = std::make_unique<Scratch>(stream, sizeof(float));
    stream.copy(device_scales_->data(), host_scales_.data(), bytes, CopyKind::host_to_device);
}

void SharedBucket::quantize(Stream& stream, const TensorRef& source, std::size_t place, void* codes,
                            numerics::QuantStats* stats) const {
    constexpr Format kFormat = comm::wire_format(kCodes, comm::WireScale::shared);
    Sink sink;
    sink.codes = {codes, unused_scale_->data(), nullptr, kFormat, 1, source.count};
    sink.tracking.delayed = static_cast<numerics::DelayedState*>(device_scales_->data()) + place;
    sink.tracking.stats = stats;
    quant::quantize_matrix(stream, plain_array(source), sink);
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
            quantize(stream, {const_cast<float*>(values), count, DType::fp32},
                     layout_.bucket->place_of(slice.parameter),
                     static_cast<char*>(codes_[contribution_]->data()) + first, nullptr);
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
        check(request_.wait());
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
void SharedBucket::store(Stream& stream, const TensorRef& wide, const TensorRef& sums, bool adds) {
    const std::vector<int64_t> begins = comm::sums_before(*layout_.counts);
    const int64_t begin = begins[static_cast<std::size_t>(comm_.rank())];
    const auto is_own = [&](std::size_t i) {
        const int64_t offset = (*layout_.offsets)[i] - begin;
        return offset >= 0 && offset < wide.count;
    };
    std::vector<float> scale(amaxes_.size());
    std::vector<float> multiply(amaxes_.size());
    std::vector<float> before(amaxes_.size()); // of the sums' codes, in units of the new scale
    for (std::size_t place = 0; place < scale.size(); ++place) {
        const float last = scales_.scale_inv(layout_.bucket->parameters[place]);
        const float here = agreed_[place].scale_inv;
        scale[place] = adds ? std::max(last, here) : here;
        multiply[place] = here / scale[place]; // powers of two
        before[place] = last / here;
    }
    write_scales(stream, multiply);
    const std::size_t slices = layout_.slices->size();
    const Scratch device_stats(stream, slices * sizeof(numerics::QuantStats) + 1);
    zero(stream, device_stats.data(), static_cast<int64_t>(slices * sizeof(numerics::QuantStats)));
    auto* stats = static_cast<numerics::QuantStats*>(device_stats.data());
    const Scratch device_before(stream, before.size() * sizeof(float));
    if (adds) {
        stream.copy(device_before.data(), before.data(), before.size() * sizeof(float),
                    CopyKind::host_to_device);
    }
    for (std::size_t i = 0; i < slices; ++i) {
        const int64_t count = (*layout_.slices)[i].count;
        if (!is_own(i) || count == 0) {
            continue;
        }
        const std::size_t place = layout_.bucket->place_of((*layout_.slices)[i].parameter);
        const int64_t offset = (*layout_.offsets)[i] - begin;
        const TensorRef fresh = comm::slice(wide, offset, count);
        const TensorRef codes = comm::slice(sums, offset, count);
        if (adds) {
            add_codes(stream, codes, static_cast<float*>(device_before.data()) + place, fresh);
        }
        quantize(stream, fresh, place, codes.data, stats + i);
    }
    std::vector<numerics::QuantStats> counted(slices);
    if (slices > 0) {
        stream.copy(counted.data(), stats, slices * sizeof(numerics::QuantStats),
                    CopyKind::device_to_host);
    }
    stream.sync();
    std::vector<int64_t> clipped(amaxes_.size(), 0);
    for (std::size_t i = 0; i < slices; ++i) {
        clipped[layout_.bucket->place_of((*layout_.slices)[i].parameter)] += counted[i].saturated;
    }
    for (std::size_t place = 0; place < scale.size(); ++place) {
        scales_.set_sum(layout_.bucket->parameters[place], scale[place], clipped[place],
                        amaxes_[place] < numerics::kFloatInfinity);
    }
}

} // namespace mp::shard
