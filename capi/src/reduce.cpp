// SPDX-License-Identifier: Apache-2.0
// reduce.h
#include <span>
#include <string>
#include <vector>

#include "boundary.hpp"
#include "comm/reduce.hpp"
#include "comm_work.hpp"
#include "objects.hpp"
#include "rounding.hpp"
#include "tensor/memory_ranges.hpp"
#include "versioned_struct.hpp"
#include "wire_options.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

static_assert(MP_COMM_ACCUMULATE_FP32 == static_cast<int32_t>(comm::Accumulate::fp32));
static_assert(MP_COMM_ACCUMULATE_FP64 == static_cast<int32_t>(comm::Accumulate::fp64));
static_assert(MP_COMM_ACCUMULATE_FIXED == static_cast<int32_t>(comm::Accumulate::fixed));

mp_comm_reduce_desc read_desc(const mp_comm_reduce_desc* desc) {
    const auto copy = read_optional_struct(desc, "desc");
    check_flags(copy.flags, MP_REDUCE_STOCHASTIC, "desc.flags");
    check_reserved(copy.reserved);
    (void)in_range(copy.op, MP_COMM_OP_MAX_ABS_BITS, "desc.op", "MP_COMM_OP_*");
    (void)order_of(copy.order, "desc.order");
    (void)in_range(copy.accumulate, MP_COMM_ACCUMULATE_FIXED, "desc.accumulate",
                   "MP_COMM_ACCUMULATE_*");
    return copy;
}

numerics::Rounding rounding_of(const mp_comm_reduce_desc& desc) {
    return {(desc.flags & MP_REDUCE_STOCHASTIC) != 0, desc.seed, desc.uid,
            random_time(desc, "desc"), desc.first_element};
}

comm::ReduceDesc reduce_desc(const mp_comm_reduce_desc& desc, DType source, const char* site) {
    comm::ReduceDesc out;
    out.wire = wire_of(desc.wire_dtype, desc.wire_scale, source, "desc.wire_dtype");
    out.order = order_of(desc.order, "desc.order");
    out.accumulate = static_cast<comm::Accumulate>(desc.accumulate);
    out.slots = desc.slots;
    out.rounding = rounding_of(desc);
    out.deadline_ms = desc.deadline_ms;
    out.site = site;
    return out;
}

// The tensors of an operation, kept until it is over.
struct Arrays {
    std::vector<std::shared_ptr<Tensor>> sources;
    std::shared_ptr<Tensor> destination;
    std::shared_ptr<QueueObject> queue; // the caller's, where there is one
    std::string site;

    [[nodiscard]] const char* site_or_null() const { return site.empty() ? nullptr : site.c_str(); }
    [[nodiscard]] std::vector<ArrayRef> wire_sources() const {
        std::vector<ArrayRef> out;
        for (const auto& source : sources) {
            out.push_back(slice_of(*source));
        }
        return out;
    }
};

void check_source(const Tensor& source, const Tensor& destination) {
    const bool has_one_scale =
        source.scales() != nullptr && source.scales()->format.grid == kTensorScale;
    const bool is_wide = is_high_precision(source.dtype());
    if (source.scales() != nullptr ? !has_one_scale : !is_wide) {
        fail(Code::invalid_dtype,
             "a source is %s%s; it must be fp32, fp16 or bf16, or codes with one scale",
             dtype_name(source.dtype()), source.scales() != nullptr ? " with block scales" : "");
    }
    if (&source.device() != &destination.device()) {
        fail(Code::invalid_argument, "source and destination are on different devices");
    }
}

Arrays arrays_of(const mp_tensor* const* sources, int32_t count, mp_tensor* destination,
                 mp_queue* queue, const mp_comm_reduce_desc& desc, bool may_overlap) {
    MemoryRanges ranges;
    Arrays arrays;
    arrays.queue = queue == nullptr ? nullptr : object_of(queue, "queue");
    arrays.destination = object_of(destination, "destination");
    arrays.site = desc.site == nullptr ? "" : desc.site;
    if (count < 0) {
        fail(Code::invalid_argument, "source_count is %d", count);
    }
    for (int32_t i = 0; i < count; ++i) {
        arrays.sources.push_back(object_of(required(sources, "sources")[i], "sources[i]"));
        check_source(*arrays.sources.back(), *arrays.destination);
        ranges.add("a source", MemoryRanges::Use::read, arrays.sources.back().get());
    }
    if (!may_overlap) {
        ranges.add("destination", MemoryRanges::Use::written, arrays.destination.get());
    }
    ranges.add_workspace(stream_of(queue, *arrays.destination));
    ranges.check("reduce");
    if (arrays.destination->scales() != nullptr) {
        fail(Code::invalid_dtype, "destination has scales; it must be fp32, fp16 or bf16");
    }
    return arrays;
}

// What the wire carries where nobody says: the sources' values.
DType source_type(const Arrays& arrays, const mp_comm_reduce_desc& desc) {
    if (arrays.sources.empty() && desc.wire_dtype == MP_DTYPE_NONE) {
        fail(Code::invalid_argument,
             "desc.wire_dtype is MP_DTYPE_NONE; a rank without a source cannot tell it");
    }
    return arrays.sources.empty() ? DType::none : arrays.sources[0]->dtype();
}

std::vector<int64_t> counts_of(const int64_t* counts, int32_t ranks, int64_t total) {
    if (counts == nullptr) {
        return comm::even_counts(total, ranks, 128);
    }
    return {counts, counts + ranks};
}

template <class Operation> class Work final : public CommWork {
  public:
    Work(std::shared_ptr<CommObject> comm, Stream& stream, Arrays arrays)
        : comm_(std::move(comm)), stream_(stream.shared_from_this()), arrays_(std::move(arrays)),
          operation(*comm_->communicator, stream) {}
    [[nodiscard]] const Stream& stream() const override { return *stream_; }
    // Whoever is told that it is done may read on any queue, and on the host.
    void wait() override {
        if (!is_enqueued_) {
            operation.wait();
        }
        stream_->sync();
    }
    bool test() override {
        is_enqueued_ = is_enqueued_ || operation.test();
        if (!is_enqueued_ || !stream_->followed().open().empty()) {
            return false;
        }
        stream_->sync();
        return true;
    }
    [[nodiscard]] bool begins_more() const override { return operation.begins_more(); }
    void begin_rest() override { operation.begin_rest(); }
    [[nodiscard]] const Arrays& arrays() const { return arrays_; }

  private:
    std::shared_ptr<CommObject> comm_;
    std::shared_ptr<Stream> stream_;
    Arrays arrays_;
    bool is_enqueued_ = false; // all that the device still has to do

  public:
    Operation operation; // goes first
};

// Begins an operation and waits for it, or makes the caller's request.
template <class Operation, class Begin>
void run(mp_comm* comm, Stream& stream, Arrays arrays, mp_comm_request** out, const Begin& begin) {
    const auto& object = object_of(comm, "comm");
    (void)ready(*object);
    auto work = std::make_unique<Work<Operation>>(object, stream, std::move(arrays));
    begin(work->operation, work->arrays());
    if (out == nullptr) {
        work->wait();
        return;
    }
    auto request = std::make_shared<CommRequestObject>(object);
    request->work = std::move(work);
    keep_open(request);
    *out = make_handle<mp_comm_request>(std::move(request));
}

comm::Communicator& communicator_of(const mp_comm* comm) {
    return *object_of(comm, "comm")->communicator;
}

void clear(mp_comm_request** out) {
    if (out != nullptr) {
        *out = nullptr;
    }
}

} // namespace

mp_status mp_comm_get_wire_bytes(int64_t count, int32_t dtype, int32_t scale, int64_t* bytes) {
    return boundary([&] {
        (void)required(bytes, "bytes");
        if (count < 0 || count > INT64_MAX / 16) {
            fail(Code::invalid_argument, "count is %lld", static_cast<long long>(count));
        }
        *bytes = comm::wire_bytes(
            count, wire_of(dtype, scale, DType::none, "dtype", MP_COMM_SCALE_SHARED));
    });
}

mp_status mp_comm_reduce_scatter(mp_comm* comm, mp_queue* queue, const mp_comm_reduce_desc* desc,
                                 const mp_tensor* const* sources, int32_t source_count,
                                 const int64_t* counts, mp_tensor* destination,
                                 mp_comm_request** request) {
    return boundary([&] {
        clear(request);
        const mp_comm_reduce_desc options = read_desc(desc);
        if (options.op != MP_COMM_OP_SUM) {
            fail(Code::unsupported, "desc.op is %d; a reduce-scatter gives sums only", options.op);
        }
        const int32_t ranks = communicator_of(comm).size();
        Arrays arrays = arrays_of(sources, source_count, destination, queue, options, false);
        Stream& stream = stream_of(queue, *arrays.destination);
        if (arrays.sources.empty() && counts == nullptr) {
            fail(Code::null_argument, "counts is NULL; a rank without a source cannot tell them");
        }
        const std::vector<int64_t> shares =
            counts_of(counts, ranks, arrays.sources.empty() ? 0 : arrays.sources[0]->count());
        run<comm::ReduceScatter>(
            comm, stream, std::move(arrays), request,
            [&](comm::ReduceScatter& operation, const Arrays& held) {
                operation.begin(
                    reduce_desc(options, source_type(held, options), held.site_or_null()),
                    held.wire_sources(), shares, held.destination->ref());
            });
    });
}

mp_status mp_comm_all_reduce(mp_comm* comm, mp_queue* queue, const mp_comm_reduce_desc* desc,
                             const mp_tensor* const* sources, int32_t source_count,
                             mp_tensor* destination, mp_comm_request** request) {
    return boundary([&] {
        clear(request);
        const mp_comm_reduce_desc options = read_desc(desc);
        Arrays arrays = arrays_of(sources, source_count, destination, queue, options, false);
        Stream& stream = stream_of(queue, *arrays.destination);
        if (options.op == MP_COMM_OP_MAX_ABS_BITS) {
            if (arrays.sources.size() != 1 || arrays.sources[0]->scales() != nullptr ||
                request != nullptr) {
                fail(Code::unsupported,
                     "a maximum takes one source without scales, and blocks (no request)");
            }
            comm::all_reduce_max_abs(ready(*object_of(comm, "comm")), stream,
                                     arrays.sources[0]->ref(), arrays.destination->ref(),
                                     {options.deadline_ms, arrays.site_or_null(), &stream.queue()});
            return;
        }
        const Format gather = wire_of(options.gather_dtype, options.gather_scale,
                                      arrays.destination->dtype(), "desc.gather_dtype");
        run<comm::AllReduce>(comm, stream, std::move(arrays), request,
                             [&](comm::AllReduce& operation, const Arrays& held) {
                                 operation.begin(reduce_desc(options, source_type(held, options),
                                                             held.site_or_null()),
                                                 held.wire_sources(), held.destination->ref(),
                                                 &gather);
                             });
    });
}

mp_status mp_comm_all_gather_values(mp_comm* comm, mp_queue* queue, const mp_comm_reduce_desc* desc,
                                    const mp_tensor* shard, const int64_t* counts,
                                    mp_tensor* destination, mp_comm_request** request) {
    return boundary([&] {
        clear(request);
        const mp_comm_reduce_desc options = read_desc(desc);
        const int32_t ranks = communicator_of(comm).size();
        Arrays arrays = arrays_of(&shard, 1, destination, queue, options, true);
        Stream& stream = stream_of(queue, *arrays.destination);
        const std::vector<int64_t> shares = counts_of(counts, ranks, arrays.destination->count());
        run<comm::AllGatherValues>(
            comm, stream, std::move(arrays), request,
            [&](comm::AllGatherValues& operation, const Arrays& held) {
                const comm::GatherDesc gather = {
                    wire_of(options.wire_dtype, options.wire_scale, held.sources[0]->dtype(),
                            "desc.wire_dtype"),
                    rounding_of(options), options.deadline_ms, held.site_or_null()};
                operation.begin(gather, held.wire_sources()[0], shares, held.destination->ref());
            });
    });
}
