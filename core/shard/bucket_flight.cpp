// SPDX-License-Identifier: Apache-2.0
#include "shard/bucket_flight.hpp"

#include "comm/shares.hpp"

namespace mp {

BucketFlight::BucketFlight(Stream& stream, comm::Communicator& comm, const comm::ReduceDesc& desc,
                           Load load)
    : desc_(desc), load_(std::move(load)), result_(load_.sums), reduction_(comm, stream) {
    const int64_t count = comm::total_of(*load_.counts);
    std::vector<comm::WireSource> sources;
    for (const auto& memory : load_.contributions) {
        sources.push_back({{memory->data(), count, load_.staged}, nullptr});
    }
    if (load_.adds) {
        fresh_ = std::make_unique<Scratch>(
            stream, static_cast<std::size_t>(bytes_of(DType::fp32, result_.count)));
        result_.data = fresh_->data();
    }
    TensorRef target = result_;
    if (load_.nodes != nullptr) {
        target.count = comm::total_of(*load_.node_counts);
        wide_ = std::make_unique<Scratch>(
            stream, static_cast<std::size_t>(bytes_of(DType::fp32, target.count)));
        target.data = wide_->data();
    }
    reduction_.begin(desc, sources, *load_.counts, target);
}

comm::Advance BucketFlight::step(Stream& stream) {
    if (!is_reduced_) {
        const comm::Advance advance = reduction_.step(stream);
        if (advance != comm::Advance::done) {
            return advance;
        }
        is_reduced_ = true;
    }
    if (!has_second_level()) {
        land(stream);
    }
    return comm::Advance::done;
}

void BucketFlight::wait(Stream& stream) {
    if (!is_reduced_) {
        reduction_.wait();
        is_reduced_ = true;
    }
    // Flights land in one order on every rank, so the second level meets here.
    if (load_.replicas != nullptr && !is_done_) {
        add_replicas(stream);
    } else if (load_.nodes != nullptr && !is_done_) {
        add_nodes(stream);
    }
    land(stream);
}

void BucketFlight::add_replicas(Stream& stream) {
    comm::ReduceDesc desc;
    desc.wire = {DType::fp32, comm::WireScale::none};
    desc.order = desc_.order;
    desc.site = "sums of the other replicas";
    const comm::WireSource own = {result_, nullptr};
    comm::AllReduce all(*load_.replicas, stream);
    all.begin(desc, {&own, 1}, result_);
    all.wait();
}

void BucketFlight::add_nodes(Stream& stream) {
    comm::ReduceDesc desc = desc_;
    desc.site = "sums of the other nodes";
    const comm::WireSource own = {{wide_->data(), comm::total_of(*load_.node_counts), DType::fp32},
                                  nullptr};
    comm::ReduceScatter between(*load_.nodes, stream);
    between.begin(desc, {&own, 1}, *load_.node_counts, result_);
    between.wait();
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
