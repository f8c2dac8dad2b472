// SPDX-License-Identifier: Apache-2.0
#include "shard/sharding.hpp"

#include <algorithm>
#include <new>

#include "comm/arrival.hpp"
#include "comm/capture.hpp"

namespace mp::shard {
namespace {

std::vector<std::shared_ptr<Tensor>> gradients_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<std::shared_ptr<Tensor>> gradients;
    gradients.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        gradients.push_back(tensor.grad);
    }
    return gradients;
}

// The second message has a field for each parameter, so ranks agree on their number first. Returns whether the gradients and
// weights of all ranks lie in memory that they share.
bool agree(Stream& stream, const ShardGroups& groups, const ShardPlan& plan,
           const std::vector<ShardedTensor>& tensors, const Definition& definition) {
    comm::Agreement first;
    for (const Common& setting : definition.settings) {
        first.must_equal(setting.name.c_str(), setting.value, setting.shown.c_str());
    }
    first.must_equal("the number of parameters", definition.parameters.size());
    check(first.reach(groups.all()));
    comm::Agreement agreement;
    for (const Common& parameter : definition.parameters) {
        agreement.must_equal(parameter.name.c_str(), parameter.value, parameter.shown.c_str());
    }
    agreement.must_equal("the shard plan", plan.hash());
    agreement.must_equal("the initial weights (mp_comm_broadcast makes them equal)",
                         first_values_hash(stream, tensors));
    const bool lends = stream.device().is_host() && groups.all().caps().lends_memory;
    const uint32_t is_apart = lends ? 0 : 1;
    const std::size_t some_rank = agreement.add_maxima({&is_apart, 1});
    check(agreement.reach(groups.all()));
    return agreement.maximum(some_rank) == 0;
}

std::unique_ptr<GradientBuckets> make_buckets(Stream& stream, const ShardingOptions& options,
                                              const ShardGroups& groups, ShardCut& cut,
                                              GradientForm form, comm::MessageCounts& messages) {
    form.lent = &cut.lent;
    for (const ShardedTensor& tensor : cut.tensors) {
        form.wires.push_back(tensor.wire);
    }
    form.order = options.order;
    form.slots = options.slots;
    form.drops_gradients = options.stage >= 2;
    // Every rank sends each of its contributions to their owner, or to all replicas of it.
    comm::Communicator* first = groups.auxiliary() != nullptr ? groups.auxiliary() : &groups.all();
    if (groups_add_first(options, groups.all().size(), cut.shares_scales())) {
        first = &groups.shards();
        form.slots = options.slots / groups.group_count();
        form.replicas = groups.replicas();
    } else if (groups.node() != nullptr) {
        first = groups.node();
        form.nodes = groups.across_nodes();
    }
    return std::make_unique<GradientBuckets>(stream, *first, cut.plan, form,
                                             gradients_of(cut.tensors), messages);
}

} // namespace

Sharding::Sharding(const std::shared_ptr<Context>& context, Stream& stream,
                   const ShardingOptions& options, bool zeroes_gradients,
                   std::shared_ptr<HostLane> lane, std::vector<ShardedTensor> tensors,
                   const Definition& definition)
    : options_(options), zeroes_gradients_(zeroes_gradients), lane_(std::move(lane)),
      groups_(options.comm, options.shard_ranks, options.node_ranks,
              comm::traits(options.order).is_fixed || comm::is_shared(options.wire)),
      progress_(groups_), cut_(make_plan(std::move(tensors))) {
    const bool lends = agree(stream, groups_, cut_->plan, cut_->tensors, definition);
    or_abort([&] {
        Stream* own = progress_.open_stream(*context, stream);
        between_ = lends ? own : nullptr;
        groups_.join();
        fill(context, stream, *cut_, nullptr);
        if (options_.stage >= 2) {
            cut_->drop_gradients(stream);
        }
        progress_.start(stream, options_.progress_thread,
                        [this](Stream& moving) { return step(moving); });
    });
}

// ---- another list of parameters

std::unique_ptr<ShardCut> Sharding::make_plan(std::vector<ShardedTensor> tensors) const {
    return std::make_unique<ShardCut>(
        std::move(tensors),
        ShardOptions{options_.kind, groups_.shard_ranks(), options_.bucket_elements});
}

void Sharding::fill(const std::shared_ptr<Context>& context, Stream& stream, ShardCut& cut,
                    const ShardCut* before) const {
    cut.keep_lent(options_.stage);
    cut.make_sums(groups_.shards());
    GradientForm form;
    form.between = between_;
    form.lane = lane_.get();
    form.zeroes_gradients = zeroes_gradients_;
    cut.buckets = make_buckets(stream, options_, groups_, cut, form, progress_.messages());
    cut.weights = std::make_unique<ShardedWeights>(
        context, stream, options_.stage, groups_.shards(), cut.plan, cut.tensors, cut.lent,
        progress_.messages(), between_, before != nullptr ? before->weights.get() : nullptr);
    check(groups_.all().reserve(cut.buckets->scales().agreement_bytes()));
    if (options_.stage == 0) {
        cut.make_full_sums(context, stream, before);
    }
    if (before != nullptr) {
        cut.buckets->scales().follow(stream, before->buckets->scales());
    }
}

std::unique_ptr<ShardCut> Sharding::make_cut(const std::shared_ptr<Context>& context,
                                             Stream& stream,
                                             std::vector<ShardedTensor> tensors) const {
    std::unique_ptr<ShardCut> cut = make_plan(std::move(tensors));
    fill(context, stream, *cut, cut_.get());
    return cut;
}

void Sharding::exchange(std::unique_ptr<ShardCut>& cut) {
    const auto lock = progress_.lock();
    cut_.swap(cut);
}

void Sharding::refuse_under_way(Stream& stream) {
    const auto lock = progress_.lock();
    use(stream);
    const auto has_gradient = [this](const ShardedTensor& tensor) {
        return options_.stage >= 2 && !tensor.is_frozen() && !stays(*tensor.grad) &&
               tensor.grad->data() != nullptr;
    };
    const auto is_gathered = [this](const ShardedTensor& tensor) {
        return options_.stage == 3 && tensor.param->data() != nullptr;
    };
    const std::vector<ShardedTensor>& tensors = cut_->tensors;
    if (!cut_->buckets->is_idle() || std::any_of(tensors.begin(), tensors.end(), has_gradient)) {
        fail(Code::bad_state,
             "optimizer: gradients of this step are there already, or on their way to their "
             "owners; change parameters after mp_optimizer_step, before the next backward pass");
    }
    if (!cut_->weights->is_idle() || std::any_of(tensors.begin(), tensors.end(), is_gathered)) {
        fail(Code::bad_state, "optimizer: weights are gathered, or on their way; give them back "
                              "(mp_optimizer_gather_free) before parameters change");
    }
}

void Sharding::fetch(Stream& stream, std::span<const int32_t> parameters) {
    const auto lock = progress_.lock();
    or_abort([&] { cut_->weights->fetch(stream, parameters); });
}

void Sharding::publish_some(Stream& stream, std::span<const int32_t> parameters) {
    const auto lock = progress_.lock();
    or_abort([&] { cut_->weights->publish_some(stream, parameters); });
}

// ---- gradients on their way

comm::Advance Sharding::step(Stream& stream) {
    const comm::Advance of_buckets = cut_->buckets->step(stream);
    const comm::Advance of_weights = cut_->weights->step(stream);
    return of_buckets == comm::Advance::moved || of_weights == comm::Advance::done ? of_buckets
                                                                                   : of_weights;
}

void Sharding::move_on(Stream& stream) {
    while (!progress_.has_thread() && cut_->buckets->step(stream) == comm::Advance::moved) {
    }
}

void Sharding::use(Stream& stream) {
    check(groups_.status());
    comm::refuse_capture(stream);
    change_to(stream);
}

// What the device orders it orders by queue: a caller that takes another one waits for what the last one has.
void Sharding::change_to(Stream& stream) {
    const std::shared_ptr<Stream> last = last_stream_.lock();
    if (last != nullptr && last.get() != &stream && comm::is_ordered(*last, groups_.all())) {
        cut_->buckets->land(*last);
        cut_->weights->land(*last);
        last->sync();
    }
    last_stream_ = stream.weak_from_this();
}

// The pool orders its memory; that of the caller's may be what the last queue still packs from.
void Sharding::acquire_grad(Stream& stream, int32_t parameter) {
    const std::shared_ptr<Stream> last = last_stream_.lock();
    if (last != nullptr && last.get() != &stream && cut_->buckets->is_placed(parameter)) {
        last->sync();
    }
    cut_->buckets->acquire(stream, parameter);
}

void Sharding::grad_ready(Stream& stream, int32_t parameter) {
    const auto lock = progress_.lock();
    use(stream);
    cut_->buckets->ready(stream, parameter);
    move_on(stream);
}

void Sharding::end_microbatch(Stream& stream) {
    const auto lock = progress_.lock();
    use(stream);
    cut_->buckets->end_slot(stream);
    move_on(stream);
}

// ---- the step's exchanges

Status Sharding::reserve(comm::Agreement& agreement) const {
    const auto lock = progress_.lock();
    return agreement.reserve(groups_.all());
}

Status Sharding::reach(comm::Agreement& agreement) const {
    const auto lock = progress_.lock();
    return agreement.reach(groups_.all());
}

ArrayRef Sharding::gradient_of(int32_t parameter) const {
    ArrayRef sum = cut_->buckets->sum_of(parameter);
    if (options_.stage == 0) { // all of it, under the same scale
        const Tensor& full = *cut_->full_sums[static_cast<std::size_t>(parameter)];
        sum.data = full.data();
        sum.columns = full.count();
        sum.format.dtype = full.dtype();
    }
    return sum;
}

double Sharding::divisor() const noexcept {
    return options_.sum_gradients ? 1.0 : static_cast<double>(cut_->buckets->contributions());
}

std::unique_ptr<ContentHash> Sharding::weights_hash(Stream& stream, int64_t step) const {
    if (options_.check_every == 0 || options_.stage == 3 || step % options_.check_every != 0) {
        return nullptr;
    }
    auto hash = std::make_unique<ContentHash>(stream);
    for (const ShardedTensor& tensor : cut_->tensors) {
        add_all(*hash, *tensor.param);
    }
    return hash;
}

void Sharding::reduce(Stream& stream) {
    const auto lock = progress_.lock();
    use(stream);
    const auto body = [&] {
        cut_->buckets->finish(stream);
        if (options_.stage != 0) {
            return;
        }
        std::vector<GatherTarget> targets;
        for (std::size_t i = 0; i < cut_->tensors.size(); ++i) {
            const auto parameter = static_cast<int32_t>(i);
            if (cut_->tensors[i].is_frozen()) {
                continue;
            }
            targets.push_back({&cut_->plan.slices_of(parameter), slice_of(*cut_->full_sums[i]),
                               plain_array(cut_->buckets->sum_of(parameter).elements()),
                               cut_->full_sums[i]->dtype()});
        }
        WeightGather(stream, groups_.shards(), std::move(targets), between_, true).finish(stream);
    };
    try {
        or_abort(body);
    } catch (...) {
        cut_->buckets->start_over(); // the gradients are the caller's again
        throw;
    }
}

void Sharding::publish(Stream& stream) {
    const auto lock = progress_.lock();
    change_to(stream);
    cut_->buckets->start_over();
    cut_->weights->publish(stream);
}

void Sharding::end() noexcept {
    const auto lock = progress_.lock();
    if (const std::shared_ptr<Stream> last = last_stream_.lock(); last != nullptr) {
        (void)last->followed().await();
    }
    cut_->buckets->start_over();
    cut_->weights->drop();
}

void Sharding::begin_gather(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage == 3) {
        const auto lock = progress_.lock();
        use(stream);
        cut_->weights->begin_gather(stream, parameters);
    }
}

void Sharding::wait_gather(Stream& stream, std::span<const int32_t> parameters) {
    for (const int32_t parameter : parameters) {
        cut_->tensors[static_cast<std::size_t>(parameter)].param->require_memory(
            "optimizer: a parameter that is waited for, and not being gathered,");
    }
    if (options_.stage == 3) {
        const auto lock = progress_.lock();
        use(stream);
        cut_->weights->wait_gather(stream, parameters);
    }
}

void Sharding::release(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage == 3) {
        const auto lock = progress_.lock();
        comm::refuse_capture(stream);
        change_to(stream);
        cut_->weights->release(stream, parameters);
    }
}

PlacedSums Sharding::all_sums(Stream& stream, const PlacedSums& own,
                              std::span<const int32_t> parameters) {
    const auto lock = progress_.lock();
    return cut_->sums->exchange(stream, own, parameters);
}

void Sharding::decline_sums() const {
    const auto lock = progress_.lock();
    cut_->sums->decline();
}

int64_t Sharding::gradient_bytes() const noexcept {
    int64_t total = cut_->buckets->bytes() + cut_->buckets->host_bytes();
    for (const std::shared_ptr<Tensor>& sums : cut_->full_sums) {
        total += sums != nullptr ? static_cast<int64_t>(sums->bytes()) : 0;
    }
    return total;
}

} // namespace mp::shard
