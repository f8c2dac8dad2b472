// SPDX-License-Identifier: Apache-2.0
// The transport over NCCL, CONTROL FLOW ONLY: a script plays NCCL (mock.hpp). Which calls we make, in which order, with
// which numbers; what we do with "in progress"; what of NCCL's header we mirror. That bytes arrive, only GPUs can show.
#include <gtest/gtest.h>

#include "fixture.hpp"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define MP_HAS_NCCL_HEADER 1
#endif

namespace mp::test {
namespace {

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
                     return c.run(comm::MaxU32{values.data(), 3});
                 }),
        (Calls{"copy 12", "GroupStart", "AllReduce 3 type 3 2", "GroupEnd", "copy 12", "mark"}));
    EXPECT_EQ(
        calls_of(*comm,
                 [](Communicator& c) {
                     std::array<float, 3> values = {1, 2, 3};
                     return c.run(comm::SumF32{values.data(), 3});
                 }),
        (Calls{"copy 12", "GroupStart", "AllReduce 3 type 7 0", "GroupEnd", "copy 12", "mark"}));
    EXPECT_EQ(
        calls_of(*comm,
                 [](Communicator& c) {
                     std::array<unsigned char, 6> data{};
                     return c.run(comm::Broadcast{data.data(), 6, 1});
                 }),
        (Calls{"copy 6", "GroupStart", "Broadcast 6 type 1 1", "GroupEnd", "copy 6", "mark"}));
    EXPECT_EQ(
        calls_of(*comm, [](Communicator& c) { return c.run(comm::Barrier{}); }),
        (Calls{"copy 4", "GroupStart", "AllReduce 1 type 3 2", "GroupEnd", "copy 4", "mark"}));
    EXPECT_EQ(calls_of(*comm,
                       [](Communicator& c) {
                           return c.run(comm::Broadcast{nullptr, 0, 0});
                       }),
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
    EXPECT_TRUE(comm->run(comm::SumF32{values.data(), 2}, {0, nullptr, &queue}).ok());
    EXPECT_EQ(script().calls, (Calls{"GroupStart", "AllReduce 2 type 7 0", "GroupEnd", "mark"}));
    EXPECT_EQ(device_->waited_for, std::vector<void*>{&queue});
}

TEST_F(Nccl, AQueueFollowsOnceNcclHasTheKernel) {
    script().busy_polls = 30;
    device_->polls_until_reached = 1000000;
    auto comm = make(0, 2);
    std::array<float, 2> values{};
    device_->device_memory.insert(values.data());
    TestQueue queue;
    comm::CommRequest request;
    ASSERT_TRUE(comm->begin(comm::SumF32{values.data(), 2}, {0, nullptr, &queue}, &request).ok());
    bool follows = true;
    ASSERT_TRUE(request.test(&follows, &queue).ok());
    EXPECT_FALSE(follows) << "NCCL is still busy with it";
    EXPECT_TRUE(device_->followers.empty());
    ASSERT_TRUE(request.wait(&queue).ok());
    EXPECT_EQ(device_->followers, std::vector<void*>{&queue});
    EXPECT_TRUE(request.is_open()) << "the host has not seen its end";
    device_->polls_until_reached = 2;
    comm.reset(); // waits for what the queue follows
    EXPECT_EQ(script().count("CommAbort"), 0);
    EXPECT_TRUE(request.wait().ok());
    EXPECT_FALSE(request.is_open());
}

TEST_F(Nccl, WhatComesBackToTheHostIsFollowedByNobody) {
    const auto comm = make(0, 2);
    std::array<float, 2> values{};
    TestQueue queue;
    comm::CommRequest request;
    ASSERT_TRUE(comm->begin(comm::SumF32{values.data(), 2}, {0, nullptr, &queue}, &request).ok());
    ASSERT_TRUE(request.wait(&queue).ok());
    EXPECT_TRUE(device_->followers.empty());
    EXPECT_FALSE(request.is_open()) << "it was waited for";
}

TEST_F(Nccl, ACaptureIsRefusedBeforeAnythingIsBegun) {
    const auto comm = make(0, 2);
    std::array<float, 2> values{};
    device_->device_memory.insert(values.data());
    script().calls.clear();
    TestQueue queue;
    queue.number = 7;
    const Status status = comm->run(comm::SumF32{values.data(), 2}, {0, nullptr, &queue});
    EXPECT_EQ(status.code(), Code::bad_state);
    EXPECT_NE(std::string(status.text()).find("captured into a graph"), std::string::npos)
        << status.text();
    EXPECT_EQ(script().calls, Calls());
    EXPECT_TRUE(device_->waited_for.empty());
    EXPECT_EQ(comm->sequence(), 0U);
    queue.number = 0;
    EXPECT_TRUE(comm->run(comm::SumF32{values.data(), 2}, {0, nullptr, &queue}).ok());
}

TEST_F(Nccl, WaitsWhileNcclIsBusy) {
    script().busy_polls =
        5; // after each call that may take time; the mock objects to calls meanwhile
    device_->polls_until_reached = 3;
    auto comm = make(0, 2);
    std::vector<comm::CommRequest> requests(3);
    for (comm::CommRequest& request : requests) {
        ASSERT_TRUE(comm->begin(comm::Barrier{}, {}, &request).ok());
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
        EXPECT_TRUE(comm.run(comm::Barrier{}).ok());
    }
    EXPECT_EQ(script().count("CommDestroy") + script().count("CommFinalize"), 0)
        << "it is not ours";
    script().device = 1;
    EXPECT_EQ(comm::wrap_nccl_transport(api(), device_, &own, &transport).code(),
              Code::invalid_argument);
    EXPECT_EQ(comm::wrap_nccl_transport(api(), device_, nullptr, &transport).code(),
              Code::invalid_argument);
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
