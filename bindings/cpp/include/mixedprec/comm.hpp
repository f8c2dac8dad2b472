// SPDX-License-Identifier: Apache-2.0
// Ranks: communicators, also over a transport of the caller's own, operations under way, and reductions.
#pragma once

#include "tensor.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** A transport of the caller's own: mp_comm_callbacks as a class. What it must do is said there. */
class Transport {
  public:
    virtual ~Transport() = default;
    virtual mp_status begin(const mp_comm_operation& operation, void** request) = 0;
    virtual mp_status poll(void* request, bool& done) = 0;
    virtual void release(void* request) = 0;
    virtual void abort(mp_status status, std::string_view reason) {
        static_cast<void>(status), static_cast<void>(reason);
    }
    /** The transport of a group that this rank is in: what a sharded optimizer needs. nullptr: there are no groups. */
    virtual std::shared_ptr<Transport> split(const mp_comm_group& group) {
        return static_cast<void>(group), nullptr;
    }
};

namespace detail {

/* What the library holds of a transport until its destroy. */
struct HeldTransport {
    std::shared_ptr<Transport> transport;
    std::uint32_t flags;
    static HeldTransport& of(void* payload) { return *static_cast<HeldTransport*>(payload); }
};

inline mp_comm_callbacks transport_table(HeldTransport* held, int rank, int size) {
    using Held = HeldTransport;
    mp_comm_callbacks table = MP_COMM_CALLBACKS_INIT;
    table.flags = held->flags;
    table.rank = rank;
    table.size = size;
    table.payload = held;
    table.begin = [](const mp_comm_operation* operation, void** request, void* payload) {
        return guarded([&] { return Held::of(payload).transport->begin(*operation, request); });
    };
    table.poll = [](void* request, std::int32_t* done, void* payload) {
        return guarded([&] {
            bool is = false;
            const mp_status status = Held::of(payload).transport->poll(request, is);
            *done = is ? 1 : 0;
            return status;
        });
    };
    table.release = [](void* request, void* payload) {
        guarded([&] { return Held::of(payload).transport->release(request), 0; });
    };
    table.abort = [](mp_status status, const char* reason, void* payload) {
        guarded([&] { return Held::of(payload).transport->abort(status, reason), 0; });
    };
    table.split = [](const mp_comm_group* group, mp_comm_callbacks* out, void* payload) {
        return guarded([&]() -> mp_status {
            auto transport = Held::of(payload).transport->split(*group);
            if (group->color < 0)
                return MP_STATUS_OK; // in no group: out is not read
            if (!transport)
                return MP_STATUS_UNSUPPORTED;
            *out = transport_table(new Held{std::move(transport), Held::of(payload).flags},
                                   group->rank, group->count);
            return MP_STATUS_OK;
        });
    };
    table.destroy = [](void* payload) { delete static_cast<Held*>(payload); };
    return table;
}

} // namespace detail

/** An operation under way. */
class Request : public Handle<mp_comm_request, mp_comm_request_destroy> {
  public:
    using Handle::Handle;
    result<void> wait() { return call(mp_comm_request_wait); }
    result<bool> finished() { return detail::tested(mp_comm_request_test, raw_); }
};

class Comm : public Handle<mp_comm, mp_comm_destroy> {
  public:
    using Handle::Handle;
    static result<Comm> self(const CommOptions& options = {}) {
        return detail::make<Comm>(mp_comm_create_self, &options);
    }
    /** One communicator for each rank; each is used by a thread of its own. */
    static result<std::vector<Comm>> threads(int count, const CommOptions& options = {}) {
        std::vector<mp_comm*> raw(count > 0 ? static_cast<std::size_t>(count) : 1);
        const mp_status status = mp_comm_create_threads(&options, count, raw.data());
        std::vector<Comm> comms;
        if (status >= 0) {
            for (mp_comm* one : raw)
                comms.emplace_back(one);
        }
        return detail::give(status, comms);
    }
    /** Over an MPI_Comm of the caller's, or MPI_COMM_WORLD without one. */
    template <class Native>
    static result<Comm> mpi(const Native& communicator, const CommOptions& options = {}) {
        return detail::make<Comm>(mp_comm_create_mpi, &options, &communicator);
    }
    static result<Comm> mpi(const CommOptions& options = {}) {
        return detail::make<Comm>(mp_comm_create_mpi, &options, nullptr);
    }
    using NcclId = std::array<unsigned char, MP_COMM_UNIQUE_ID_BYTES>;
    static result<NcclId> nccl_unique_id() {
        NcclId id{};
        return detail::give(mp_comm_get_nccl_unique_id(id.data(), id.size()), id);
    }
    static result<Comm> nccl(const Context& context, const NcclId& id, int rank, int size,
                             const CommOptions& options = {}) {
        return detail::make<Comm>(mp_comm_create_nccl, context, &options, id.data(), rank, size);
    }
    template <class Native>
    static result<Comm> wrap_nccl(const Context& context, const Native& communicator,
                                  const CommOptions& options = {}) {
        return detail::make<Comm>(mp_comm_wrap_nccl, context, &options, &communicator);
    }
    /** Over a transport, which is kept until the last reference is gone. */
    static result<Comm> over(std::shared_ptr<Transport> transport, int rank, int size,
                             const CommOptions& options = {}, std::uint32_t flags = 0) {
        mp_comm_callbacks table = detail::transport_table(
            new detail::HeldTransport{std::move(transport), flags}, rank, size);
        mp_comm* raw = nullptr;
        const mp_status status = mp_comm_create_callbacks(&options, &table, &raw);
        if (status < 0)
            table.destroy(table.payload);
        return detail::made<Comm>(status, raw);
    }

    result<int> rank() const { return value<int>(mp_comm_get_rank); }
    result<int> size() const { return value<int>(mp_comm_get_size); }
    result<int> node(int rank) const { return value<int>(mp_comm_get_node, rank); }
    result<Comm> split(int color, int key) { return make<Comm>(mp_comm_split, color, key); }
    result<void> barrier() { return call(mp_comm_barrier, nullptr); }
    template <class Values> result<void> broadcast(Values&& values, int root, QueueRef queue = {}) {
        return call(mp_comm_broadcast, queue, std::data(values),
                    static_cast<std::int64_t>(detail::bytes_of(values)), root, nullptr);
    }
    result<void> max(span<std::uint32_t> values) {
        return call(mp_comm_max_u32, values.data(), detail::count_of(values), nullptr);
    }
    result<void> all_to_all(const CommExchange& exchange, QueueRef queue = {}) {
        return call(mp_comm_all_to_all, queue, &exchange, nullptr);
    }
    result<void> all_gather(const CommExchange& exchange, QueueRef queue = {}) {
        return call(mp_comm_all_gather, queue, &exchange, nullptr);
    }
    /** The same begun only: the memory belongs to the operation until the request is done. */
    result<Request> begin_all_to_all(const CommExchange& exchange, QueueRef queue = {}) {
        return detail::make<Request>(mp_comm_all_to_all, raw_, queue, &exchange);
    }
    result<Request> begin_all_gather(const CommExchange& exchange, QueueRef queue = {}) {
        return detail::make<Request>(mp_comm_all_gather, raw_, queue, &exchange);
    }
    result<Request> begin_barrier() { return detail::make<Request>(mp_comm_barrier, raw_); }

    /** destination = the sum over ranks of `sources`, the contributions of this rank; see reduce.h. */
    result<void> all_reduce(const std::vector<const Tensor*>& sources, const Tensor& destination,
                            const ReduceOptions& options = {}, QueueRef queue = {}) {
        const auto raw = detail::handles(sources);
        return call(mp_comm_all_reduce, queue, &options, raw.data(),
                    detail::count_of<std::int32_t>(raw), destination, nullptr);
    }
    result<void> reduce_scatter(const std::vector<const Tensor*>& sources,
                                span<const std::int64_t> counts, const Tensor& destination,
                                const ReduceOptions& options = {}, QueueRef queue = {}) {
        if (!fits(counts))
            return detail::fail(MP_STATUS_INVALID_SHAPE,
                                "reduce_scatter: counts must have a number for each rank");
        const auto raw = detail::handles(sources);
        return call(mp_comm_reduce_scatter, queue, &options, raw.data(),
                    detail::count_of<std::int32_t>(raw), counts.data(), destination, nullptr);
    }
    result<void> all_gather(const Tensor& shard, span<const std::int64_t> counts,
                            const Tensor& destination, const ReduceOptions& options = {},
                            QueueRef queue = {}) {
        if (!fits(counts))
            return detail::fail(MP_STATUS_INVALID_SHAPE,
                                "all_gather: counts must have a number for each rank");
        return call(mp_comm_all_gather_values, queue, &options, shard, counts.data(), destination,
                    nullptr);
    }
    static result<std::int64_t> wire_bytes(std::int64_t count, std::int32_t dtype,
                                           std::int32_t scale = MP_COMM_SCALE_DEFAULT) {
        return detail::value<std::int64_t>(mp_comm_get_wire_bytes, count, dtype, scale);
    }

    result<void> set_deadline(std::int64_t milliseconds) {
        return call(mp_comm_set_deadline, milliseconds);
    }
    result<std::int64_t> deadline() const { return value<std::int64_t>(mp_comm_get_deadline); }
    result<void> abort(const std::string& reason) { return call(mp_comm_abort, reason); }
    /** The failure that ended it, or success. */
    result<void> status() const { return call(mp_comm_get_status); }
    result<CommTraffic> traffic() const { return value<CommTraffic>(mp_comm_get_traffic); }
    result<std::string> describe() const { return text(mp_comm_describe); }

  private:
    bool fits(span<const std::int64_t> counts) const {
        std::int32_t size = 0;
        return mp_comm_get_size(raw_, &size) < 0 ||
               counts.size() == static_cast<std::size_t>(size); // a bad handle is the call's to say
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
