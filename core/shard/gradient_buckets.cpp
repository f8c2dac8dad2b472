// SPDX-License-Identifier: Apache-2.0
#include "shard/gradient_buckets.hpp"

#include <algorithm>

#include "comm/arrival.hpp"
#include "comm/shares.hpp"
#include "shard/lent_gradients.hpp"
#include "tensor/slice.hpp"

namespace mp::shard {
namespace {

// Buckets in flight: enough to hide one behind the next, few enough that their memory does not matter.
constexpr std::size_t kMostInFlight = 3;

ArrayRef source_of(const Tensor& gradient) { return slice_of(gradient); }

// What a contribution is staged in: the wire's type where that is a plain one.
DType staging_dtype(const Format& wire) { return !wire.is_quantized() ? wire.dtype : DType::fp32; }

// What sums lie in.
DType sum_dtype(const Format& wire) { return comm::is_shared(wire) ? wire.dtype : DType::fp32; }

std::vector<bool> shares_of(const std::vector<Format>& wires) {
    std::vector<bool> shares;
    shares.reserve(wires.size());
    for (const Format& wire : wires) {
        shares.push_back(comm::is_shared(wire));
    }
    return shares;
}

comm::ReduceDesc desc_of(const GradientForm& form, const Format& wire) {
    comm::ReduceDesc desc;
    desc.wire = wire;
    desc.order = form.order;
    desc.slots = form.slots;
    desc.site = "a bucket of gradients";
    return desc;
}

void zero(Stream& stream, void* data, int64_t bytes) {
    if (bytes > 0) {
        stream.zero(data, static_cast<std::size_t>(bytes));
    }
}

} // namespace

GradientBuckets::GradientBuckets(Stream& stream, comm::Communicator& comm, const ShardPlan& plan,
                                 const GradientForm& form,
                                 std::vector<std::shared_ptr<Tensor>> gradients,
                                 comm::MessageCounts& messages)
    : comm_(comm), plan_(plan), form_(form), gradients_(std::move(gradients)),
      buckets_(plan.buckets().size()), sum_offsets_(gradients_.size(), -1),
      scales_(stream, plan, shard(), shares_of(form_.wires), contributions(), form_.lane),
      messages_(messages) {
    int64_t total = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        const ShardBucket& of_plan = plan.buckets()[i];
        Bucket& bucket = buckets_[i];
        if (!of_plan.parameters.empty()) {
            bucket.wire = form_.wires[static_cast<std::size_t>(of_plan.parameters[0])];
        }
        if (!bucket.wire.exists()) {
            continue;
        }
        lay_out(bucket, of_plan);
        bucket.first_sum = total;
        const DType sums = sum_dtype(bucket.wire);
        int64_t at = total;
        for (const ShardSlice& slice : of_plan.slices_of(shard())) {
            sum_offsets_[static_cast<std::size_t>(slice.parameter)] = at;
            at += bytes_of(sums, with_gap(slice.count));
        }
        total += bytes_of(sums, own_count(bucket));
        reset(bucket, of_plan);
    }
    sums_ = SumsMemory(stream, form_.lane, static_cast<std::size_t>(total));
}

// By the rank that is sent to, and inside its slices by the node that it goes on to. Without nodes, ranks beyond the plan's
// are replicas.
void GradientBuckets::lay_out(Bucket& bucket, const ShardBucket& plan) const {
    const int32_t nodes = form_.nodes != nullptr ? form_.nodes->size() : 1;
    bucket.counts.assign(static_cast<std::size_t>(comm_.size()), 0);
    bucket.node_counts.assign(static_cast<std::size_t>(nodes), 0);
    int64_t at = 0;
    for (int32_t to = 0; to < comm_.size(); ++to) {
        for (int32_t node = 0; node < nodes; ++node) {
            const int32_t owner = (node * comm_.size() + to) % plan_.ranks();
            for (const ShardSlice& slice : plan.slices_of(owner)) {
                bucket.slices.push_back(slice);
                bucket.offsets.push_back(at);
                const int64_t count = with_gap(slice.count);
                at += count;
                bucket.counts[static_cast<std::size_t>(to)] += count;
                bucket.node_counts[static_cast<std::size_t>(node)] +=
                    to == comm_.rank() ? count : 0;
            }
        }
    }
}

void GradientBuckets::reset(Bucket& bucket, const ShardBucket& plan) const {
    bucket.is_ready.assign(plan.parameters.size(), false);
    bucket.missing = static_cast<int32_t>(plan.parameters.size());
}

bool GradientBuckets::is_under_way(int32_t index) const {
    return buckets_[static_cast<std::size_t>(index)].has_sum ||
           std::any_of(in_flight_.begin(), in_flight_.end(),
                       [&](const InFlightBucket& bucket) { return bucket.bucket() == index; });
}

int32_t GradientBuckets::own_slots() const noexcept {
    return comm::has_slots(form_.order) && form_.slots > 0
               ? comm::slots_of(comm_.rank(), comm_.size(), form_.slots).count()
               : 1;
}

int32_t GradientBuckets::contributions() const noexcept {
    const int32_t here =
        comm::has_slots(form_.order) && form_.slots > 0 ? form_.slots : comm_.size();
    const comm::Communicator* across = form_.nodes != nullptr ? form_.nodes : form_.replicas;
    return across != nullptr ? here * across->size() : here;
}

void GradientBuckets::acquire(Stream& stream, int32_t parameter) {
    form_.lent->restore(stream, *gradients_[static_cast<std::size_t>(parameter)],
                        {"gradient", parameter});
}

void GradientBuckets::ready(Stream& stream, int32_t parameter) {
    const int32_t index = plan_.bucket_of(parameter);
    const std::size_t place = plan_.buckets()[static_cast<std::size_t>(index)].place_of(parameter);
    if (buckets_[static_cast<std::size_t>(index)].is_ready[place]) {
        fail(Code::bad_state,
             "optimizer: the gradient of parameter %d is ready for the second time since the last "
             "reduction of its bucket",
             parameter);
    }
    check_acquired(*gradients_[static_cast<std::size_t>(parameter)], parameter);
    set_ready(stream, index, place);
}

void GradientBuckets::set_ready(Stream& stream, int32_t index, std::size_t place) {
    const bool is_kept = !form_.drops_gradients && !form_.zeroes_gradients && own_slots() == 1;
    if (is_kept && is_under_way(index)) {
        fail(
            Code::bad_state,
            "optimizer: the gradients of parameter %d are on their way already in this step, and "
            "still "
            "in the tensor; say that they are ready once a step, after the last microbatch, or use "
            "MP_OPTIMIZER_ZERO_GRAD",
            plan_.buckets()[static_cast<std::size_t>(index)].parameters[place]);
    }
    Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
    bucket.is_ready[place] = true;
    if (--bucket.missing == 0) {
        stage(stream, index);
        if (static_cast<int32_t>(bucket.contributions.size()) == own_slots()) {
            send(stream, index);
        }
    }
}

comm::Advance GradientBuckets::step(Stream& stream) {
    comm::Advance all = comm::Advance::done;
    // Of those that are not done. None is first where groups' messages are kernels of one device: NCCL's may wait for each
    // other there, unless all ranks begin them in one order, and that is the one in which the calls wait for buckets.
    bool is_first = !comm_.caps().device_memory;
    for (InFlightBucket& bucket : in_flight_) {
        if (bucket.can_step(is_first)) {
            all = bucket.step(stream);
            messages_.finished += bucket.is_done() ? 1 : 0;
            if (all != comm::Advance::waits) {
                return comm::Advance::moved; // the others are looked at in the next step
            }
        }
        is_first = is_first && bucket.is_done();
    }
    return all;
}

void GradientBuckets::end_slot(Stream& stream) {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        const auto index = static_cast<int32_t>(i);
        Bucket& bucket = buckets_[i];
        const bool has_contribution = bucket.is_staged || (own_slots() > 1 && is_under_way(index));
        const std::vector<bool> was_ready = bucket.is_ready; // it is reset when the last one leaves
        for (std::size_t place = 0; place < was_ready.size() && !has_contribution; ++place) {
            if (!was_ready[place]) {
                set_ready(stream, index, place);
            }
        }
        bucket.is_staged = false;
    }
}

// One contribution of a bucket in memory of its own, in the order of the owners, gaps zero.
void GradientBuckets::stage(Stream& stream, int32_t index) {
    const ShardBucket& of_plan = plan_.buckets()[static_cast<std::size_t>(index)];
    Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
    if (static_cast<int32_t>(bucket.contributions.size()) >= own_slots()) {
        fail(Code::bad_state,
             "optimizer: this rank has more contributions than its %d slot(s) of a step",
             own_slots());
    }
    const DType dtype = staging_dtype(bucket.wire);
    const int64_t count = comm::total_of(bucket.counts);
    auto memory =
        std::make_unique<Scratch>(stream, static_cast<std::size_t>(bytes_of(dtype, count)));
    auto* base = static_cast<unsigned char*>(memory->data());
    for (std::size_t i = 0; i < bucket.slices.size(); ++i) {
        const ShardSlice& slice = bucket.slices[i];
        Tensor& gradient = *gradients_[static_cast<std::size_t>(slice.parameter)];
        unsigned char* at = base + bytes_of(dtype, bucket.offsets[i]);
        if (gradient.has_memory()) {
            comm::pack(stream, source_of(gradient), slice.start, slice.count,
                       comm::wire_format(dtype), at);
        } else {
            zero(stream, at, bytes_of(dtype, slice.count)); // nobody wrote it
        }
        zero(stream, at + bytes_of(dtype, slice.count),
             bytes_of(dtype, with_gap(slice.count) - slice.count));
    }
    bucket.contributions.push_back(std::move(memory));
    bucket.is_staged = true;
    give_back(stream, of_plan);
    reset(bucket, of_plan);
}

void GradientBuckets::give_back(Stream& stream, const ShardBucket& plan) {
    for (const int32_t parameter : plan.parameters) {
        Tensor& gradient = *gradients_[static_cast<std::size_t>(parameter)];
        if (form_.drops_gradients && !stays(gradient)) {
            form_.lent->drop(stream, gradient);
        } else if (form_.drops_gradients || form_.zeroes_gradients || own_slots() > 1) {
            zero(stream, gradient.data(), static_cast<int64_t>(gradient.bytes()));
        }
    }
}

int32_t GradientBuckets::shard() const noexcept {
    const int32_t before = form_.nodes != nullptr ? form_.nodes->rank() * comm_.size() : 0;
    return (before + comm_.rank()) % plan_.ranks();
}

int64_t GradientBuckets::own_count(const Bucket& bucket) const {
    return form_.nodes != nullptr
               ? bucket.node_counts[static_cast<std::size_t>(form_.nodes->rank())]
               : bucket.counts[static_cast<std::size_t>(comm_.rank())];
}

TensorRef GradientBuckets::own_sums(const Bucket& bucket) const {
    return {sums_.data() + bucket.first_sum, own_count(bucket), sum_dtype(bucket.wire)};
}

void GradientBuckets::send(Stream& stream, int32_t index) {
    drop_done();
    while (in_flight_.size() >= kMostInFlight) {
        land_first(stream);
    }
    Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
    comm::ReduceDesc desc = desc_of(form_, bucket.wire);
    desc.written_first = sums_.device_bytes(); // they are read when all are there
    InFlightBucket::Load load;
    load.bucket = index;
    load.staged = staging_dtype(bucket.wire);
    // Scratch memory of another queue, which may use it again as soon as it is given back.
    const bool is_of_others =
        comm::is_ordered(stream, comm_) &&
        std::any_of(bucket.contributions.begin(), bucket.contributions.end(),
                    [&](const auto& memory) { return &memory->stream() != &stream; });
    load.counts = &bucket.counts;
    if (comm::is_shared(bucket.wire)) {
        load.shared = std::make_unique<SharedBucket>(
            stream, comm_, scales_,
            SharedBucket::Layout{&plan_.buckets()[static_cast<std::size_t>(index)], &bucket.slices,
                                 &bucket.offsets, &bucket.counts},
            std::move(bucket.contributions));
    } else {
        load.contributions = std::move(bucket.contributions);
    }
    if (form_.between != nullptr && comm::may_be_lent(desc)) {
        const StagedLayout layout = {&bucket.slices, &bucket.offsets, &bucket.counts};
        load.between = form_.between;
        load.lent = lent_slots(layout, load.contributions, load.staged, gradients_);
        load.pieces = lent_pieces(layout, comm_.rank());
    }
    bucket.contributions.clear();
    load.sums = own_sums(bucket);
    load.lane = form_.lane;
    load.adds =
        is_under_way(index); // buckets end in their order, so this sum comes after the other
    load.begins_in_order = comm::traits(form_.order).is_fixed || scales_.exist();
    load.replicas = form_.replicas;
    load.nodes = form_.nodes;
    load.node_counts = &bucket.node_counts;
    in_flight_.emplace_back(stream, comm_, desc, std::move(load));
    ++messages_.begun;
    if (is_of_others) {
        land(stream);
        stream.sync();
    }
}

void GradientBuckets::land_first(Stream& stream) {
    if (!in_flight_.front().is_done()) {
        in_flight_.front().wait(stream);
        ++messages_.finished;
    }
    drop_done();
}

void GradientBuckets::drop_done() {
    while (!in_flight_.empty() && in_flight_.front().is_done()) {
        buckets_[static_cast<std::size_t>(in_flight_.front().bucket())].has_sum = true;
        in_flight_.pop_front();
    }
}

void GradientBuckets::finish(Stream& stream) {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        const auto index = static_cast<int32_t>(i);
        Bucket& bucket = buckets_[i];
        if (!bucket.wire.exists()) {
            continue;
        }
        const auto parameters = static_cast<int32_t>(plan_.buckets()[i].parameters.size());
        const bool is_begun = bucket.missing < parameters;
        if (is_begun || (bucket.contributions.empty() && !is_under_way(index))) {
            // Who reads them has done so when this is over. Those that are zeroed or dropped are so once they left.
            const bool is_kept = !form_.drops_gradients && !form_.zeroes_gradients;
            if (is_kept && own_slots() == 1 && form_.between != nullptr &&
                comm::may_be_lent(desc_of(form_, bucket.wire)) &&
                lie_as_staged(bucket.slices, gradients_, staging_dtype(bucket.wire))) {
                bucket.contributions.push_back(nullptr);
                reset(bucket, plan_.buckets()[i]);
            } else {
                stage(stream, index);
            }
        }
        if (bucket.contributions.empty()) {
            continue;
        }
        if (static_cast<int32_t>(bucket.contributions.size()) != own_slots()) {
            fail(Code::bad_state,
                 "optimizer: this rank has %zu of its %d slots of this step; call "
                 "mp_optimizer_end_microbatch after each",
                 bucket.contributions.size(), own_slots());
        }
        send(stream, index);
    }
    land(stream);
    if (form_.lane != nullptr) {
        scales_.leave(stream);
        form_.lane->wait(stream);
    }
}

void GradientBuckets::land(Stream& stream) {
    while (!in_flight_.empty()) {
        land_first(stream);
    }
}

void GradientBuckets::start_over() noexcept {
    in_flight_.clear();
    for (Bucket& bucket : buckets_) {
        bucket.has_sum = false;
        bucket.is_staged = false;
    }
}

bool GradientBuckets::is_idle() const {
    const auto waits = [](const Bucket& bucket) {
        return !bucket.wire.exists() ||
               (bucket.missing == static_cast<int32_t>(bucket.is_ready.size()) &&
                bucket.contributions.empty() && !bucket.is_staged && !bucket.has_sum);
    };
    return in_flight_.empty() && std::all_of(buckets_.begin(), buckets_.end(), waits);
}

ArrayRef GradientBuckets::sum_of(int32_t parameter) const {
    const auto i = static_cast<std::size_t>(parameter);
    const int64_t count = plan_.slice_on(parameter, shard()).count;
    const TensorRef sums = {count == 0 ? nullptr : sums_.data() + sum_offsets_[i], count,
                            sum_dtype(form_.wires[i])};
    return scales_.shares(parameter) ? scaled_array(sums, scales_.step_scale(parameter))
                                     : plain_array(sums);
}

} // namespace mp::shard
