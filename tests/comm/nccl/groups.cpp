// SPDX-License-Identifier: Apache-2.0
// The transport over NCCL, CONTROL FLOW ONLY: groups that are split off, also late or never, and the order of several
// communicators of one GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "fixture.hpp"

namespace mp::test {
namespace {

TEST_F(Nccl, Split) {
    const auto comm = make(0, 1);
    std::unique_ptr<Communicator> part;
    ASSERT_TRUE(comm->split(0, 7, &part).ok());
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(script().count("CommSplit 0 7"), 1);
    EXPECT_TRUE(part->run(comm::Barrier{}).ok());
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
    ASSERT_TRUE(comm->begin(comm::Barrier{}, {}, &before).ok());
    std::unique_ptr<Communicator> part;
    const Status status = comm->split(0, 0, &part);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_TRUE(before.wait().ok());
    EXPECT_TRUE(part->run(comm::Barrier{}).ok());
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
    const Status later = comm->run(comm::Barrier{});
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
    EXPECT_EQ(comm->run(comm::Barrier{}).code(), Code::nccl_error);
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
    ASSERT_TRUE(pair.all->begin(comm::Barrier{}, {}, &first).ok());
    script().busy_polls = 0;
    ASSERT_TRUE(pair.part->begin(comm::Barrier{}, {}, &second).ok());
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
    EXPECT_TRUE(pair.all->run(comm::Barrier{}).ok());
    EXPECT_TRUE(pair.all->run(comm::Barrier{}).ok());
    EXPECT_EQ(device_->waited_for_marks, 0);
}

TEST_F(NcclOrders, AFailureIsItsCommunicatorsOwn) {
    const Pair pair = make_pair();
    comm::CommRequest first;
    comm::CommRequest second;
    script().busy_polls = 5;
    ASSERT_TRUE(pair.all->begin(comm::Barrier{}, {}, &first).ok());
    script().busy_polls = 0;
    ASSERT_TRUE(pair.part->begin(comm::Barrier{}, {}, &second).ok());
    pair.all->abort(Status::error(Code::aborted, "enough"));
    EXPECT_TRUE(second.wait().ok());
    EXPECT_EQ(first.wait().code(), Code::aborted);
    EXPECT_TRUE(pair.part->run(comm::Barrier{}).ok());
}

} // namespace
} // namespace mp::test
