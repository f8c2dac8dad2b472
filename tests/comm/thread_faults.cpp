// SPDX-License-Identifier: Apache-2.0
// Thread ranks that leave, stop, or do something else than the others: everyone else gets a status, in time, that
// says who; and from then on that status at once.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>

#include "collectives.hpp"
#include "ranks.hpp"
#include "stalls.hpp"

namespace mp::test {
namespace {

constexpr int64_t kDeadlineMs = 200;

int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void expect_words(const Status& status, const char* words) {
    EXPECT_NE(std::string(status.text()).find(words), std::string::npos) << status.text();
}

// Sticky, at once, the same words; and the communicator can be destroyed.
void expect_ended(Communicator& comm, const Status& first) {
    const mp_test::StallWatch watch;
    const int64_t begin = now_ms();
    for (int i = 0; i < 3; ++i) {
        const Status again = comm.run(comm::Barrier{});
        EXPECT_EQ(again.code(), first.code());
        EXPECT_STREQ(again.text(), first.text());
    }
    const int64_t took_ms = now_ms() - begin;
    EXPECT_LT(took_ms, kDeadlineMs + watch.stalled_ms()) << "a dead communicator waits";
    EXPECT_EQ(comm.status().code(), first.code());
}

TEST(ThreadFaults, RankThatDoesNotComeIsNamed) {
    const mp_test::StallWatch watch;
    std::atomic<int> through{0};
    run_ranks(make_ranks({3, 0}, kDeadlineMs), [&](std::unique_ptr<Communicator>& comm) {
        check(comm->run(comm::Barrier{}, {comm::kDefaultDeadlineMs, nullptr, nullptr}));
        if (comm->rank() == 1) { // alive, but it does not come until the others are through
            while (through < 2) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            const Status late = comm->run(comm::Barrier{});
            EXPECT_EQ(late.code(), Code::peer_lost) << late.text();
            return;
        }
        const int64_t begin = now_ms();
        const Status status = comm->run(comm::Barrier{}, {0, "the agreement", nullptr});
        ++through;
        EXPECT_LT(now_ms() - begin, kDeadlineMs + 1000 + watch.stalled_ms());
        if (status.code() == Code::timeout) {
            EXPECT_GE(now_ms() - begin, kDeadlineMs - 1);
            expect_words(status, "barrier #1 (the agreement) on rank");
            expect_words(status, "ranks not seen: 1");
        } else { // the other one was first, and said so
            EXPECT_EQ(status.code(), Code::peer_lost);
            expect_words(status, "not done after 200 ms");
        }
        expect_ended(*comm, status);
    });
}

TEST(ThreadFaults, DeadlineOfOneCall) {
    const mp_test::StallWatch watch;
    run_ranks(make_ranks({2, 0}), [&](std::unique_ptr<Communicator>& comm) {
        if (comm->rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            return;
        }
        const int64_t begin = now_ms();
        EXPECT_EQ(comm->run(comm::Barrier{}, {50, nullptr, nullptr}).code(), Code::timeout);
        EXPECT_LT(now_ms() - begin, 1050 + watch.stalled_ms());
    });
}

TEST(ThreadFaults, DestroyedRankIsLost) {
    const mp_test::StallWatch watch;
    run_ranks(make_ranks({4, 0}), [&](std::unique_ptr<Communicator>& comm) {
        EXPECT_EQ(check_basics(*comm), "");
        if (comm->rank() == 2) {
            comm.reset();
            return;
        }
        const int64_t begin = now_ms();
        const Status status = comm->run(comm::Barrier{});
        EXPECT_LT(now_ms() - begin, 1000 + watch.stalled_ms())
            << "long before the deadline of 300 s";
        EXPECT_EQ(status.code(), Code::peer_lost);
        expect_ended(*comm, status);
    });
}

// Rank 2 comes when rank 0 has gone: before, the exchange of the others cannot end.
TEST(ThreadFaults, DestroyedInFlight) {
    std::latch begun(2);
    std::latch gone(1);
    run_ranks(make_ranks({3, 0}), [&](std::unique_ptr<Communicator>& comm) {
        Exchange exchange = make_exchange(comm->rank(), 3, 1000, 1);
        CommRequest request;
        if (comm->rank() == 2) {
            gone.wait();
            const Status late = comm->begin(describe(exchange), {}, &request);
            EXPECT_EQ((late.ok() ? request.wait() : late).code(), Code::peer_lost);
            return;
        }
        check(comm->begin(describe(exchange), {}, &request));
        begun.arrive_and_wait();
        if (comm->rank() == 0) {
            comm.reset();
            gone.count_down();
            EXPECT_EQ(request.wait().code(), Code::aborted);
            exchange = {}; // nobody reads it any more
            return;
        }
        const Status status = request.wait();
        EXPECT_EQ(status.code(), Code::peer_lost) << status.text();
    });
}

TEST(ThreadFaults, DroppedRequestEndsTheCommunicator) {
    run_ranks(make_ranks({2, 0}), [](std::unique_ptr<Communicator>& comm) {
        if (comm->rank() == 0) {
            {
                CommRequest request;
                check(comm->begin(comm::Barrier{}, {}, &request));
            }
            const Status status = comm->run(comm::Barrier{});
            EXPECT_EQ(status.code(), Code::aborted);
            expect_words(status, "barrier #0");
            return;
        }
        Status status;
        for (int i = 0; i < 2 && status.ok(); ++i) { // rank 0 had come to the first one
            status = comm->run(comm::Barrier{});
        }
        EXPECT_EQ(status.code(), Code::peer_lost) << status.text();
    });
}

TEST(ThreadFaults, AbortFromAnotherThread) {
    run_ranks(make_ranks({2, 0}), [](std::unique_ptr<Communicator>& comm) {
        if (comm->rank() == 0) {
            std::thread other([&comm] {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                comm->abort(Status::error(Code::aborted, "the disk is full"));
            });
            const Status status = comm->run(comm::Barrier{});
            EXPECT_EQ(status.code(), Code::aborted);
            other.join();
            expect_ended(*comm, status);
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        uint32_t value = 0;
        const Status status = comm->run(comm::MaxU32{&value, 1});
        // Rank 0 may have come to the barrier before it gave up; then the calls differ.
        EXPECT_TRUE(status.code() == Code::peer_lost || status.code() == Code::rank_mismatch)
            << status.text();
    });
}

TEST(ThreadFaults, DifferentCallsAreNamed) {
    run_ranks(make_ranks({3, 0}), [](std::unique_ptr<Communicator>& comm) {
        uint32_t value = 1;
        const Status status =
            comm->rank() == 1 ? comm->run(comm::MaxU32{&value, 1}) : comm->run(comm::Barrier{});
        EXPECT_TRUE(status.code() == Code::rank_mismatch || status.code() == Code::peer_lost);
        if (status.code() == Code::rank_mismatch) {
            expect_words(status, "max_u32");
            expect_words(status, "calls barrier");
        }
        expect_ended(*comm, status);
    });
}

TEST(ThreadFaults, DifferentSizesRootsAndCountsAreNamed) {
    const auto run = [](const char* words, auto call) {
        run_ranks(make_ranks({2, 0}), [&](std::unique_ptr<Communicator>& comm) {
            const Status status = call(*comm);
            ASSERT_TRUE(status.code() == Code::rank_mismatch || status.code() == Code::peer_lost)
                << status.text();
            expect_words(status, words); // a lost rank's reason repeats what it found
        });
    };
    run("root is", [](Communicator& comm) {
        unsigned char byte = 0;
        return comm.run(comm::Broadcast{&byte, 1, comm.rank()});
    });
    run("count is", [](Communicator& comm) {
        std::array<uint32_t, 2> values{};
        return comm.run(comm::MaxU32{values.data(), comm.rank() + 1});
    });
    run("but rank", [](Communicator& comm) {
        std::array<unsigned char, 8> send{};
        std::array<unsigned char, 8> receive{};
        const std::array<int64_t, 2> send_bytes = {2, 2};
        const std::array<int64_t, 2> receive_bytes = {2, comm.rank() == 0 ? 3 : 2};
        const std::array<int64_t, 2> offsets = {0, 4};
        return comm.run(comm::AllToAll{send.data(), send_bytes.data(), offsets.data(),
                                       receive.data(), receive_bytes.data(), offsets.data()});
    });
}

} // namespace
} // namespace mp::test
