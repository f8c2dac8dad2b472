// SPDX-License-Identifier: Apache-2.0
// A table of callbacks that hands everything on to a communicator of the library's, and remembers who called it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "ranks.hpp"
#include "support.hpp"

namespace mp_test {

// One rank's communicator behind a table, and who called it.
struct Forward {
    Comm comm;
    uint32_t flags = 0;
    std::atomic<int> inside{0}; // calls at the same time
    std::mutex mutex;
    std::set<std::thread::id> pollers, others;
    std::vector<std::unique_ptr<Forward>> parts; // the groups that split() made

    static Forward& of(void* payload) { return *static_cast<Forward*>(payload); }
    mp_comm_callbacks table();
};

// A call of the table, alone in it.
class Call {
  public:
    Call(Forward& forward, std::set<std::thread::id> Forward::*callers) : forward_(forward) {
        EXPECT_EQ(forward_.inside.fetch_add(1), 0) << "two calls of one table at the same time";
        const std::lock_guard lock(forward.mutex);
        (forward.*callers).insert(std::this_thread::get_id());
    }
    ~Call() { forward_.inside.fetch_sub(1); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

  private:
    Forward& forward_;
};

inline mp_status forward_begin(const mp_comm_operation* operation, void** request, void* payload) {
    Forward& forward = Forward::of(payload);
    const Call call(forward, &Forward::others);
    auto** out = reinterpret_cast<mp_comm_request**>(request);
    mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
    exchange.send = operation->send;
    exchange.send_bytes = operation->send_bytes;
    exchange.send_offsets = operation->send_offsets;
    exchange.receive = operation->receive;
    exchange.receive_bytes = operation->receive_bytes;
    exchange.receive_offsets = operation->receive_offsets;
    switch (operation->kind) {
    case MP_COMM_ALL_TO_ALL:
        return mp_comm_all_to_all(forward.comm, nullptr, &exchange, out);
    case MP_COMM_ALL_GATHER:
        return mp_comm_all_gather(forward.comm, nullptr, &exchange, out);
    case MP_COMM_BROADCAST:
        return mp_comm_broadcast(forward.comm, nullptr, operation->receive,
                                 operation->receive_bytes[0], operation->root, out);
    case MP_COMM_MAX_U32:
        return mp_comm_max_u32(forward.comm, static_cast<uint32_t*>(operation->receive),
                               operation->count, out);
    default:
        return mp_comm_barrier(forward.comm, out);
    }
}

inline mp_status forward_poll(void* request, int32_t* done, void* payload) {
    const Call call(Forward::of(payload), &Forward::pollers);
    const mp_status status = mp_comm_request_test(static_cast<mp_comm_request*>(request));
    *done = status == MP_STATUS_OK ? 1 : 0;
    return status == MP_STATUS_NOT_READY ? MP_STATUS_OK : status;
}

inline void forward_release(void* request, void* payload) {
    const Call call(Forward::of(payload), &Forward::pollers);
    mp_comm_request_destroy(static_cast<mp_comm_request*>(request));
}

inline mp_status forward_split(const mp_comm_group* group, mp_comm_callbacks* out, void* payload) {
    Forward& forward = Forward::of(payload);
    mp_comm* part = nullptr;
    const mp_status status = mp_comm_split(forward.comm, group->color, group->key, &part);
    if (part != nullptr) { // this rank is in a group
        forward.parts.push_back(std::make_unique<Forward>());
        forward.parts.back()->comm = Comm(part);
        forward.parts.back()->flags = forward.flags;
        *out = forward.parts.back()->table();
    }
    return status;
}

inline mp_comm_callbacks Forward::table() {
    mp_comm_callbacks table = MP_COMM_CALLBACKS_INIT;
    table.flags = flags;
    EXPECT_TRUE(succeeded(mp_comm_get_rank(comm, &table.rank)));
    EXPECT_TRUE(succeeded(mp_comm_get_size(comm, &table.size)));
    table.begin = forward_begin;
    table.poll = forward_poll;
    table.release = forward_release;
    table.split = forward_split;
    table.payload = this;
    return table;
}

} // namespace mp_test
