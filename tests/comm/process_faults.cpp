// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, over the caller's callbacks: one is killed, stopped, ends, gives up or does something else,
// in every phase of a step; each survivor has a status within the deadline and a second, keeps it, and can destroy its
// handle.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>
#include <unistd.h>

#include "forked_ranks.hpp"
#include "sockets.hpp"
#include "stalls.hpp"

namespace mp_test {
namespace {

constexpr int32_t kRanks = 4;
constexpr int32_t kVictim = 2;
constexpr int32_t kFaultStep = 3;
constexpr int64_t kDeadlineMs = 300;
constexpr int64_t kBytes =
    200000; // more than a socket takes at once: the fault is in the middle of a message

enum class Fault { none, kill, stop, exit, abort, destroy, other_call, other_size };
enum class Phase { agreement, exchange, in_exchange, gather, in_gather, broadcast, barrier };

struct Report {
    int32_t rank = 0;
    int32_t steps = 0;
    mp_status status = 0;
    mp_status again = 0;
    int64_t waited_ms = 0; // in the call that failed
    int64_t ending_ms = 0; // the second call, and the destruction
    char text[200] = {};
};

int64_t now_ms() { return now_us() / 1000; }

// The buffers and sizes of one rank.
struct Work {
    std::vector<unsigned char> send = std::vector<unsigned char>(kRanks * kBytes, 1);
    std::vector<unsigned char> receive = std::vector<unsigned char>(kRanks * kBytes);
    std::array<int64_t, kRanks> bytes{};
    std::array<int64_t, kRanks> offsets{};
    mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
    std::array<uint32_t, 8> agreement{};

    Work() {
        for (std::size_t i = 0; i < kRanks; ++i) {
            bytes[i] = kBytes;
            offsets[i] = static_cast<int64_t>(i) * kBytes;
        }
        exchange.send = send.data();
        exchange.send_bytes = bytes.data();
        exchange.send_offsets = offsets.data();
        exchange.receive = receive.data();
        exchange.receive_bytes = bytes.data();
        exchange.receive_offsets = offsets.data();
    }
};

// The victim's end. Does not return, but for faults that are only wrong calls.
void strike(Fault fault, mp_comm* comm, Work& work) {
    switch (fault) {
    case Fault::none:
        return;
    case Fault::kill:
        (void)raise(SIGKILL);
        return;
    case Fault::stop:
        (void)raise(SIGSTOP); // until the parent kills it
        return;
    case Fault::exit:
        _exit(0);
    case Fault::abort:
        (void)mp_comm_abort(comm, "the disk is full");
        break;
    case Fault::destroy:
        mp_comm_destroy(comm);
        break;
    case Fault::other_call:
        (void)mp_comm_broadcast(comm, nullptr, work.send.data(), 8, kVictim, nullptr);
        break;
    case Fault::other_size:
        work.bytes[0] -= 8;
        (void)mp_comm_all_to_all(comm, nullptr, &work.exchange, nullptr);
        break;
    }
    (void)usleep(static_cast<useconds_t>(2000 * kDeadlineMs)); // alive while the others find out
    _exit(0);
}

// One phase; in the fault's step and phase the victim strikes before it, or with its operation begun.
mp_status run_phase(Phase phase, mp_comm* comm, Work& work, Fault fault) {
    mp_comm_request* request = nullptr;
    mp_status status = MP_STATUS_OK;
    switch (phase) {
    case Phase::agreement:
        strike(fault, comm, work);
        return mp_comm_max_u32(comm, work.agreement.data(), 8, nullptr);
    case Phase::exchange:
        strike(fault, comm, work);
        return mp_comm_all_to_all(comm, nullptr, &work.exchange, nullptr);
    case Phase::in_exchange:
        status = mp_comm_all_to_all(comm, nullptr, &work.exchange, &request);
        break;
    case Phase::gather:
        strike(fault, comm, work);
        return mp_comm_all_gather(comm, nullptr, &work.exchange, nullptr);
    case Phase::in_gather:
        status = mp_comm_all_gather(comm, nullptr, &work.exchange, &request);
        break;
    case Phase::broadcast:
        strike(fault, comm, work);
        return mp_comm_broadcast(comm, nullptr, work.receive.data(), kBytes, kVictim, nullptr);
    case Phase::barrier:
        strike(fault, comm, work);
        return mp_comm_barrier(comm, nullptr);
    }
    if (status == MP_STATUS_OK && fault != Fault::none) {
        (void)mp_comm_request_test(request); // some of it is on its way
        strike(fault, comm, work);
    }
    status = status == MP_STATUS_OK ? mp_comm_request_wait(request) : status;
    mp_comm_request_destroy(request);
    return status;
}

Report run_rank(Mesh& mesh, int32_t rank, Fault fault, Phase at) {
    constexpr std::array<Phase, 7> kPhases = {
        Phase::agreement, Phase::exchange,  Phase::in_exchange, Phase::gather,
        Phase::in_gather, Phase::broadcast, Phase::barrier};
    Report report;
    report.rank = rank;
    const mp_comm_callbacks table = socket_callbacks(mesh, rank);
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = kDeadlineMs;
    mp_comm* comm = nullptr;
    report.status = mp_comm_create_callbacks(&desc, &table, &comm);
    Work work;
    for (; report.steps < 6 && report.status == MP_STATUS_OK; ++report.steps) {
        for (const Phase phase : kPhases) {
            const bool strikes = rank == kVictim && report.steps == kFaultStep && phase == at;
            const int64_t begin = now_ms();
            report.status = run_phase(phase, comm, work, strikes ? fault : Fault::none);
            report.waited_ms = now_ms() - begin;
            if (report.status != MP_STATUS_OK) {
                (void)snprintf(report.text, sizeof report.text, "%s", mp_last_error_message());
                --report.steps;
                break;
            }
        }
    }
    const int64_t begin = now_ms();
    report.again = mp_comm_barrier(comm, nullptr);
    mp_comm_destroy(comm);
    report.ending_ms = now_ms() - begin;
    return report;
}

// What each rank reports. One that reports nothing in time is not in the result.
std::vector<Report> run_ranks(Fault fault, Phase at) {
    Mesh mesh(kRanks);
    ForkedRanks<Report> ranks(
        kRanks, [&](int32_t rank, auto&& tell) { tell(run_rank(mesh, rank, fault, at)); });
    mesh.close_all();
    return ranks.hear(static_cast<std::size_t>(kRanks - (fault == Fault::none ? 0 : 1)));
}

TEST(ProcessRanks, DoTheirSteps) {
    const std::vector<Report> reports = run_ranks(Fault::none, Phase::agreement);
    ASSERT_EQ(reports.size(), static_cast<std::size_t>(kRanks));
    for (const Report& report : reports) {
        EXPECT_EQ(report.status, MP_STATUS_OK) << report.text;
        EXPECT_EQ(report.steps, 6);
    }
}

class ProcessFaults : public testing::TestWithParam<std::tuple<Fault, Phase>> {};

TEST_P(ProcessFaults, SurvivorsReturn) {
    const auto [fault, phase] = GetParam();
    const std::vector<Report> reports = undisturbed_by_stalls(
        kDeadlineMs / 2, [fault = fault, phase = phase] { return run_ranks(fault, phase); });
    ASSERT_EQ(reports.size(), static_cast<std::size_t>(kRanks - 1)) << "a survivor hangs";
    for (const Report& report : reports) {
        EXPECT_NE(report.rank, kVictim);
        EXPECT_TRUE(report.status == MP_STATUS_PEER_LOST || report.status == MP_STATUS_TIMEOUT ||
                    report.status == MP_STATUS_RANK_MISMATCH)
            << report.status << ": " << report.text;
        EXPECT_EQ(report.again, report.status) << "the failure does not stay";
        EXPECT_LT(report.waited_ms, kDeadlineMs + 1000);
        EXPECT_LT(report.ending_ms, 500);
        EXPECT_EQ(report.steps, kFaultStep) << "finished steps; " << report.text;
        EXPECT_NE(std::string(report.text).find("over sockets"), std::string::npos) << report.text;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ProcessFaults,
    testing::Combine(testing::Values(Fault::kill, Fault::stop, Fault::exit, Fault::abort,
                                     Fault::destroy, Fault::other_call, Fault::other_size),
                     testing::Values(Phase::agreement, Phase::exchange, Phase::in_exchange,
                                     Phase::gather, Phase::in_gather, Phase::broadcast,
                                     Phase::barrier)));

} // namespace
} // namespace mp_test
