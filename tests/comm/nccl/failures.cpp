// SPDX-License-Identifier: Apache-2.0
// The transport over NCCL, CONTROL FLOW ONLY, with errors and with silence: a communicator that failed is aborted once and never
// called again.
#include <gtest/gtest.h>

#include "fixture.hpp"

namespace mp::test {
namespace {

TEST_F(Nccl, ErrorsAbortOnceAndForEver) {
    struct Case {
        int result;
        Code code;
    };
    for (const Case& c : {Case{6, Code::peer_lost}, Case{2, Code::nccl_error},
                          Case{8, Code::nccl_error}, Case{99, Code::nccl_error}}) {
        SetUp();
        auto comm = make(0, 2);
        ASSERT_TRUE(comm->run(comm::Barrier{}).ok());
        device_->polls_until_reached = 1 << 30;
        comm::CommRequest request;
        ASSERT_TRUE(comm->begin(comm::Barrier{}, {}, &request).ok());
        script().answer = c.result;
        const Status status = request.wait();
        EXPECT_EQ(status.code(), c.code) << status.text();
        EXPECT_NE(std::string(status.text()).find("its last words"), std::string::npos);
        EXPECT_EQ(comm->run(comm::Barrier{}).code(), c.code);
        comm.reset();
        EXPECT_EQ(script().count("CommAbort"), 1);
        EXPECT_EQ(script().count("CommDestroy") + script().count("CommFinalize"), 0);
        EXPECT_TRUE(device_->is_broken);
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
    EXPECT_EQ(comm->run(comm::Barrier{}).code(), Code::timeout);
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
    EXPECT_EQ(comm->run(comm::Barrier{}).code(), Code::aborted);
    comm.reset();
    EXPECT_EQ(script().count("CommAbort"), 1);
}

} // namespace
} // namespace mp::test
