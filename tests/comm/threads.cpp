// SPDX-License-Identifier: Apache-2.0
// Communicators over thread ranks: what arrives, what is counted, groups, arguments.
#include <gtest/gtest.h>

#include <array>

#include "collectives.hpp"
#include "ranks.hpp"

namespace mp::test {
namespace {

class Threads : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Threads, testing::Values(1, 2, 3, 4, 8));

TEST_P(Threads, MoveBytes) {
    run_ranks(GetParam(), [](Communicator& comm) { EXPECT_EQ(check_basics(comm), ""); });
}

TEST_P(Threads, Split) {
    run_ranks(GetParam(), [](Communicator& comm) {
        EXPECT_EQ(check_split(comm), "");
        EXPECT_EQ(check_split(comm), "");
    });
}

TEST_P(Threads, CountTheirBytes) {
    run_ranks(GetParam(), [](Communicator& comm) {
        const int32_t others = comm.size() - 1;
        const auto count = static_cast<std::size_t>(comm.size());
        std::vector<unsigned char> send(10 * count);
        std::vector<unsigned char> receive(10 * count);
        const std::vector<int64_t> bytes(count, 10);
        std::vector<int64_t> offsets(count);
        for (std::size_t i = 0; i < count; ++i) {
            offsets[i] = static_cast<int64_t>(10 * i);
        }
        check(comm.run(comm::AllToAll{send.data(), bytes.data(), offsets.data(), receive.data(),
                                      bytes.data(), offsets.data()}));
        EXPECT_EQ(comm.traffic().total_bytes(), 10 * others);
        check(comm.run(
            comm::AllGather{send.data(), 10, receive.data(), bytes.data(), offsets.data()}));
        EXPECT_EQ(comm.traffic().total_bytes(), 20 * others);
        check(comm.run(comm::Broadcast{send.data(), 5, 0}));
        EXPECT_EQ(comm.traffic().total_bytes(), (comm.rank() == 0 ? 25 : 20) * others);
        uint32_t value = 0;
        check(comm.run(comm::MaxU32{&value, 1}));
        check(comm.run(comm::Barrier{}));
        EXPECT_EQ(comm.traffic().bytes[static_cast<std::size_t>(CollectiveKind::max_u32)],
                  others > 0 ? 4 : 0);
        EXPECT_EQ(comm.traffic().calls[static_cast<std::size_t>(CollectiveKind::barrier)], 1);
        EXPECT_EQ(comm.sequence(), 5U);
    });
}

TEST(ThreadRanks, GatherInPlace) {
    run_ranks(3, [](Communicator& comm) {
        std::array<int32_t, 3> values{};
        values[static_cast<std::size_t>(comm.rank())] = comm.rank() + 7;
        const std::array<int64_t, 3> bytes = {4, 4, 4};
        const std::array<int64_t, 3> offsets = {0, 4, 8};
        check(comm.run(comm::AllGather{values.data() + comm.rank(), 4, values.data(), bytes.data(),
                                       offsets.data()}));
        EXPECT_EQ(values, (std::array<int32_t, 3>{7, 8, 9}));
    });
}

TEST(ThreadRanks, KnowTheirNodes) {
    run_ranks(make_ranks({5, 2}), [](std::unique_ptr<Communicator>& comm) {
        EXPECT_EQ(comm->node(comm->rank()), comm->rank() / 2);
        std::unique_ptr<Communicator> odd;
        check(comm->split(comm->rank() % 2 == 1 ? 0 : -1, 0, &odd));
        if (odd != nullptr) {
            EXPECT_EQ(odd->node(0), 0);
            EXPECT_EQ(odd->node(1), 1);
        }
        check(comm->learn_nodes(comm->rank() == 2 ? 99 : 5));
        for (int32_t rank = 0; rank < 5; ++rank) {
            EXPECT_EQ(comm->node(rank), rank == 2 ? 1 : 0);
        }
    });
}

TEST(ThreadRanks, AreSeenByPolling) {
    run_ranks(2, [](Communicator& comm) {
        CommRequest request;
        check(comm.begin(comm::Barrier{}, {}, &request));
        EXPECT_EQ(comm.begin(comm::Barrier{}, {}, &request).code(), Code::bad_state)
            << "it is in use";
        bool done = false;
        while (!done) {
            check(request.test(&done));
        }
        EXPECT_FALSE(request.is_open());
        EXPECT_TRUE(request.wait().ok()) << "nothing is left to wait for";
    });
}

TEST(ThreadRanks, RefuseWrongArgumentsWithoutHarm) {
    run_ranks(2, [](Communicator& comm) {
        std::array<unsigned char, 4> data{};
        const std::array<int64_t, 2> good = {2, 2};
        const std::array<int64_t, 2> negative = {2, -1};
        const std::array<int64_t, 2> offsets = {0, 2};
        AllToAll what{data.data(), good.data(), offsets.data(),
                      data.data(), good.data(), offsets.data()};
        const auto code_of = [&](auto change) {
            AllToAll wrong = what;
            change(wrong);
            return comm.run(wrong).code();
        };
        EXPECT_EQ(code_of([](AllToAll& w) { w.send = nullptr; }), Code::null_argument);
        EXPECT_EQ(code_of([](AllToAll& w) { w.send_bytes = nullptr; }), Code::null_argument);
        EXPECT_EQ(code_of([](AllToAll& w) { w.receive_offsets = nullptr; }), Code::null_argument);
        EXPECT_EQ(code_of([&](AllToAll& w) { w.send_bytes = negative.data(); }),
                  Code::invalid_argument);
        EXPECT_EQ(comm.run(comm::Broadcast{data.data(), 4, 2}).code(), Code::invalid_argument);
        EXPECT_EQ(comm.run(comm::MaxU32{nullptr, 1}).code(), Code::null_argument);
        EXPECT_EQ(comm.run(comm::Barrier{}, {-1, nullptr, nullptr}).code(), Code::invalid_argument);
        float value = 0.0F;
        EXPECT_EQ(comm.run(comm::SumF32{&value, 1}).code(), Code::unsupported);
        EXPECT_EQ(comm.sequence(), 0U);
        EXPECT_TRUE(comm.run(comm::Barrier{}).ok());
    });
    EXPECT_THROW((void)comm::make_thread_transports({0, 0}), Error);
}

} // namespace
} // namespace mp::test
