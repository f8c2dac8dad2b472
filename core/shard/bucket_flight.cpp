// SPDX-License-Identifier: Apache-2.0
#include "shard/bucket_flight.hpp"

#include "comm/shares.hpp"

namespace mp {

BucketFlight::BucketFlight(Stream& stream, comm::Communicator& comm, const comm::ReduceDesc& desc,
                           Load load)
    : load_(std::move(load)), reduction_(comm, stream) {
    const int64_t count = comm::total_of(*load_.counts);
    std::vector<comm::WireSource> sources;
    for (const auto& memory : load_.contributions) {
        sources.push_back({{memory->data(), count, load_.staged}, nullptr});
    }
    TensorRef result = load_.sums;
    if (load_.adds) {
        fresh_ = std::make_unique<Scratch>(
            stream, static_cast<std::size_t>(bytes_of(DType::fp32, result.count)));
        result.data = fresh_->data();
    }
    reduction_.begin(desc, sources, *load_.counts, result);
}

comm::Advance BucketFlight::step(Stream& stream) {
    if (!is_reduced_) {
        const comm::Advance advance = reduction_.step(stream);
        if (advance != comm::Advance::done) {
            return advance;
        }
        is_reduced_ = true;
    }
    land(stream);
    return comm::Advance::done;
}

void BucketFlight::wait(Stream& stream) {
    if (!is_reduced_) {
        reduction_.wait();
        is_reduced_ = true;
    }
    land(stream);
}

void BucketFlight::land(Stream& stream) {
    if (is_done_) {
        return;
    }
    if (fresh_ != nullptr && load_.sums.count > 0) {
        const std::vector<SumPart> parts = {
            {load_.sums.data, nullptr, DType::fp32, 0},
            {fresh_->data(), nullptr, DType::fp32, 1},
        };
        SumPartsDesc op{};
        op.count = load_.sums.count;
        op.destination = load_.sums;
        comm::sum_parts(stream, parts, op);
        stream.sync();
    }
    is_done_ = true;
}

} // namespace mp
