// SPDX-License-Identifier: Apache-2.0
#include "shard/in_flight_bucket.hpp"

#include "comm/arrival.hpp"
#include "comm/shares.hpp"

namespace mp::shard {

InFlightBucket::InFlightBucket(Stream& stream, comm::Communicator& comm,
                               const comm::ReduceDesc& desc, Load load)
    : comm_(comm), desc_(desc), load_(std::move(load)), sums_(load_.sums) {
    if (load_.lane != nullptr) {
        on_device_ =
            stream.allocate_ordered(static_cast<std::size_t>(bytes_of(sums_.dtype, sums_.count)));
        sums_.data = on_device_.data();
    }
    result_ = sums_;
    if (load_.adds || load_.shared != nullptr) {
        fresh_ = std::make_unique<Scratch>(
            stream, static_cast<std::size_t>(bytes_of(DType::fp32, result_.count)));
        result_ = {fresh_->data(), result_.count, DType::fp32};
    }
    if (load_.nodes != nullptr) {
        const int64_t count = comm::total_of(*load_.node_counts);
        wide_ = std::make_unique<Scratch>(stream,
                                          static_cast<std::size_t>(bytes_of(DType::fp32, count)));
    }
    if (!load_.begins_in_order) {
        begin(stream);
    }
}

comm::Advance InFlightBucket::step(Stream& stream) {
    comm::Advance advance = comm::Advance::moved;
    switch (phase_) {
    case Phase::staged:
        begin(stream);
        return advance;
    case Phase::scales:
        advance = load_.shared->step(stream);
        if (advance == comm::Advance::done) {
            begin_first_level(stream);
        }
        break;
    case Phase::first_level:
        advance = lent_sum_ != nullptr ? lent_sum_->step(stream) : scatter_->step(stream);
        if (advance == comm::Advance::done) {
            end_first_level(stream);
        }
        break;
    case Phase::between_levels:
        begin_second_level(stream);
        return advance;
    case Phase::second_level:
        advance = all_reduce_ != nullptr ? all_reduce_->step(stream) : scatter_->step(stream);
        if (advance == comm::Advance::done) {
            finish(stream);
        }
        break;
    case Phase::done:
        break;
    }
    return advance == comm::Advance::done && !is_done() ? comm::Advance::moved : advance;
}

void InFlightBucket::wait(Stream& stream) {
    if (phase_ == Phase::staged) {
        begin(stream);
    }
    if (phase_ == Phase::scales) {
        load_.shared->wait(stream);
        begin_first_level(stream);
    }
    if (phase_ == Phase::first_level) {
        lent_sum_ != nullptr ? lent_sum_->wait(stream) : scatter_->wait();
        end_first_level(stream);
    }
    if (phase_ == Phase::between_levels) {
        begin_second_level(stream);
    }
    if (phase_ == Phase::second_level) {
        all_reduce_ != nullptr ? all_reduce_->wait() : scatter_->wait();
        finish(stream);
    }
}

void InFlightBucket::begin(Stream& stream) {
    if (load_.shared == nullptr) {
        begin_first_level(stream);
        return;
    }
    load_.shared->begin(stream);
    phase_ = Phase::scales;
}

void InFlightBucket::begin_first_level(Stream& stream) {
    TensorRef target = result_;
    if (load_.nodes != nullptr) {
        target = {wide_->data(), comm::total_of(*load_.node_counts), DType::fp32};
    }
    if (load_.between != nullptr) {
        lent_sum_ = std::make_unique<comm::LentSum>(comm_, *load_.between);
        lent_sum_->begin(stream, desc_, load_.lent, *load_.counts, load_.pieces, target);
        phase_ = Phase::first_level;
        return;
    }
    std::vector<ArrayRef> sources;
    if (load_.shared != nullptr) {
        sources = load_.shared->sources();
    }
    for (const auto& memory : load_.contributions) {
        sources.push_back(
            plain_array({memory->data(), comm::total_of(*load_.counts), load_.staged}));
    }
    scatter_ = std::make_unique<comm::ReduceScatter>(comm_, stream);
    scatter_->begin(desc_, sources, *load_.counts, target);
    phase_ = Phase::first_level;
}

void InFlightBucket::end_first_level(Stream& stream) {
    if (load_.replicas == nullptr && load_.nodes == nullptr) {
        finish(stream);
    } else {
        phase_ = Phase::between_levels;
    }
}

void InFlightBucket::begin_second_level(Stream& stream) {
    if (load_.replicas != nullptr) {
        begin_replicas(stream);
    } else {
        begin_nodes(stream);
    }
    phase_ = Phase::second_level;
}

void InFlightBucket::begin_replicas(Stream& stream) {
    comm::ReduceDesc desc;
    desc.wire = comm::wire_format(DType::fp32);
    desc.order = desc_.order;
    desc.site = "sums of the other replicas";
    const ArrayRef own = plain_array(result_);
    all_reduce_ = std::make_unique<comm::AllReduce>(*load_.replicas, stream);
    all_reduce_->begin(desc, {&own, 1}, result_);
}

void InFlightBucket::begin_nodes(Stream& stream) {
    comm::ReduceDesc desc = desc_;
    desc.site = "sums of the other nodes";
    const ArrayRef own =
        plain_array({wide_->data(), comm::total_of(*load_.node_counts), DType::fp32});
    scatter_ = std::make_unique<comm::ReduceScatter>(*load_.nodes, stream);
    scatter_->begin(desc, {&own, 1}, *load_.node_counts, result_);
}

// To those of what left before in this step, which had not been waited for when this one left.
void InFlightBucket::add(Stream& stream) {
    const std::vector<SumPart> parts = {
        {sums_.data, nullptr, DType::fp32, 0},
        {fresh_->data(), nullptr, DType::fp32, 1},
    };
    SumPartsDesc op{};
    op.count = sums_.count;
    op.destination = sums_;
    comm::sum_parts(stream, parts, op);
    comm::sync_unordered(stream, comm_);
}

// The device adds also where sums are the host's: by one kernel, and without a wait.
void InFlightBucket::fetch_sums(Stream& stream) {
    load_.lane->follow(stream);
    load_.lane->to_device(stream, sums_.data, load_.sums.data, on_device_.bytes());
    load_.lane->lead(stream);
}

// The next bucket is reduced meanwhile.
void InFlightBucket::leave(Stream& stream) {
    load_.lane->follow(stream);
    load_.lane->to_host(stream, load_.sums.data, sums_.data, on_device_.bytes());
    on_device_.release_on(load_.lane->stream().queue());
}

void InFlightBucket::finish(Stream& stream) {
    const bool leaves = load_.lane != nullptr && sums_.count > 0;
    if (leaves && load_.adds) {
        fetch_sums(stream);
    }
    if (load_.shared != nullptr) {
        load_.shared->store(stream, result_, sums_, load_.adds);
    } else if (fresh_ != nullptr && sums_.count > 0) {
        add(stream);
    }
    if (leaves) {
        leave(stream);
    }
    phase_ = Phase::done;
}

} // namespace mp::shard
