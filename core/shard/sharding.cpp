// SPDX-License-Identifier: Apache-2.0
#include "shard/sharding.hpp"

#include <algorithm>
#include <new>

#include "comm/arrival.hpp"
#include "comm/capture.hpp"
#include "tensor/content_hash.hpp"

namespace mp::shard {
namespace {

std::vector<int64_t> counts_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<int64_t> counts;
    counts.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        counts.push_back(tensor.param->count());
    }
    return counts;
}

std::vector<int32_t> kinds_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<int32_t> kinds;
    kinds.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        kinds.push_back(bucket_kind(tensor.wire));
    }
    return kinds;
}

std::vector<bool> trained_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<bool> trained;
    trained.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        trained.push_back(!tensor.is_frozen());
    }
    return trained;
}

bool shares_scales(const std::vector<ShardedTensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [](const ShardedTensor& tensor) { return comm::is_shared(tensor.wire); });
}

std::vector<std::shared_ptr<Tensor>> gradients_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<std::shared_ptr<Tensor>> gradients;
    gradients.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        gradients.push_back(tensor.grad);
    }
    return gradients;
}

uint64_t first_values_hash(Stream& stream, const std::vector<ShardedTensor>& tensors) {
    ContentHash hash(stream);
    for (const ShardedTensor& tensor : tensors) {
        const Tensor& values = tensor.init_fp32 != nullptr ? *tensor.init_fp32 : *tensor.param;
        if (values.has_memory()) { // a deferred one has none
            hash.add(values);
        }
    }
    return hash.value();
}

// Groups that somebody aborts notify the others at once; nothing has been changed by then.
template <typename Body> void or_abort(const ShardGroups& groups, const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        groups.abort(error.status());
        throw;
    } catch (const std::bad_alloc&) {
        groups.abort(Status::error(Code::out_of_memory, "optimizer: no memory for an exchange"));
        throw;
    }
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
                                              const ShardGroups& groups, const ShardPlan& plan,
                                              const std::vector<ShardedTensor>& tensors,
                                              bool zeroes_gradients, Stream* between,
                                              comm::MessageCounts& messages) {
    GradientForm form;
    form.between = between;
    for (const ShardedTensor& tensor : tensors) {
        form.wires.push_back(tensor.wire);
    }
    form.order = options.order;
    form.slots = options.slots;
    form.drops_gradients = options.stage >= 2;
    form.zeroes_gradients = zeroes_gradients;
    // Every rank sends each of its contributions to their owner, or to all replicas of it.
    comm::Communicator* first = groups.auxiliary() != nullptr ? groups.auxiliary() : &groups.all();
    if (groups_add_first(options, groups.all().size(), shares_scales(tensors))) {
        first = &groups.shards();
        form.slots = options.slots / groups.group_count();
        form.replicas = groups.replicas();
    } else if (groups.node() != nullptr) {
        first = groups.node();
        form.nodes = groups.across_nodes();
    }
    return std::make_unique<GradientBuckets>(stream, *first, plan, form, gradients_of(tensors),
                                             messages);
}

} // namespace

Sharding::Sharding(const std::shared_ptr<Context>& context, Stream& stream,
                   const ShardingOptions& options, bool zeroes_gradients,
                   std::vector<ShardedTensor> tensors, const Definition& definition)
    : options_(options), tensors_(std::move(tensors)),
      groups_(options.comm, options.shard_ranks, options.node_ranks,
              comm::traits(options.order).is_fixed || shares_scales(tensors_)),
      plan_({options.kind, groups_.shard_ranks(), options.bucket_elements}, counts_of(tensors_),
            kinds_of(tensors_)),
      chunk_sums_(groups_.shards(), plan_, trained_of(tensors_)), progress_(groups_) {
    const bool lends = agree(stream, groups_, plan_, tensors_, definition);
    or_abort(groups_, [&] {
        Stream* own = progress_.open_stream(*context, stream);
        between_ = lends ? own : nullptr;
        groups_.join();
        buckets_ = make_buckets(stream, options_, groups_, plan_, tensors_, zeroes_gradients,
                                between_, progress_.messages());
        weights_ =
            std::make_unique<ShardedWeights>(context, stream, options_.stage, groups_.shards(),
                                             plan_, tensors_, progress_.messages(), between_);
        for (const ShardedTensor& tensor : tensors_) {
            if (options_.stage == 0) { // of frozen ones none
                full_sums_.push_back(tensor.is_frozen() ? nullptr
                                                        : std::make_shared<Tensor>(
                                                              context, stream, tensor.sum,
                                                              Shape{{tensor.param->count()}, 1}));
            }
            if (options_.stage >= 2 && !tensor.is_frozen()) {
                tensor.grad->drop_memory(stream);
            }
        }
        progress_.start(stream, options_.progress_thread,
                        [this](Stream& moving) { return step(moving); });
    });
}

// ---- gradients on their way

comm::Advance Sharding::step(Stream& stream) {
    const comm::Advance of_buckets = buckets_->step(stream);
    const comm::Advance of_weights = weights_->step(stream);
    return of_buckets == comm::Advance::moved || of_weights == comm::Advance::done ? of_buckets
                                                                                   : of_weights;
}

void Sharding::move_on(Stream& stream) {
    while (!progress_.has_thread() && buckets_->step(stream) == comm::Advance::moved) {
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
        buckets_->land(*last);
        weights_->land(*last);
        last->sync();
    }
    last_stream_ = stream.weak_from_this();
}

void Sharding::acquire_grad(Stream& stream, int32_t parameter) {
    buckets_->acquire(stream, parameter);
}

void Sharding::grad_ready(Stream& stream, int32_t parameter) {
    const auto lock = progress_.lock();
    use(stream);
    buckets_->ready(stream, parameter);
    move_on(stream);
}

void Sharding::end_microbatch(Stream& stream) {
    const auto lock = progress_.lock();
    use(stream);
    buckets_->end_slot(stream);
    move_on(stream);
}

// ---- the step's exchanges

Status Sharding::reach(comm::Agreement& agreement) const {
    const auto lock = progress_.lock();
    return agreement.reach(groups_.all());
}

ArrayRef Sharding::gradient_of(int32_t parameter) const {
    ArrayRef sum = buckets_->sum_of(parameter);
    if (options_.stage == 0) { // all of it, under the same scale
        const Tensor& full = *full_sums_[static_cast<std::size_t>(parameter)];
        sum.data = full.data();
        sum.columns = full.count();
        sum.format.dtype = full.dtype();
    }
    return sum;
}

double Sharding::divisor() const noexcept {
    return options_.sum_gradients ? 1.0 : static_cast<double>(buckets_->contributions());
}

uint64_t Sharding::weights_hash(Stream& stream, int64_t step) const {
    if (options_.check_every == 0 || options_.stage == 3 || step % options_.check_every != 0) {
        return 0;
    }
    ContentHash hash(stream);
    for (const ShardedTensor& tensor : tensors_) {
        hash.add(*tensor.param);
        if (tensor.param->scales() != nullptr) {
            hash.add(*scale_of(tensor.param));
        }
    }
    return hash.value();
}

void Sharding::reduce(Stream& stream) {
    const auto lock = progress_.lock();
    use(stream);
    const auto body = [&] {
        buckets_->finish(stream);
        if (options_.stage != 0) {
            return;
        }
        std::vector<GatherTarget> targets;
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const auto parameter = static_cast<int32_t>(i);
            if (tensors_[i].is_frozen()) {
                continue;
            }
            targets.push_back({&plan_.slices_of(parameter), slice_of(*full_sums_[i]),
                               plain_array(buckets_->sum_of(parameter).elements()),
                               full_sums_[i]->dtype()});
        }
        WeightGather(stream, groups_.shards(), std::move(targets), between_, true).finish(stream);
    };
    try {
        or_abort(groups_, body);
    } catch (...) {
        buckets_->start_over(); // the gradients are the caller's again
        throw;
    }
}

void Sharding::publish(Stream& stream) {
    const auto lock = progress_.lock();
    change_to(stream);
    buckets_->start_over();
    weights_->publish(stream);
}

void Sharding::end() noexcept {
    const auto lock = progress_.lock();
    if (const std::shared_ptr<Stream> last = last_stream_.lock(); last != nullptr) {
        (void)last->followed().await();
    }
    buckets_->start_over();
    weights_->drop();
}

void Sharding::begin_gather(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage == 3) {
        const auto lock = progress_.lock();
        use(stream);
        weights_->begin_gather(stream, parameters);
    }
}

void Sharding::wait_gather(Stream& stream, std::span<const int32_t> parameters) {
    for (const int32_t parameter : parameters) {
        tensors_[static_cast<std::size_t>(parameter)].param->require_memory(
            "optimizer: a parameter that is waited for, and not being gathered,");
    }
    if (options_.stage == 3) {
        const auto lock = progress_.lock();
        use(stream);
        weights_->wait_gather(stream, parameters);
    }
}

void Sharding::release(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage == 3) {
        const auto lock = progress_.lock();
        comm::refuse_capture(stream);
        change_to(stream);
        weights_->release(stream, parameters);
    }
}

std::vector<double> Sharding::all_sums(std::span<const double> own,
                                       std::span<const int32_t> parameters) const {
    const auto lock = progress_.lock();
    return chunk_sums_.on_host(own, parameters);
}

std::optional<ChunkSumExchange::Placed>
Sharding::all_sums_on_device(Stream& stream, const double* own,
                             std::span<const int32_t> parameters) {
    const auto lock = progress_.lock();
    return chunk_sums_.on_device(stream, own, parameters);
}

int64_t Sharding::gradient_bytes() const noexcept {
    int64_t total = buckets_->bytes();
    for (const std::shared_ptr<Tensor>& sums : full_sums_) {
        total += sums != nullptr ? static_cast<int64_t>(sums->bytes()) : 0;
    }
    return total;
}

} // namespace mp::shard
