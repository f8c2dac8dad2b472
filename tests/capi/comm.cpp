// SPDX-License-Identifier: Apache-2.0
// mp_comm through its C interface: thread ranks, requests, groups, and each way to call it wrongly.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ranks.hpp"
#include "support.hpp"

namespace mp_test {
namespace {

// Each rank sends its number, plus ten times the receiver's, as one byte.
struct Bytes {
    std::array<unsigned char, 3> send{};
    std::array<unsigned char, 3> receive{};
    std::array<int64_t, 3> bytes = {1, 1, 1};
    std::array<int64_t, 3> offsets = {0, 1, 2};
    mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;

    explicit Bytes(int32_t rank) {
        for (std::size_t i = 0; i < 3; ++i) {
            send[i] = static_cast<unsigned char>(rank + 10 * static_cast<int32_t>(i));
        }
        exchange.send = send.data();
        exchange.send_bytes = bytes.data();
        exchange.send_offsets = offsets.data();
        exchange.receive = receive.data();
        exchange.receive_bytes = bytes.data();
        exchange.receive_offsets = offsets.data();
    }
};

int32_t rank_of(mp_comm* comm) {
    int32_t rank = -1;
    EXPECT_TRUE(succeeded(mp_comm_get_rank(comm, &rank)));
    return rank;
}

TEST(Comm, MovesBytesBetweenThreads) {
    run_ranks(3, [](mp_comm* comm, int32_t /*rank*/) {
        const int32_t rank = rank_of(comm);
        int32_t size = 0;
        ASSERT_TRUE(succeeded(mp_comm_get_size(comm, &size)));
        EXPECT_EQ(size, 3);
        Bytes what(rank);
        ASSERT_TRUE(succeeded(mp_comm_all_to_all(comm, nullptr, &what.exchange, nullptr)));
        const auto ten = static_cast<unsigned char>(10 * rank);
        EXPECT_EQ(what.receive,
                  (std::array<unsigned char, 3>{ten, static_cast<unsigned char>(ten + 1),
                                                static_cast<unsigned char>(ten + 2)}));
        ASSERT_TRUE(succeeded(mp_comm_all_gather(comm, nullptr, &what.exchange, nullptr)));
        EXPECT_EQ(what.receive, (std::array<unsigned char, 3>{0, 1, 2}));
        std::array<uint32_t, 2> values = {static_cast<uint32_t>(rank), 7};
        ASSERT_TRUE(succeeded(mp_comm_max_u32(comm, values.data(), 2, nullptr)));
        EXPECT_EQ(values, (std::array<uint32_t, 2>{2, 7}));
        ASSERT_TRUE(succeeded(mp_comm_broadcast(comm, nullptr, what.send.data(), 3, 1, nullptr)));
        EXPECT_EQ(what.send, (std::array<unsigned char, 3>{1, 11, 21}));
        ASSERT_TRUE(succeeded(mp_comm_barrier(comm, nullptr)));
        mp_comm_traffic traffic{};
        traffic.struct_size = sizeof traffic;
        ASSERT_TRUE(succeeded(mp_comm_get_traffic(comm, &traffic)));
        EXPECT_EQ(traffic.calls, 5);
        EXPECT_EQ(traffic.all_to_all_bytes, 2);
        EXPECT_EQ(traffic.all_gather_bytes, 2);
        EXPECT_EQ(traffic.broadcast_bytes, rank == 1 ? 6 : 0);
        EXPECT_EQ(traffic.max_u32_bytes, 8);
        EXPECT_EQ(traffic.total_bytes, 12 + traffic.broadcast_bytes);
        std::array<char, 200> text{};
        ASSERT_TRUE(succeeded(mp_comm_describe(comm, text.data(), text.size(), nullptr)));
        EXPECT_NE(std::string(text.data()).find("of 3 over threads"), std::string::npos)
            << text.data();
    });
}

TEST(Comm, BeginsAndWaits) {
    run_ranks(3, [](mp_comm* comm, int32_t /*rank*/) {
        const int32_t rank = rank_of(comm);
        Bytes what(rank);
        what.exchange.site = "the first bucket";
        mp_comm_request* raw = nullptr;
        ASSERT_TRUE(succeeded(mp_comm_all_to_all(comm, nullptr, &what.exchange, &raw)));
        const Request first(raw);
        ASSERT_TRUE(succeeded(mp_comm_barrier(comm, &raw)));
        const Request second(raw);
        mp_status status = MP_STATUS_NOT_READY;
        while (status == MP_STATUS_NOT_READY) {
            status = mp_comm_request_test(second);
        }
        EXPECT_EQ(status, MP_STATUS_OK);
        ASSERT_TRUE(succeeded(mp_comm_request_wait(first)));
        ASSERT_TRUE(succeeded(mp_comm_request_wait(first))) << "once more";
        EXPECT_EQ(what.receive[1], 10 * rank + 1);
    });
}

TEST(Comm, SplitsAndKnowsNodes) {
    run_ranks(3, [](mp_comm* comm, int32_t /*rank*/) {
        const int32_t rank = rank_of(comm);
        mp_comm* raw = nullptr;
        ASSERT_TRUE(succeeded(mp_comm_split(comm, rank == 1 ? -1 : 5, -rank, &raw)));
        const Comm pair(raw);
        EXPECT_EQ(pair == nullptr, rank == 1);
        if (pair != nullptr) {
            EXPECT_EQ(rank_of(pair), rank == 2 ? 0 : 1);
            EXPECT_TRUE(succeeded(mp_comm_barrier(pair, nullptr)));
        }
        int32_t node = -1;
        EXPECT_TRUE(succeeded(mp_comm_get_node(comm, 2, &node)));
        EXPECT_EQ(node, 0);
    });
}

TEST(Comm, LostRankAndAbort) {
    std::vector<Comm> comms = make_comms(3);
    comms[1].owned.reset();
    EXPECT_TRUE(fails(mp_comm_barrier(comms[0], nullptr), MP_STATUS_PEER_LOST,
                      {"barrier #0 on rank 0 of 3 over threads", "rank 1 is gone"}));
    EXPECT_TRUE(fails(mp_comm_get_status(comms[0]), MP_STATUS_PEER_LOST, {"rank 1 is gone"}));
    ASSERT_TRUE(succeeded(mp_comm_abort(comms[2], "the disk is full")));
    EXPECT_TRUE(fails(mp_comm_barrier(comms[2], nullptr), MP_STATUS_ABORTED, {"the disk is full"}));
}

TEST(Comm, Deadline) {
    const std::vector<Comm> comms = make_comms(2);
    ASSERT_TRUE(succeeded(mp_comm_set_deadline(comms[0], 20)));
    EXPECT_TRUE(fails(mp_comm_barrier(comms[0], nullptr), MP_STATUS_TIMEOUT,
                      {"not done after 20 ms", "ranks not seen: 1"}));
}

TEST(Comm, DestroyedRequestEndsIt) {
    const std::vector<Comm> comms = make_comms(2);
    mp_comm_request* raw = nullptr;
    ASSERT_TRUE(succeeded(mp_comm_barrier(comms[0], &raw)));
    mp_comm_request_destroy(raw);
    EXPECT_TRUE(fails(mp_comm_get_status(comms[0]), MP_STATUS_ABORTED, {"dropped"}));
    EXPECT_TRUE(fails(mp_comm_request_wait(raw), MP_STATUS_INVALID_HANDLE, {"request"}));
}

// As a garbage collector does it: in a thread of its own, and the memory goes with the request.
TEST(Comm, ARequestInFlightMayBeDestroyedByAnotherThread) {
    const std::vector<Comm> comms = make_comms(2);
    auto what = std::make_unique<Bytes>(0);
    mp_comm_request* dropped = nullptr;
    mp_comm_request* raw = nullptr;
    ASSERT_TRUE(succeeded(mp_comm_all_to_all(comms[0], nullptr, &what->exchange, &dropped)));
    ASSERT_TRUE(succeeded(mp_comm_barrier(comms[0], &raw)));
    const Request waited(raw);
    std::thread owner([&] {
        EXPECT_TRUE(fails(mp_comm_request_wait(waited), MP_STATUS_ABORTED,
                          {"all_to_all #0", "dropped before it was done"}));
    });
    std::thread collector([&] {
        mp_comm_request_destroy(dropped);
        what.reset();
    });
    owner.join();
    collector.join();
    Bytes other(1); // finds no memory that is gone
    EXPECT_TRUE(fails(mp_comm_all_to_all(comms[1], nullptr, &other.exchange, nullptr),
                      MP_STATUS_PEER_LOST, {"rank 0"}));
}

TEST(Comm, FinishedRequestsGoBesideCalls) {
    run_ranks(2, [](mp_comm* comm, int32_t /*rank*/) {
        std::mutex mutex;
        std::vector<mp_comm_request*> garbage;
        std::atomic<bool> is_over{false};
        std::thread collector([&] {
            for (bool is_last = false; !is_last;) {
                is_last = is_over;
                std::vector<mp_comm_request*> found;
                {
                    const std::lock_guard lock(mutex);
                    found.swap(garbage);
                }
                for (mp_comm_request* request : found) {
                    mp_comm_request_destroy(request);
                }
                std::this_thread::yield();
            }
        });
        int done = 0;
        for (int i = 0; i < 300; ++i) {
            mp_comm_request* request = nullptr;
            done += mp_comm_barrier(comm, &request) == MP_STATUS_OK ? 1 : 0;
            done += mp_comm_request_wait(request) == MP_STATUS_OK ? 1 : 0;
            const std::lock_guard lock(mutex);
            garbage.push_back(request);
        }
        is_over = true;
        collector.join();
        EXPECT_EQ(done, 600);
        EXPECT_TRUE(succeeded(mp_comm_get_status(comm)));
    });
}

TEST(Comm, DestroyedByAnotherThreadItEndsWithItsLastRequest) {
    std::vector<Comm> comms = make_comms(2);
    mp_comm_request* raw = nullptr;
    ASSERT_TRUE(succeeded(mp_comm_barrier(comms[0], &raw)));
    Request request(raw);
    std::thread([&] { comms[0].owned.reset(); }).join();
    EXPECT_TRUE(succeeded(mp_comm_barrier(comms[1], nullptr)));
    EXPECT_TRUE(succeeded(mp_comm_request_wait(request)));
    std::thread([&] { request.owned.reset(); }).join();
    EXPECT_TRUE(fails(mp_comm_barrier(comms[1], nullptr), MP_STATUS_PEER_LOST, {"rank 0 is gone"}));
}

TEST(Comm, WrongArguments) {
    mp_comm* out = nullptr;
    EXPECT_TRUE(fails(mp_comm_create_self(nullptr, nullptr), MP_STATUS_NULL_ARGUMENT, {"out"}));
    EXPECT_TRUE(
        fails(mp_comm_create_threads(nullptr, 0, &out), MP_STATUS_INVALID_ARGUMENT, {"count"}));
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = -1;
    EXPECT_TRUE(
        fails(mp_comm_create_self(&desc, &out), MP_STATUS_INVALID_ARGUMENT, {"deadline_ms"}));
    desc = MP_COMM_DESC_INIT;
    desc.flags = 1;
    EXPECT_TRUE(fails(mp_comm_create_self(&desc, &out), MP_STATUS_INVALID_ARGUMENT, {"flags"}));
    desc = MP_COMM_DESC_INIT;
    desc.ranks_per_node = -1;
    EXPECT_TRUE(fails(mp_comm_create_threads(&desc, 1, &out), MP_STATUS_INVALID_ARGUMENT,
                      {"ranks_per_node"}));
    desc.struct_size = 4;
    EXPECT_TRUE(
        fails(mp_comm_create_self(&desc, &out), MP_STATUS_INVALID_ARGUMENT, {"struct_size"}));
    EXPECT_EQ(out, nullptr);

    ASSERT_TRUE(succeeded(mp_comm_create_self(nullptr, &out)));
    const Comm comm(out);
    int32_t number = 0;
    EXPECT_TRUE(fails(mp_comm_get_rank(nullptr, &number), MP_STATUS_NULL_ARGUMENT, {"comm"}));
    EXPECT_TRUE(fails(mp_comm_get_size(comm, nullptr), MP_STATUS_NULL_ARGUMENT, {"size"}));
    EXPECT_TRUE(fails(mp_comm_get_node(comm, 1, &number), MP_STATUS_INVALID_ARGUMENT, {"rank"}));
    EXPECT_TRUE(fails(mp_comm_all_to_all(comm, nullptr, nullptr, nullptr), MP_STATUS_NULL_ARGUMENT,
                      {"exchange"}));
    mp_comm_exchange nothing = MP_COMM_EXCHANGE_INIT;
    EXPECT_TRUE(fails(mp_comm_all_to_all(comm, nullptr, &nothing, nullptr), MP_STATUS_NULL_ARGUMENT,
                      {"send_bytes"}));
    EXPECT_TRUE(fails(mp_comm_all_gather(comm, nullptr, &nothing, nullptr), MP_STATUS_NULL_ARGUMENT,
                      {"send_bytes"}));
    nothing.flags = 2;
    EXPECT_TRUE(fails(mp_comm_all_gather(comm, nullptr, &nothing, nullptr),
                      MP_STATUS_INVALID_ARGUMENT, {"flags"}));
    EXPECT_TRUE(fails(mp_comm_broadcast(comm, nullptr, &number, 4, 1, nullptr),
                      MP_STATUS_INVALID_ARGUMENT, {"root"}));
    EXPECT_TRUE(
        fails(mp_comm_max_u32(comm, nullptr, 1, nullptr), MP_STATUS_NULL_ARGUMENT, {"values"}));
    EXPECT_TRUE(fails(mp_comm_set_deadline(comm, -5), MP_STATUS_INVALID_ARGUMENT, {"deadline_ms"}));
    EXPECT_TRUE(succeeded(mp_comm_get_status(comm))) << "mistakes end nothing";
    EXPECT_TRUE(fails(mp_comm_request_test(nullptr), MP_STATUS_NULL_ARGUMENT, {"request"}));

    unsigned char id[MP_COMM_UNIQUE_ID_BYTES];
    EXPECT_TRUE(fails(mp_comm_get_nccl_unique_id(id, 4), MP_STATUS_INVALID_ARGUMENT, {"size"}));
    EXPECT_TRUE(
        fails(mp_comm_wrap_nccl(nullptr, nullptr, id, &out), MP_STATUS_NULL_ARGUMENT, {"context"}));
    EXPECT_TRUE(fails(mp_comm_create_nccl(nullptr, nullptr, id, 0, 1, &out),
                      MP_STATUS_NULL_ARGUMENT, {"context"}));
    mp_context* raw = nullptr;
    ASSERT_TRUE(succeeded(mp_context_create(nullptr, &raw)));
    const Context host(raw);
    EXPECT_TRUE(fails(mp_comm_create_nccl(host, nullptr, id, 0, 1, &out),
                      MP_STATUS_INVALID_ARGUMENT, {"no GPU"}));
    EXPECT_TRUE(fails(mp_comm_create_nccl(host, nullptr, id, 1, 1, &out),
                      MP_STATUS_INVALID_ARGUMENT, {"rank"}));
}

} // namespace
} // namespace mp_test
