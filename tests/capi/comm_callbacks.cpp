// SPDX-License-Identifier: Apache-2.0
// mp_comm over a table of callbacks: the order of its calls, their failures, and what calls in from inside.
#include <utility>

#include "ranks.hpp"

namespace mp_test {
namespace {

// A table of one rank that counts its calls, and fails where it is told to.
struct Fake {
    int begun = 0;
    int released = 0;
    int destroyed = 0;
    int aborted = 0;
    int polls_until_done = 3;
    mp_status begin_status = MP_STATUS_OK;
    mp_status poll_status = MP_STATUS_OK;
    mp_comm_request* victim = nullptr; // destroyed by the next poll
    mp_comm* nested = nullptr;         // called by it
    int released_inside = -1;
    mp_comm_callbacks table = MP_COMM_CALLBACKS_INIT;

    Fake() {
        table.size = 1;
        table.name = "fake";
        table.payload = this;
        table.begin = [](const mp_comm_operation* operation, void** request, void* payload) {
            Fake& self = of(payload);
            EXPECT_EQ(operation->struct_size, sizeof *operation);
            EXPECT_EQ(operation->sequence, static_cast<uint64_t>(self.begun));
            *request = payload;
            ++self.begun;
            return self.begin_status;
        };
        table.poll = [](void* request, int32_t* done, void* payload) {
            EXPECT_EQ(request, payload);
            of(payload).collect();
            *done = --of(payload).polls_until_done <= 0 ? 1 : 0;
            return of(payload).poll_status;
        };
        table.release = [](void* request, void* payload) {
            EXPECT_EQ(request, payload);
            ++of(payload).released;
        };
        table.abort = [](mp_status status, const char* reason, void* payload) {
            EXPECT_LT(status, 0);
            EXPECT_STRNE(reason, "");
            ++of(payload).aborted;
        };
        table.destroy = [](void* payload) { ++of(payload).destroyed; };
    }
    void collect() {
        if (victim != nullptr) {
            mp_comm_request_destroy(std::exchange(victim, nullptr));
            released_inside = released;
            EXPECT_TRUE(fails(mp_comm_barrier(nested, nullptr), MP_STATUS_BAD_STATE,
                              {"called the communicator that called it"}));
        }
    }
    static Fake& of(void* payload) { return *static_cast<Fake*>(payload); }
};

TEST(CommCallbacks, AreCalledInOrder) {
    Fake fake;
    mp_comm* out = nullptr;
    ASSERT_TRUE(succeeded(mp_comm_create_callbacks(nullptr, &fake.table, &out)));
    Comm comm(out);
    ASSERT_TRUE(succeeded(mp_comm_barrier(comm, nullptr)));
    EXPECT_EQ(fake.polls_until_done, 0);
    EXPECT_EQ(fake.begun, 1);
    EXPECT_EQ(fake.released, 1);
    EXPECT_TRUE(fails(mp_comm_split(comm, 0, 0, &out), MP_STATUS_UNSUPPORTED, {"no split"}));
    comm.owned.reset();
    EXPECT_EQ(fake.destroyed, 1);
    EXPECT_EQ(fake.aborted, 0);
}

TEST(CommCallbacks, FailuresEndTheCommunicator) {
    for (const bool at_begin : {true, false}) {
        Fake fake;
        (at_begin ? fake.begin_status : fake.poll_status) = MP_STATUS_PEER_LOST;
        mp_comm* out = nullptr;
        ASSERT_TRUE(succeeded(mp_comm_create_callbacks(nullptr, &fake.table, &out)));
        Comm comm(out);
        EXPECT_TRUE(fails(mp_comm_barrier(comm, nullptr), MP_STATUS_PEER_LOST,
                          {"over fake", "returned -44 (MP_STATUS_PEER_LOST)"}));
        EXPECT_EQ(fake.aborted, 1);
        EXPECT_EQ(fake.released, at_begin ? 0 : 1);
        EXPECT_TRUE(fails(mp_comm_barrier(comm, nullptr), MP_STATUS_PEER_LOST, {}));
        EXPECT_EQ(fake.begun, 1) << "never called again";
        comm.owned.reset();
        EXPECT_EQ(fake.destroyed, 1);
    }
    Fake odd;
    odd.poll_status = -1234;
    mp_comm* out = nullptr;
    ASSERT_TRUE(succeeded(mp_comm_create_callbacks(nullptr, &odd.table, &out)));
    const Comm comm(out);
    EXPECT_TRUE(fails(mp_comm_barrier(comm, nullptr), MP_STATUS_CALLBACK_FAILED, {"-1234"}));
}

// Where the functions' language collects garbage at any time.
TEST(CommCallbacks, FinalizersMayRunInThem) {
    Fake fake;
    fake.polls_until_done = 1 << 30;
    mp_comm* out = nullptr;
    ASSERT_TRUE(succeeded(mp_comm_create_callbacks(nullptr, &fake.table, &out)));
    const Comm comm(out);
    mp_comm_request* victim = nullptr;
    mp_comm_request* raw = nullptr;
    ASSERT_TRUE(succeeded(mp_comm_barrier(comm, &victim)));
    ASSERT_TRUE(succeeded(mp_comm_barrier(comm, &raw)));
    const Request waited(raw);
    fake.nested = comm;
    fake.victim = victim;
    EXPECT_TRUE(fails(mp_comm_request_wait(waited), MP_STATUS_ABORTED,
                      {"barrier #0 on rank 0 of 1 over fake", "dropped before it was done"}));
    EXPECT_EQ(fake.released_inside, 0) << "not inside of another function";
    EXPECT_EQ(fake.released, 2);
    EXPECT_EQ(fake.aborted, 1);
}

TEST(CommCallbacks, TimeOut) {
    Fake fake;
    fake.polls_until_done = 1 << 30;
    mp_comm* out = nullptr;
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = 20;
    ASSERT_TRUE(succeeded(mp_comm_create_callbacks(&desc, &fake.table, &out)));
    const Comm comm(out);
    EXPECT_TRUE(fails(mp_comm_barrier(comm, nullptr), MP_STATUS_TIMEOUT, {"not done after 20 ms"}));
    EXPECT_EQ(fake.released, 1);
}

TEST(CommCallbacks, RefusesHalfATable) {
    Fake fake;
    mp_comm* out = nullptr;
    fake.table.rank = 1;
    EXPECT_TRUE(fails(mp_comm_create_callbacks(nullptr, &fake.table, &out),
                      MP_STATUS_INVALID_ARGUMENT, {"rank is 1 and size is 1"}));
    fake.table.rank = 0;
    fake.table.flags = 8;
    EXPECT_TRUE(fails(mp_comm_create_callbacks(nullptr, &fake.table, &out),
                      MP_STATUS_INVALID_ARGUMENT, {"flags"}));
    fake.table.flags = 0;
    fake.table.poll = nullptr;
    EXPECT_TRUE(fails(mp_comm_create_callbacks(nullptr, &fake.table, &out), MP_STATUS_NULL_ARGUMENT,
                      {"poll"}));
    EXPECT_TRUE(fails(mp_comm_create_callbacks(nullptr, nullptr, &out), MP_STATUS_NULL_ARGUMENT,
                      {"callbacks"}));
    EXPECT_EQ(fake.destroyed, 0);
}

} // namespace
} // namespace mp_test
