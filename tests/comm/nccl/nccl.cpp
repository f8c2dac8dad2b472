// SPDX-License-Identifier: Apache-2.0
// The transport over NCCL, CONTROL FLOW ONLY: a script plays NCCL (mock.hpp). Which calls we make, in which order, with
// which numbers; what we do with "in progress", with errors and with silence; that a communicator that failed is aborted
// once and never called again. That bytes arrive, only GPUs can show.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "comm/communicator.hpp"
#include "comm/nccl/transport.hpp"
#include "mock.hpp"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define MP_HAS_NCCL_HEADER 1
#endif

namespace mp::test {
namespace {

using comm::Communicator;

const comm::NcclApi& api() {
    static const comm::NcclApi table = mock_nccl();
    return table;
}

class Nccl : public testing::Test {
  protected:
    void SetUp() override { renew_script(); }
    void TearDown() override {
        EXPECT_EQ(script().errors, std::vector<std::string>());
        EXPECT_EQ(script().group_depth, 0);
    }

    std::unique_ptr<Communicator> make(int32_t rank, int32_t size, int64_t deadline_ms = 300) {
        comm::NcclUniqueId id{};
        check(api().GetUniqueId(&id) == 0 ? Status() : Status::error(Code::internal, "id"));
        Transport* transport = nullptr;
        check(comm::make_nccl_transport(api(), device_, id, rank, size, deadline_ms, &transport));
        EXPECT_STREQ(transport->name(), "nccl(mock)") << "never taken for the real one";
        return std::make_unique<Communicator>(std::unique_ptr<Transport>(transport), deadline_ms);
    }

    // What is called after the making.
    std::vector<std::string> calls_of(Communicator& comm, Status (*body)(Communicator&)) {
        script().calls.clear();
        const Status status = body(comm);
        EXPECT_TRUE(status.ok()) << status.text();
        return script().calls;
    }

    std::shared_ptr<MockDevice> device_ = std::make_shared<MockDevice>();
};

using Calls = std::vector<std::string>;

Status exchange(Communicator& comm) {
    // To rank 0: 5 bytes, to itself: 3, to rank 2: none; from rank 0: 2, from rank 2: 4.
    static std::array<unsigned char, 8> send{};
    static std::array<unsigned char, 12> receive{};
    const std::array<int64_t, 3> send_bytes = {5, 3, 0};
    const std::array<int64_t, 3> send_offsets = {0, 5, 8};
    const std::array<int64_t, 3> receive_bytes = {2, 3, 4};
    const std::array<int64_t, 3> receive_offsets = {0, 2, 8};
    return comm.all_to_all({send.data(), send_bytes.data(), send_offsets.data(), receive.data(),
                            receive_bytes.data(), receive_offsets.data()});
}

TEST_F(Nccl, ExchangesByGroupedSendsAndReceives) {
    const auto comm = make(1, 3);
    EXPECT_EQ(calls_of(*comm, exchange),
              (Calls{"copy 8", "copy 12", "GroupStart", "Send 3 type 1 1", "Recv 3 type 1 1",
                     "Recv 2 type 1 0", "Send 5 type 1 0", "Recv 4 type 1 2", "GroupEnd", "copy 12",
                     "mark"}));
    EXPECT_EQ(device_->live_blocks, 0);
    EXPECT_EQ(device_->live_marks, 0);
}

TEST_F(Nccl, OtherCollectives) {
    const auto comm = make(0, 2);
    EXPECT_EQ(
        calls_of(*comm,
                 [](Communicator& c) {
                     std::array<uint32_t, 3> values = {1, 2, 3};
                     return c.max_u32(values.data(), 3);
                 }),
        (Calls{"copy 12", "GroupStart", "AllReduce 3 type 3 2", "GroupEnd", "copy 12", "mark"}));
    EXPECT_EQ(
        calls_of(*comm,
                 [](Communicator& c) {
                     std::array<float, 3> values = {1, 2, 3};
                     return c.sum_f32(values.data(), 3);
                 }),
        (Calls{"copy 12", "GroupStart", "AllReduce 3 type 7 0", "GroupEnd", "copy 12", "mark"}));
    EXPECT_EQ(
        calls_of(*comm,
                 [](Communicator& c) {
                     std::array<unsigned char, 6> data{};
                     return c.broadcast(data.data(), 6, 1);
                 }),
        (Calls{"copy 6", "GroupStart", "Broadcast 6 type 1 1", "GroupEnd", "copy 6", "mark"}));
    EXPECT_EQ(
        calls_of(*comm, [](Communicator& c) { return c.barrier(); }),
        (Calls{"copy 4", "GroupStart", "AllReduce 1 type 3 2", "GroupEnd", "copy 4", "mark"}));
    EXPECT_EQ(calls_of(*comm, [](Communicator& c) { return c.broadcast(nullptr, 0, 0); }),
              (Calls{"GroupStart", "GroupEnd", "mark"}));
}

// A stream, which may be in a capture.
class TestQueue final : public Queue {
  public:
    uint64_t number = 0;
    Status sync() noexcept override { return {}; }
    [[nodiscard]] void* native() const noexcept override { return const_cast<TestQueue*>(this); }
    Status capture(uint64_t* out) noexcept override {
        *out = number;
        return {};
    }
};

TEST_F(Nccl, DeviceMemoryIsNotStagedAndItsStreamComesFirst) {
    const auto comm = make(0, 2);
    std::array<float, 2> values{};
    device_->device_memory.insert(values.data());
    script().calls.clear();
    TestQueue queue;
    EXPECT_TRUE(comm->sum_f32(values.data(), 2, {0, nullptr, &queue}).ok());
    EXPECT_EQ(script().calls, (Calls{"GroupStart", "AllReduce 2 type 7 0", "GroupEnd", "mark"}));
    EXPECT_EQ(device_->waited_for, std::vector<void*>{&queue});
}

TEST_F(Nccl, ACaptureIsRefusedBeforeAnythingIsBegun) {
    const auto comm = make(0, 2);
    std::array<float, 2> values{};
    device_->device_memory.insert(values.data());
    script().calls.clear();
    TestQueue queue;
    queue.number = 7;
    const Status status = comm->sum_f32(values.data(), 2, {0, nullptr, &queue});
    EXPECT_EQ(status.code(), Code::bad_state);
    EXPECT_NE(std::string(status.text()).find("captured into a graph"), std::string::npos)
        << status.text();
    EXPECT_EQ(script().calls, Calls());
    EXPECT_TRUE(device_->waited_for.empty());
    EXPECT_EQ(comm->sequence(), 0U);
    queue.number = 0;
    EXPECT_TRUE(comm->sum_f32(values.data(), 2, {0, nullptr, &queue}).ok());
}

TEST_F(Nccl, WaitsWhileNcclIsBusy) {
    script().busy_polls =
        5; // after each call that may take time; the mock objects to calls meanwhile
    device_->polls_until_reached = 3;
    auto comm = make(0, 2);
    std::vector<comm::CommRequest> requests(3);
    for (comm::CommRequest& request : requests) {
        ASSERT_TRUE(comm->begin_barrier({}, &request).ok());
    }
    EXPECT_EQ(script().count("GroupStart"), 1) << "the next one waits for its turn";
    for (comm::CommRequest& request : requests) {
        EXPECT_TRUE(request.wait().ok());
    }
    EXPECT_EQ(script().count("GroupStart"), 3);
    comm.reset();
    EXPECT_EQ(script().count("CommFinalize"), 1);
    EXPECT_EQ(script().count("CommDestroy"), 1);
    EXPECT_EQ(script().count("CommAbort"), 0);
}

TEST_F(Nccl, ErrorsAbortOnceAndForEver) {
    struct Case {
        int result;
        Code code;
    };
    for (const Case& c : {Case{6, Code::peer_lost}, Case{2, Code::nccl_error},
                          Case{8, Code::nccl_error}, Case{99, Code::nccl_error}}) {
        SetUp();
        auto comm = make(0, 2);
        ASSERT_TRUE(comm->barrier().ok());
        device_->polls_until_reached = 1 << 30;
        comm::CommRequest request;
        ASSERT_TRUE(comm->begin_barrier({}, &request).ok());
        script().answer = c.result;
        const Status status = request.wait();
        EXPECT_EQ(status.code(), c.code) << status.text();
        EXPECT_NE(std::string(status.text()).find("its last words"), std::string::npos);
        EXPECT_EQ(comm->barrier().code(), c.code);
        comm.reset();
        EXPECT_EQ(script().count("CommAbort"), 1);
        EXPECT_EQ(script().count("CommDestroy") + script().count("CommFinalize"), 0);
        EXPECT_TRUE(device_->is_abandoned);
        EXPECT_EQ(device_->live_blocks, 1) << "the device may still use it";
        device_ = std::make_shared<MockDevice>();
        TearDown();
    }
}

TEST_F(Nccl, FailingCallsAbort) {
    for (const char* name : {"GroupStart", "Send", "Recv", "GroupEnd"}) {
        SetUp();
        auto comm = make(1, 3);
        script().results[name] = 4;
        const Status status = exchange(*comm);
        EXPECT_EQ(status.code(), Code::nccl_error) << status.text();
        EXPECT_NE(std::string(status.text()).find(std::string("nccl") + name), std::string::npos)
            << status.text();
        comm.reset();
        EXPECT_EQ(script().count("CommAbort"), 1) << name;
        script().group_depth = 0; // a GroupStart that failed began nothing
        device_ = std::make_shared<MockDevice>();
        TearDown();
    }
}

// Others do not say goodbye: it waits no longer than its deadline, and then a group of it does not wait again.
TEST_F(Nccl, GoodbyesEndAtTheDeadlineToo) {
    auto comm = make(0, 2, 30);
    std::unique_ptr<Communicator> part;
    ASSERT_TRUE(comm->split(0, 0, &part).ok());
    script().hangs_in = "CommFinalize";
    const int64_t begin = monotonic_ns();
    comm.reset();
    EXPECT_GE(monotonic_ns() - begin, 30 * int64_t{1000000});
    EXPECT_EQ(script().count("CommFinalize"), 1);
    EXPECT_EQ(script().count("CommAbort"), 1);
    EXPECT_EQ(script().count("CommDestroy"), 0);
    const int64_t asked = script().asked;
    part.reset();
    EXPECT_EQ(script().asked - asked, 1) << "once, for it may have ended";
    EXPECT_EQ(script().count("CommAbort"), 2);
}

TEST_F(Nccl, SilenceEndsAtTheDeadline) {
    auto comm = make(0, 2, 30);
    script().never_ends = true;
    EXPECT_EQ(comm->barrier().code(), Code::timeout);
    comm.reset();
    EXPECT_EQ(script().count("CommAbort"), 1);

    SetUp();
    device_ = std::make_shared<MockDevice>();
    script().never_ends = true;
    try {
        (void)make(0, 2, 30);
        FAIL() << "it was made";
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::timeout);
    }
    EXPECT_EQ(script().count("CommAbort"), 1);
}

TEST_F(Nccl, AbortFromOutside) {
    auto comm = make(0, 2);
    comm->abort(Status::error(Code::aborted, "enough"));
    EXPECT_EQ(comm->barrier().code(), Code::aborted);
    comm.reset();
    EXPECT_EQ(script().count("CommAbort"), 1);
}

TEST_F(Nccl, CallersCommunicator) {
    script().size = 4;
    script().rank = 2;
    MockComm own;
    Transport* transport = nullptr;
    ASSERT_TRUE(comm::wrap_nccl_transport(api(), device_, &own, &transport).ok());
    {
        Communicator comm{std::unique_ptr<Transport>(transport)};
        EXPECT_EQ(comm.size(), 4);
        EXPECT_EQ(comm.rank(), 2);
        EXPECT_TRUE(comm.barrier().ok());
    }
    EXPECT_EQ(script().count("CommDestroy") + script().count("CommFinalize"), 0)
        << "it is not ours";
    script().device = 1;
    EXPECT_EQ(comm::wrap_nccl_transport(api(), device_, &own, &transport).code(),
              Code::invalid_argument);
    EXPECT_EQ(comm::wrap_nccl_transport(api(), device_, nullptr, &transport).code(),
              Code::invalid_argument);
}

TEST_F(Nccl, Split) {
    const auto comm = make(0, 1);
    std::unique_ptr<Communicator> part;
    ASSERT_TRUE(comm->split(0, 7, &part).ok());
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(script().count("CommSplit 0 7"), 1);
    EXPECT_TRUE(part->barrier().ok());
    std::unique_ptr<Communicator> none;
    ASSERT_TRUE(comm->split(-1, 0, &none).ok());
    EXPECT_EQ(none, nullptr);
}

// It has a stream and a pool of its own, which go with it.
TEST_F(Nccl, AGroupHasAStreamOfItsOwn) {
    const auto comm = make(0, 1);
    std::unique_ptr<Communicator> part;
    ASSERT_TRUE(comm->split(0, 0, &part).ok());
    ASSERT_EQ(device_->others.size(), 1U);
    const auto own = device_->others.front().lock();
    ASSERT_NE(own, nullptr);
    EXPECT_NE(own->stream(), device_->stream());
}

TEST_F(Nccl, ASplitTakesAHandleThatComesLate) {
    script().split_ms = 20;
    script().busy_polls = 3;
    const auto comm = make(0, 1);
    comm::CommRequest before;
    ASSERT_TRUE(comm->begin_barrier({}, &before).ok());
    std::unique_ptr<Communicator> part;
    const Status status = comm->split(0, 0, &part);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_TRUE(before.wait().ok());
    EXPECT_TRUE(part->barrier().ok());
}

// NCCL's thread may still write the handle of the group: it is ended, and what it has made.
TEST_F(Nccl, ASplitThatTakesTooLongLeavesNothingBehind) {
    auto comm = make(0, 1);
    script().hangs_in = "CommSplit";
    std::unique_ptr<Communicator> part;
    const Status status = comm->split(0, 0, &part, {30, nullptr, nullptr});
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_NE(std::string(status.text()).find("not done after 30 ms"), std::string::npos)
        << status.text();
    ASSERT_EQ(script().comms.size(), 2U);
    EXPECT_FALSE(script().comms[0].is_splitting) << "it writes into memory that is gone";
    EXPECT_TRUE(script().comms[0].is_dead);
    EXPECT_TRUE(script().comms[1].is_dead) << "a group that nobody has";
    const Status later = comm->barrier();
    EXPECT_EQ(later.code(), Code::timeout) << later.text();
    comm.reset();
    EXPECT_EQ(script().count("CommAbort"), 2);
}

TEST_F(Nccl, AnErrorOfASplitEndsBoth) {
    script().split_ms = 20;
    const auto comm = make(0, 1);
    script().results["CommSplit"] = 2;
    std::unique_ptr<Communicator> part;
    EXPECT_EQ(comm->split(0, 0, &part).code(), Code::nccl_error);
    EXPECT_TRUE(script().comms[0].is_dead);
    EXPECT_EQ(comm->barrier().code(), Code::nccl_error);
}

TEST_F(Nccl, ASplitCanBeAborted) {
    const auto comm = make(0, 1, 20000);
    script().hangs_in = "CommSplit";
    std::unique_ptr<Communicator> part;
    Status status;
    const int64_t begin = monotonic_ns();
    std::thread splits([&] { status = comm->split(0, 0, &part); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    comm->abort(Status::error(Code::aborted, "enough"));
    splits.join();
    EXPECT_EQ(status.code(), Code::aborted) << status.text();
    EXPECT_LT(monotonic_ns() - begin, 5 * int64_t{1000000000}) << "it waited for the split";
}

// ---- one order for the communicators of a GPU

// A communicator and a group of it, of two ranks.
struct Pair {
    std::unique_ptr<Communicator> all;
    std::unique_ptr<Communicator> part;
};

class NcclOrders : public Nccl {
  protected:
    Pair make_pair() {
        Pair pair;
        pair.all = make(0, 1);
        check(pair.all->split(0, 0, &pair.part));
        script().calls.clear();
        return pair;
    }
};

TEST_F(NcclOrders, WhoIsReadyDoesNotOvertake) {
    const Pair pair = make_pair();
    comm::CommRequest first;
    comm::CommRequest second;
    script().busy_polls = 5; // the first one is not ready for a while
    ASSERT_TRUE(pair.all->begin_barrier({}, &first).ok());
    script().busy_polls = 0;
    ASSERT_TRUE(pair.part->begin_barrier({}, &second).ok());
    EXPECT_EQ(script().count("GroupStart"), 1) << "the group's overtook";
    EXPECT_TRUE(second.wait().ok()) << "who waits for the second drives the first";
    EXPECT_EQ(script().calls,
              (Calls{"copy 4", "GroupStart", "AllReduce 1 type 3 2", "GroupEnd", "copy 4", "mark",
                     "copy 4", "GroupStart", "AllReduce 1 type 3 2 of comm 1", "GroupEnd", "copy 4",
                     "mark"}));
    EXPECT_EQ(static_cast<MockDevice&>(*device_->others.front().lock()).waited_for_marks, 1)
        << "the kernels are in this order, too";
    EXPECT_TRUE(first.wait().ok());
    // What is over is not waited for, nor what is in the same stream.
    EXPECT_TRUE(pair.all->barrier().ok());
    EXPECT_TRUE(pair.all->barrier().ok());
    EXPECT_EQ(device_->waited_for_marks, 0);
}

TEST_F(NcclOrders, AFailureIsItsCommunicatorsOwn) {
    const Pair pair = make_pair();
    comm::CommRequest first;
    comm::CommRequest second;
    script().busy_polls = 5;
    ASSERT_TRUE(pair.all->begin_barrier({}, &first).ok());
    script().busy_polls = 0;
    ASSERT_TRUE(pair.part->begin_barrier({}, &second).ok());
    pair.all->abort(Status::error(Code::aborted, "enough"));
    EXPECT_TRUE(second.wait().ok());
    EXPECT_EQ(first.wait().code(), Code::aborted);
    EXPECT_TRUE(pair.part->barrier().ok());
}

TEST(NcclTable, SaysWhatIsMissing) {
    comm::NcclApi api;
    comm::fill_nccl(
        api,
        [](void*, const char* name) -> void* {
            static const auto version = [](int* out) { return *out = 21700, 0; };
            if (std::strcmp(name, "ncclCommSplit") == 0 ||
                std::strcmp(name, "ncclCommAbort") == 0) {
                return nullptr;
            }
            return reinterpret_cast<void*>(static_cast<int (*)(int*)>(version));
        },
        nullptr);
    EXPECT_FALSE(api.is_there());
    const std::string text = api.reason.c_str();
    EXPECT_NE(text.find("version 21700"), std::string::npos) << text;
    EXPECT_NE(text.find("ncclCommAbort, ncclCommSplit"), std::string::npos) << text;
}

#ifdef MP_HAS_NCCL_HEADER
TEST(NcclTable, MirrorsTheHeader) {
    EXPECT_EQ(sizeof(comm::NcclUniqueId), sizeof(ncclUniqueId));
    EXPECT_EQ(offsetof(comm::NcclConfig, magic), offsetof(ncclConfig_t, magic));
    EXPECT_EQ(offsetof(comm::NcclConfig, blocking), offsetof(ncclConfig_t, blocking));
    EXPECT_EQ(offsetof(comm::NcclConfig, net_name), offsetof(ncclConfig_t, netName));
    EXPECT_EQ(offsetof(comm::NcclConfig, split_share), offsetof(ncclConfig_t, splitShare));
    EXPECT_EQ(comm::kNcclUint8, ncclUint8);
    EXPECT_EQ(comm::kNcclUint32, ncclUint32);
    EXPECT_EQ(comm::kNcclFloat32, ncclFloat32);
    EXPECT_EQ(comm::kNcclSum, ncclSum);
    EXPECT_EQ(comm::kNcclMax, ncclMax);
    EXPECT_EQ(comm::kNcclRemoteError, ncclRemoteError);
    EXPECT_EQ(comm::kNcclInProgress, ncclInProgress);
    EXPECT_EQ(comm::kNcclNoColor, NCCL_SPLIT_NOCOLOR);
}
#endif

} // namespace
} // namespace mp::test
