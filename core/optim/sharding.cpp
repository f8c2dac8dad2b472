// SPDX-License-Identifier: Apache-2.0
#include "optim/sharding.hpp"

#include <algorithm>
#include <cstring>

#include "quant/quantize.hpp"
#include "system/fnv.hpp"

namespace mp {
namespace {

std::vector<int64_t> counts_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<int64_t> counts;
    counts.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        counts.push_back(tensor.param->count());
    }
    return counts;
}

std::vector<std::shared_ptr<Tensor>> gradients_of(const std::vector<ShardedTensor>& tensors) {
    std::vector<std::shared_ptr<Tensor>> gradients;
    gradients.reserve(tensors.size());
    for (const ShardedTensor& tensor : tensors) {
        gradients.push_back(tensor.grad);
    }
    return gradients;
}

uint64_t bits_of(Stream& stream, const std::vector<ShardedTensor>& tensors) {
    Fnv64 hash;
    std::vector<unsigned char> bytes;
    for (const ShardedTensor& tensor : tensors) {
        const Tensor& first = tensor.init_fp32 != nullptr ? *tensor.init_fp32 : *tensor.param;
        bytes.resize(first.bytes());
        if (!bytes.empty()) {
            stream.copy(bytes.data(), first.data(), bytes.size(), CopyKind::device_to_host);
            stream.sync();
        }
        hash.add_words(bytes.data(), bytes.size());
    }
    return hash.value();
}

// A communicator that somebody abandons tells the others at once; nothing has been changed by then.
template <typename Body> void or_abort(comm::Communicator& comm, const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        comm.abort(error.status());
        throw;
    } catch (const std::bad_alloc&) {
        comm.abort(Status::error(Code::out_of_memory, "optimizer: no memory for an exchange"));
        throw;
    }
}

} // namespace

void check_sharding(const ShardingOptions& options, int32_t ranks) {
    if (options.stage < 0 || options.stage > 3) {
        fail(Code::invalid_argument, "optimizer: zero_stage is %d; it must be 0, 1, 2 or 3",
             options.stage);
    }
    comm::ReduceDesc desc;
    desc.wire = options.wire;
    desc.order = options.order;
    desc.slots = options.slots;
    comm::check_reduce(desc, DType::fp32, "optimizer");
    if (options.bucket_elements < 1) {
        fail(Code::invalid_argument, "optimizer: bucket_elements is %lld; it must be positive",
             static_cast<long long>(options.bucket_elements));
    }
    if (options.slots != 0 && options.slots < ranks) {
        fail(Code::invalid_argument,
             "optimizer: %d slots for %d ranks; each rank needs at least one", options.slots,
             ranks);
    }
}

Sharding::Sharding(const std::shared_ptr<Context>& context, Stream& stream,
                   const ShardingOptions& options, bool zeroes_gradients,
                   std::vector<ShardedTensor> tensors, uint64_t definition)
    : options_(options), tensors_(std::move(tensors)),
      plan_({options.kind, options.comm->size(), options.bucket_elements}, counts_of(tensors_)),
      own_weights_(tensors_.size()) {
    agree(stream, definition);
    or_abort(comm(), [&] {
        GradientForm form;
        form.wire = options_.wire;
        form.order = options_.order;
        form.slots = options_.slots;
        form.drops_gradients = options_.stage >= 2;
        form.zeroes_gradients = zeroes_gradients;
        buckets_ = std::make_unique<GradientBuckets>(stream, comm(), plan_, form,
                                                     gradients_of(tensors_), messages_);
        make_own_weights(context, stream);
        for (const ShardedTensor& tensor : tensors_) {
            if (options_.stage == 0) {
                full_sums_.push_back(std::make_shared<Tensor>(context, stream, DType::fp32,
                                                              Shape{{tensor.param->count()}, 1}));
            }
            if (options_.stage >= 2) {
                tensor.grad->drop_memory();
            }
        }
        start_thread(*context, stream);
    });
}

// ---- between calls

void Sharding::start_thread(const Context& context, const Stream& stream) {
    if (!options_.progress_thread) {
        why_no_thread_ = "it was not wanted";
    } else if (comm().size() == 1) {
        why_no_thread_ = "there is one rank";
    } else if (stream.device().kind() != DeviceKind::host) {
        why_no_thread_ = "the gradients are on a GPU, whose streams move by themselves";
    } else {
        why_no_thread_ = comm().why_one_thread();
    }
    if (stream.device().kind() == DeviceKind::host) {
        thread_stream_ =
            context.open_host_stream(1); // the other threads are in the caller's backward
    }
    if (why_no_thread_ == nullptr && !progress_.start([this] { return step_between_calls(); })) {
        why_no_thread_ = "the system has no thread left";
    }
}

comm::Advance Sharding::step_between_calls() noexcept {
    const int64_t before = messages_.finished;
    comm::Advance advance = comm::Advance::done;
    try {
        // A communicator that has ended says so in the next call.
        advance = comm().status().ok() ? step_all() : comm::Advance::done;
    } catch (const Error& error) {
        comm().abort(error.status());
    } catch (const std::exception&) {
        comm().abort(Status::error(Code::out_of_memory, "optimizer: no memory for an exchange"));
    }
    messages_.finished_by_thread += messages_.finished - before;
    return advance;
}

comm::Advance Sharding::step_all() {
    const comm::Advance of_buckets = buckets_->step(*thread_stream_);
    const auto first = std::find_if(gathers_.begin(), gathers_.end(),
                                    [](const Gather& gather) { return !gather.is_done(); });
    if (first == gathers_.end()) {
        return of_buckets;
    }
    comm::Advance of_gathers = first->step(*thread_stream_);
    if (of_gathers == comm::Advance::done) {
        ++messages_.finished;
        of_gathers = comm::Advance::moved; // there may be another one
    }
    return of_buckets == comm::Advance::moved ? of_buckets : of_gathers;
}

void Sharding::move_on(Stream& stream) {
    while (!progress_.is_running() && buckets_->step(stream) == comm::Advance::moved) {
    }
}

void Sharding::acquire_grad(Stream& stream, int32_t parameter) {
    buckets_->acquire(stream, parameter);
}

void Sharding::grad_ready(Stream& stream, int32_t parameter) {
    const Progress::Turn turn(progress_);
    check_alive();
    buckets_->ready(stream, parameter);
    move_on(stream);
}

void Sharding::end_microbatch(Stream& stream) {
    const Progress::Turn turn(progress_);
    check_alive();
    buckets_->end_slot(stream);
    move_on(stream);
}

Status Sharding::cast(Vote& vote) const {
    const Progress::Turn turn(progress_);
    return vote.cast(comm());
}

// ---- the step's exchanges

void Sharding::agree(Stream& stream, uint64_t definition) const {
    Vote vote;
    vote.must_equal("the parameters, groups, recipe or options", definition);
    vote.must_equal("the shard plan", plan_.hash());
    vote.must_equal("the initial weights (mp_comm_broadcast makes them equal)",
                    bits_of(stream, tensors_));
    check(vote.cast(comm()));
}

// Weights that are gathered rounded, or that are given back between uses, are kept exactly by their owner.
void Sharding::make_own_weights(const std::shared_ptr<Context>& context, Stream& stream) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const auto parameter = static_cast<int32_t>(i);
        const Tensor& param = *tensors_[i].param;
        const ShardPiece own = states_of(parameter);
        const DType dtype = tensors_[i].is_codes() ? tensors_[i].exact : param.dtype();
        const bool is_apart = options_.stage == 3 || tensors_[i].is_codes() ||
                              (options_.stage > 0 && tensors_[i].gather != dtype);
        if (tensors_[i].is_codes()) {
            code_parameters_.push_back(parameter);
        }
        if (is_apart && own.count > 0) {
            own_weights_[i] =
                param.scales() != nullptr && !tensors_[i].is_codes()
                    ? std::make_shared<Tensor>(context, stream, param.form(), param.shape())
                    : std::make_shared<Tensor>(context, stream, dtype, Shape{{own.count}, 1});
        }
        adopt(stream, parameter);
    }
}

void Sharding::adopt(Stream& stream, int32_t parameter) {
    const auto i = static_cast<std::size_t>(parameter);
    if (own_weights_[i] == nullptr) {
        return;
    }
    const ShardPiece own = states_of(parameter);
    tensors_[i].param->require_memory("optimizer: parameter");
    const TensorPiece from = piece_of(*tensors_[i].param, own.start, own.count);
    const TensorPiece to = piece_of(*own_weights_[i]);
    if (tensors_[i].is_codes()) {
        dequantize_matrix(stream, {from.ref, 1, own.count, kTensorScale, from.scale_inv, from.amax},
                          to.ref);
        return;
    }
    stream.copy(to.ref.data, from.ref.data,
                static_cast<std::size_t>(bytes_of(to.ref.dtype, own.count)),
                CopyKind::device_to_device);
    if (to.scale_inv != nullptr) {
        stream.copy(to.scale_inv, from.scale_inv, sizeof(float), CopyKind::device_to_device);
    }
}

ShardPiece Sharding::states_of(int32_t parameter) const {
    if (options_.stage == 0) {
        return {parameter, comm().rank(), 0,
                tensors_[static_cast<std::size_t>(parameter)].param->count()};
    }
    return plan_.piece_on(parameter, comm().rank());
}

TensorPiece Sharding::weight_of(int32_t parameter) const {
    const auto i = static_cast<std::size_t>(parameter);
    const ShardPiece own = states_of(parameter);
    return own_weights_[i] != nullptr ? piece_of(*own_weights_[i])
                                      : piece_of(*tensors_[i].param, own.start, own.count);
}

TensorRef Sharding::gradient_of(int32_t parameter) const {
    return options_.stage == 0 ? full_sums_[static_cast<std::size_t>(parameter)]->ref()
                               : buckets_->sum_of(parameter);
}

double Sharding::divisor() const noexcept {
    return options_.sum_gradients ? 1.0 : static_cast<double>(buckets_->contributions());
}

void Sharding::reduce(Stream& stream) {
    const Progress::Turn turn(progress_);
    check_alive();
    or_abort(comm(), [&] {
        buckets_->finish(stream);
        if (options_.stage == 0) {
            std::vector<GatherTarget> targets;
            for (std::size_t i = 0; i < tensors_.size(); ++i) {
                const auto parameter = static_cast<int32_t>(i);
                targets.push_back({&plan_.pieces_of(parameter),
                                   piece_of(*full_sums_[i]),
                                   {buckets_->sum_of(parameter), nullptr, nullptr, {}},
                                   DType::fp32});
            }
            WeightGather(stream, comm(), std::move(targets)).finish(stream);
        }
    });
}

// Every rank knows how many sums each other one has, and where they belong.
std::vector<double> Sharding::all_sums(std::span<const double> own,
                                       std::span<const int32_t> parameters) const {
    if (options_.stage == 0) {
        return {own.begin(), own.end()};
    }
    const auto ranks = static_cast<std::size_t>(comm().size());
    std::vector<std::vector<std::size_t>> places(ranks); // in the whole, by rank
    std::size_t total = 0;
    for (const int32_t parameter : parameters) {
        for (const ShardPiece& piece : plan_.pieces_of(parameter)) {
            for (int64_t start = 0; start < piece.count; start += kChunkElements) {
                places[static_cast<std::size_t>(piece.rank)].push_back(total++);
            }
        }
    }
    std::vector<int64_t> bytes(ranks);
    std::vector<int64_t> offsets(ranks + 1);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        bytes[rank] = static_cast<int64_t>(places[rank].size() * sizeof(double));
        offsets[rank + 1] = offsets[rank] + bytes[rank];
    }
    std::vector<double> by_rank(total);
    comm::CallOptions options;
    options.site = "sums of squares";
    const Progress::Turn turn(progress_);
    check(comm().all_gather({own.data(), static_cast<int64_t>(own.size_bytes()), by_rank.data(),
                             bytes.data(), offsets.data()},
                            options));
    std::vector<double> whole(total);
    std::size_t next = 0;
    for (const std::vector<std::size_t>& of_rank : places) {
        for (const std::size_t place : of_rank) {
            whole[place] = by_rank[next++];
        }
    }
    return whole;
}

std::vector<double> Sharding::no_sums(std::span<const int32_t> parameters) const {
    std::size_t chunks = 0;
    for (const int32_t parameter : parameters) {
        const int64_t count = states_of(parameter).count;
        chunks += static_cast<std::size_t>((count + kChunkElements - 1) / kChunkElements);
    }
    return std::vector<double>(chunks);
}

GatherTarget Sharding::target(int32_t parameter) const {
    const ShardedTensor& tensor = tensors_[static_cast<std::size_t>(parameter)];
    return {&plan_.pieces_of(parameter), piece_of(*tensor.param), weight_of(parameter),
            tensor.gather};
}

Fp8Weight Sharding::code_weight(int32_t parameter) const {
    const auto i = static_cast<std::size_t>(parameter);
    return {&plan_.pieces_of(parameter), own_weights_[i].get(), tensors_[i].param.get()};
}

void Sharding::agree_on_code_scales(Stream& stream) {
    if (code_parameters_.empty()) {
        return;
    }
    std::vector<Fp8Weight> weights;
    weights.reserve(code_parameters_.size());
    for (const int32_t parameter : code_parameters_) {
        weights.push_back(code_weight(parameter));
    }
    code_scales_ = agree_on_scales(stream, comm(), weights);
}

void Sharding::send(Stream& stream, std::vector<int32_t> parameters) {
    std::vector<GatherTarget> numbers;
    std::vector<Fp8Weight> codes;
    Fp8Scales scales;
    for (const int32_t parameter : parameters) {
        const auto found = std::find(code_parameters_.begin(), code_parameters_.end(), parameter);
        if (found == code_parameters_.end()) {
            numbers.push_back(target(parameter));
            continue;
        }
        const auto place = static_cast<std::size_t>(found - code_parameters_.begin());
        codes.push_back(code_weight(parameter));
        scales.scales.push_back(code_scales_.scales[place]);
        scales.amaxes.push_back(code_scales_.amaxes[place]);
        scales.versions.push_back(code_scales_.versions[place]);
    }
    Gather gather;
    gather.parameters = std::move(parameters);
    if (!numbers.empty()) {
        gather.numbers = std::make_unique<WeightGather>(stream, comm(), std::move(numbers));
    }
    if (!codes.empty()) {
        gather.codes =
            std::make_unique<Fp8Gather>(stream, comm(), std::move(codes), std::move(scales));
    }
    gathers_.push_back(std::move(gather));
    ++messages_.begun;
}

comm::Advance Sharding::Gather::step(Stream& stream) {
    comm::Advance advance = numbers ? numbers->step(stream) : codes->step(stream);
    if (advance == comm::Advance::done) {
        if (numbers) {
            numbers.reset();
        } else {
            codes.reset();
        }
        advance = is_done() ? comm::Advance::done : comm::Advance::moved;
    }
    return advance;
}

void Sharding::Gather::finish(Stream& stream) {
    if (numbers != nullptr) {
        numbers->finish(stream);
        numbers.reset();
    }
    if (codes != nullptr) {
        codes->finish(stream);
        codes.reset();
    }
}

void Sharding::finish_first_gather(Stream& stream) {
    Gather& gather = gathers_.front();
    if (!gather.is_done()) {
        gather.finish(stream);
        ++messages_.finished;
    }
    for (const int32_t parameter : gather.parameters) {
        tensors_[static_cast<std::size_t>(parameter)].param->touch();
    }
    gathers_.pop_front();
}

void Sharding::finish_gathers_of(Stream& stream, std::span<const int32_t> parameters) {
    const auto has_any = [&](const Gather& gather) {
        return std::find_first_of(gather.parameters.begin(), gather.parameters.end(),
                                  parameters.begin(), parameters.end()) != gather.parameters.end();
    };
    while (std::any_of(gathers_.begin(), gathers_.end(), has_any)) {
        finish_first_gather(stream);
    }
}

void Sharding::publish(Stream& stream) {
    const Progress::Turn turn(progress_);
    buckets_->start_over();
    if (options_.stage == 0) {
        return;
    }
    for (const std::shared_ptr<Tensor>& own : own_weights_) {
        if (own != nullptr) {
            own->touch();
        }
    }
    agree_on_code_scales(stream);
    if (options_.stage == 3) {
        std::vector<int32_t> all(tensors_.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = static_cast<int32_t>(i);
        }
        release_memory(stream, all);
        return;
    }
    // A bucket at a time, so that the memory of the exchange stays small.
    for (const ShardBucket& bucket : plan_.buckets()) {
        send(stream, bucket.parameters);
        if (gathers_.size() > 1) {
            finish_first_gather(stream);
        }
    }
    while (!gathers_.empty()) {
        finish_first_gather(stream);
    }
}

// ---- stage 3

void Sharding::begin_gather(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage != 3) {
        return;
    }
    const Progress::Turn turn(progress_);
    check_alive();
    std::vector<int32_t> absent;
    for (const int32_t parameter : parameters) {
        Tensor& param = *tensors_[static_cast<std::size_t>(parameter)].param;
        if (!param.has_memory()) {
            param.restore_memory(stream);
            absent.push_back(parameter);
        }
    }
    if (!absent.empty()) {
        send(stream, std::move(absent));
    }
}

void Sharding::wait_gather(Stream& stream, std::span<const int32_t> parameters) {
    for (const int32_t parameter : parameters) {
        tensors_[static_cast<std::size_t>(parameter)].param->require_memory(
            "optimizer: a parameter that is waited for, and not being gathered,");
    }
    if (options_.stage == 3) {
        const Progress::Turn turn(progress_);
        check_alive();
        finish_gathers_of(stream, parameters);
    }
}

void Sharding::release(Stream& stream, std::span<const int32_t> parameters) {
    if (options_.stage == 3) {
        const Progress::Turn turn(progress_);
        release_memory(stream, parameters);
    }
}

void Sharding::release_memory(Stream& stream, std::span<const int32_t> parameters) {
    finish_gathers_of(stream, parameters); // nobody gives back what is still arriving
    stream.sync();
    for (const int32_t parameter : parameters) {
        tensors_[static_cast<std::size_t>(parameter)].param->drop_memory();
    }
}

int64_t Sharding::weight_bytes(int32_t parameter) const {
    return bytes_of(own_weights_[static_cast<std::size_t>(parameter)]);
}

int64_t Sharding::gradient_bytes() const noexcept {
    int64_t total = buckets_->bytes();
    for (const std::shared_ptr<Tensor>& sums : full_sums_) {
        total += static_cast<int64_t>(sums->bytes());
    }
    return total;
}

} // namespace mp
