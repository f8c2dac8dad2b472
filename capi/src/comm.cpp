// SPDX-License-Identifier: Apache-2.0
// comm.h
#include <algorithm>
#include <vector>

#include "boundary.hpp"
#include "comm/self/self.hpp"
#include "comm/threads/threads.hpp"
#include "comm_callbacks.hpp"
#include "comm_traffic.hpp"
#include "comm_work.hpp"
#include "context/module_loader.hpp"
#include "context_registry.hpp"
#include "device_kinds.hpp"
#include "objects.hpp"
#include "system/machine.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

static_assert(MP_COMM_UNIQUE_ID_BYTES == kUniqueIdBytes);

mp_comm_desc read_desc(const mp_comm_desc* desc) {
    const auto copy = read_optional_struct(desc, "desc");
    check_flags(copy.flags, 0, "desc.flags");
    if (copy.ranks_per_node < 0) {
        fail(Code::invalid_argument, "desc.ranks_per_node is %d", copy.ranks_per_node);
    }
    return copy;
}

mp_comm* wrap(std::unique_ptr<Transport> transport, const mp_comm_desc& desc,
              const std::shared_ptr<Context>& context = nullptr) {
    return make_handle<mp_comm>(std::make_shared<CommObject>(
        std::make_unique<comm::Communicator>(std::move(transport), desc.deadline_ms), context));
}

comm::Communicator& communicator_of(const mp_comm* comm) {
    return *object_of(comm, "comm")->communicator;
}

// Makes a module's communicator: the transport, then which ranks share a machine.
mp_comm* open_module_comm(const char* module, TransportConfig config, const mp_comm_desc& desc,
                          const std::shared_ptr<Context>& context = nullptr) {
    const TransportModule& loaded = transport_of(module);
    config.deadline_ms = desc.deadline_ms != 0 ? desc.deadline_ms : comm::kDefaultDeadlineMs;
    Transport* transport = nullptr;
    check(loaded.create(config, &transport));
    std::unique_ptr<Transport> owned(transport);
    auto communicator = std::make_unique<comm::Communicator>(std::move(owned), desc.deadline_ms);
    check(communicator->learn_nodes(system::machine_hash()));
    return make_handle<mp_comm>(std::make_shared<CommObject>(std::move(communicator), context));
}

// The same for a transport that is in the module of the context's device.
mp_comm* open_device_comm(const char* transport, TransportConfig config, const mp_comm_desc& desc,
                          const std::shared_ptr<Context>& context) {
    const DeviceKindRow& kind = kind_with_transport(transport);
    Device& device = context->stream().device();
    if (device.kind() != kind.kind) {
        fail(Code::invalid_argument,
             "context has no GPU that %s serves: its device is %s; open it with device_kind "
             "MP_DEVICE_%s",
             transport, row_of(device.kind()).name, kind.label);
    }
    config.device = &device;
    return open_module_comm(kind.name, config, desc, context);
}

// Begins an operation and waits for it, or makes the caller's request.
// Where an operation writes what it receives.
using Pieces = std::vector<std::pair<const void*, std::size_t>>;

Pieces received_by(const mp_comm_exchange& what, int32_t ranks) {
    Pieces pieces;
    if (what.receive == nullptr || what.receive_bytes == nullptr ||
        what.receive_offsets == nullptr) {
        return pieces;
    }
    for (int32_t i = 0; i < ranks; ++i) {
        pieces.emplace_back(static_cast<const char*>(what.receive) + what.receive_offsets[i],
                            static_cast<std::size_t>(std::max<int64_t>(what.receive_bytes[i], 0)));
    }
    return pieces;
}

template <typename Begin>
mp_status run(mp_comm* comm, mp_queue* queue, mp_comm_request** out, comm::CallOptions options,
              Pieces received, const Begin& begin) {
    if (out != nullptr) {
        *out = nullptr;
    }
    const auto& object = object_of(comm, "comm");
    comm::Communicator& communicator = ready(*object);
    if (queue != nullptr) {
        Stream& stream = *object_of(queue, "queue")->stream;
        if (communicator.caps().device_memory) {
            options.queue = &stream.queue();
        } else {
            stream.sync();
        }
    }
    auto request = std::make_shared<CommRequestObject>(object);
    request->received = std::move(received);
    check(begin(communicator, options, &request->request));
    if (out == nullptr) {
        const Status status = request->request.wait();
        request->note_received();
        return report(status);
    }
    *out = make_handle<mp_comm_request>(std::move(request));
    return MP_STATUS_OK;
}

template <typename Begin>
mp_status exchange_bytes(mp_comm* comm, mp_queue* queue, const mp_comm_exchange* exchange,
                         mp_comm_request** request, const Begin& begin) {
    return boundary([&] {
        const auto what = read_struct(exchange, "exchange");
        check_flags(what.flags, 0, "exchange.flags");
        return run(comm, queue, request, {what.deadline_ms, what.site, nullptr},
                   received_by(what, communicator_of(comm).size()),
                   [&](comm::Communicator& communicator, const comm::CallOptions& options,
                       comm::CommRequest* out) { return begin(communicator, what, options, out); });
    });
}

} // namespace

mp_status mp_comm_create_self(const mp_comm_desc* desc, mp_comm** out) {
    return boundary([&] { *output(out) = wrap(mp::comm::make_self_transport(), read_desc(desc)); });
}

mp_status mp_comm_create_threads(const mp_comm_desc* desc, int32_t count, mp_comm** out) {
    return boundary([&] {
        (void)required(out, "out");
        const mp_comm_desc options = read_desc(desc);
        if (count < 1) {
            fail(Code::invalid_argument, "count is %d; there must be a rank", count);
        }
        std::fill_n(out, count, nullptr);
        std::vector<std::shared_ptr<CommObject>> objects;
        for (auto& transport : mp::comm::make_thread_transports({count, options.ranks_per_node})) {
            objects.push_back(std::make_shared<CommObject>(
                std::make_unique<comm::Communicator>(std::move(transport), options.deadline_ms)));
        }
        try {
            for (std::size_t rank = 0; rank < objects.size(); ++rank) {
                out[rank] = make_handle<mp_comm>(objects[rank]);
            }
        } catch (...) {
            for (int32_t rank = 0; rank < count; ++rank) {
                mp_comm_destroy(out[rank]);
                out[rank] = nullptr;
            }
            throw;
        }
    });
}

mp_status mp_comm_create_callbacks(const mp_comm_desc* desc, const mp_comm_callbacks* callbacks,
                                   mp_comm** out) {
    return boundary([&] {
        (void)output(out);
        const mp_comm_desc options = read_desc(desc);
        *out = wrap(make_callback_transport(callbacks), options);
    });
}

mp_status mp_comm_create_mpi(const mp_comm_desc* desc, const void* native, mp_comm** out) {
    return boundary([&] {
        (void)output(out);
        TransportConfig config;
        config.native = native;
        *out = open_module_comm("mpi", config, read_desc(desc));
    });
}

mp_status mp_comm_get_nccl_unique_id(void* id, size_t size) {
    return boundary([&] {
        (void)required(id, "id");
        if (size != MP_COMM_UNIQUE_ID_BYTES) {
            fail(Code::invalid_argument, "size is %zu; an id has %d bytes", size,
                 MP_COMM_UNIQUE_ID_BYTES);
        }
        const TransportModule& module = transport_of(kind_with_transport("nccl").name);
        check(module.unique_id(id));
    });
}

mp_status mp_comm_create_nccl(mp_context* context, const mp_comm_desc* desc, const void* unique_id,
                              int32_t rank, int32_t size, mp_comm** out) {
    return boundary([&] {
        (void)output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const mp_comm_desc options = read_desc(desc);
        if (size < 1 || rank < 0 || rank >= size) {
            fail(Code::invalid_argument, "rank is %d and size is %d; wants 0 <= rank < size", rank,
                 size);
        }
        TransportConfig config;
        config.unique_id = required(unique_id, "unique_id");
        config.rank = rank;
        config.size = size;
        *out = open_device_comm("nccl", config, options, owner);
    });
}

mp_status mp_comm_wrap_nccl(mp_context* context, const mp_comm_desc* desc, const void* native,
                            mp_comm** out) {
    return boundary([&] {
        (void)output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        TransportConfig config;
        config.native = required(native, "native");
        *out = open_device_comm("nccl", config, read_desc(desc), owner);
    });
}

mp_status mp_comm_split(mp_comm* comm, int32_t color, int32_t key, mp_comm** out) {
    return boundary([&] {
        (void)output(out);
        const auto& object = object_of(comm, "comm");
        std::unique_ptr<comm::Communicator> part;
        check(ready(*object).split(color, key, &part));
        if (part != nullptr) {
            *out = make_handle<mp_comm>(
                std::make_shared<CommObject>(std::move(part), object->context));
        }
    });
}

mp_status mp_comm_get_rank(const mp_comm* comm, int32_t* rank) {
    return boundary([&] { *required(rank, "rank") = communicator_of(comm).rank(); });
}

mp_status mp_comm_get_size(const mp_comm* comm, int32_t* size) {
    return boundary([&] { *required(size, "size") = communicator_of(comm).size(); });
}

mp_status mp_comm_get_node(const mp_comm* comm, int32_t rank, int32_t* node) {
    return boundary([&] {
        const comm::Communicator& communicator = communicator_of(comm);
        if (rank < 0 || rank >= communicator.size()) {
            fail(Code::invalid_argument, "rank is %d; the ranks are numbered from 0 to %d", rank,
                 communicator.size() - 1);
        }
        *required(node, "node") = communicator.node(rank);
    });
}

mp_status mp_comm_all_to_all(mp_comm* comm, mp_queue* queue, const mp_comm_exchange* exchange,
                             mp_comm_request** request) {
    return exchange_bytes(comm, queue, exchange, request,
                          [](comm::Communicator& communicator, const mp_comm_exchange& what,
                             const comm::CallOptions& options, comm::CommRequest* out) {
                              return communicator.begin(
                                  comm::AllToAll{what.send, what.send_bytes, what.send_offsets,
                                                 what.receive, what.receive_bytes,
                                                 what.receive_offsets},
                                  options, out);
                          });
}

mp_status mp_comm_all_gather(mp_comm* comm, mp_queue* queue, const mp_comm_exchange* exchange,
                             mp_comm_request** request) {
    return exchange_bytes(
        comm, queue, exchange, request,
        [](comm::Communicator& communicator, const mp_comm_exchange& what,
           const comm::CallOptions& options, comm::CommRequest* out) {
            return communicator.begin(
                comm::AllGather{what.send, *required(what.send_bytes, "exchange.send_bytes"),
                                what.receive, what.receive_bytes, what.receive_offsets},
                options, out);
        });
}

mp_status mp_comm_broadcast(mp_comm* comm, mp_queue* queue, void* data, int64_t bytes, int32_t root,
                            mp_comm_request** request) {
    return boundary([&] {
        return run(comm, queue, request, {},
                   {{data, static_cast<std::size_t>(std::max<int64_t>(bytes, 0))}},
                   [&](comm::Communicator& communicator, const comm::CallOptions& options,
                       comm::CommRequest* out) {
                       return communicator.begin(comm::Broadcast{data, bytes, root}, options, out);
                   });
    });
}

mp_status mp_comm_max_u32(mp_comm* comm, uint32_t* values, int64_t count,
                          mp_comm_request** request) {
    return boundary([&] {
        return run(comm, nullptr, request, {},
                   {{values, static_cast<std::size_t>(std::max<int64_t>(count, 0)) * 4}},
                   [&](comm::Communicator& communicator, const comm::CallOptions& options,
                       comm::CommRequest* out) {
                       return communicator.begin(comm::MaxU32{values, count}, options, out);
                   });
    });
}

mp_status mp_comm_barrier(mp_comm* comm, mp_comm_request** request) {
    return boundary([&] {
        return run(comm, nullptr, request, {}, {},
                   [&](comm::Communicator& communicator, const comm::CallOptions& options,
                       comm::CommRequest* out) {
                       return communicator.begin(comm::Barrier{}, options, out);
                   });
    });
}

mp_status mp_comm_request_wait(mp_comm_request* request) {
    return boundary([&] {
        CommRequestObject& object = *object_of(request, "request");
        if (object.work != nullptr) {
            wait_for(object);
        } else if (object.request.is_open()) {
            object.status = object.request.wait();
            object.note_received();
        }
        check(object.status);
    });
}

mp_status mp_comm_request_test(mp_comm_request* request) {
    return boundary([&]() -> mp_status {
        CommRequestObject& object = *object_of(request, "request");
        if (object.work != nullptr) {
            if (!is_done(object)) {
                return MP_STATUS_NOT_READY;
            }
        } else if (object.request.is_open()) {
            bool done = false;
            object.status = object.request.test(&done);
            if (!done) {
                return MP_STATUS_NOT_READY;
            }
            object.note_received();
        }
        return report(object.status);
    });
}

void mp_comm_request_destroy(mp_comm_request* request) {
    const process::DefaultFloats floats;
    const std::shared_ptr<CommRequestObject> object = take_object(request);
    if (object == nullptr || !object->comm->communicator->holds_lock()) {
        return;
    }
    try { // a finalizer, in one of the caller's own functions
        object->comm->communicator->keep_until_unlock(object);
    } catch (const std::bad_alloc&) { // then it goes now
    }
}

mp_status mp_comm_abort(mp_comm* comm, const char* reason) {
    return boundary([&] {
        communicator_of(comm).abort(
            Status::error(Code::aborted, "given up by this rank: %s",
                          reason != nullptr ? reason : "no reason was given"));
    });
}

mp_status mp_comm_get_status(const mp_comm* comm) {
    return boundary([&] { check(communicator_of(comm).status()); });
}

mp_status mp_comm_get_deadline(const mp_comm* comm, int64_t* deadline_ms) {
    return boundary(
        [&] { *required(deadline_ms, "deadline_ms") = communicator_of(comm).deadline_ms(); });
}

mp_status mp_comm_set_deadline(mp_comm* comm, int64_t deadline_ms) {
    return boundary([&] { check(communicator_of(comm).set_deadline_ms(deadline_ms)); });
}

mp_status mp_comm_get_traffic(const mp_comm* comm, mp_comm_traffic* traffic) {
    return boundary([&] { write_traffic(communicator_of(comm).traffic(), traffic); });
}

mp_status mp_comm_describe(const mp_comm* comm, char* buffer, size_t capacity, size_t* needed) {
    return boundary([&] { copy_text(communicator_of(comm).describe(), buffer, capacity, needed); });
}

void mp_comm_destroy(mp_comm* comm) { destroy_handle(comm); }
