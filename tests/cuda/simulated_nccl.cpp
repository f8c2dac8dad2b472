// SPDX-License-Identifier: Apache-2.0
// What must come before a collective and what may come after it, over NCCL: one order of kernels, and the bits of the host.
#include "simulated_nccl.hpp"

#include <chrono>
#include <deque>
#include <random>

namespace mp::test {
namespace {

// ---- collectives at random ----------------------------------------------------------------------

constexpr int64_t kWalkCount = 257; // elements a rank gives

// Collectives of several communicators in flight, of memory that a queue writes right before and reads right after.
class Walk {
  public:
    Walk(Rank& rank, int steps) : rank_(rank), steps_(steps) {
        comms_.emplace_back(group_of(rank.comm, 0, rank.number));
        comms_.emplace_back(group_of(rank.comm, rank.number % 2, -rank.number));
        comms_.emplace_back(group_of(rank.comm, rank.number / 2, rank.number));
    }

    // The same numbers on every rank, so all begin the same; when they wait is each one's own.
    void run() {
        std::minstd_rand common(7);
        std::minstd_rand own(static_cast<unsigned>(rank_.number) + 100);
        for (int step = 0; step < steps_ && !::testing::Test::HasFailure(); ++step) {
            const mp_comm* before = comms_[common() % comms_.size()];
            begin(const_cast<mp_comm*>(before), static_cast<int32_t>(common() % 3), step);
            while (!flights_.empty() && (flights_.size() > 4 || own() % 3 == 0)) {
                end(own() % flights_.size());
            }
        }
        while (!flights_.empty()) {
            end(0);
        }
    }

  private:
    struct Flight {
        int32_t kind = 0;
        int step = 0;
        std::vector<int32_t> members; // of the communicator, as ranks of all
        Tensor source;
        Tensor result;
        std::vector<int64_t> bytes;
        std::vector<int64_t> offsets;
        Request request;
    };

    static float value(int32_t rank, int step) { return static_cast<float>(rank * 1000 + step); }

    [[nodiscard]] std::vector<int32_t> members_of(mp_comm* comm) const {
        std::vector<int32_t> members;
        for (int32_t i = 0; i < rank_.count; ++i) {
            const bool is_in = comm == comms_[0] || (comm == comms_[1] ? i % 2 == rank_.number % 2
                                                                       : i / 2 == rank_.number / 2);
            if (is_in) {
                members.push_back(i);
            }
        }
        if (comm == comms_[1]) {
            std::reverse(members.begin(), members.end()); // by their keys
        }
        return members;
    }

    void begin(mp_comm* comm, int32_t kind, int step) {
        Flight& flight = flights_.emplace_back();
        flight.kind = kind;
        flight.step = step;
        flight.members = members_of(comm);
        const auto size = static_cast<int64_t>(flight.members.size());
        flight.source = rank_.tensor(kWalkCount * (kind == 1 ? 1 : size));
        flight.result = rank_.tensor(kWalkCount * size);
        flight.bytes.assign(static_cast<std::size_t>(size), 4 * kWalkCount);
        for (int64_t i = 0; i < size; ++i) {
            flight.offsets.push_back(4 * kWalkCount * i);
        }
        rank_.fill(kind == 2 ? flight.result : flight.source, value(rank_.number, step));
        mp_comm_request* request = nullptr;
        if (kind == 2) {
            EXPECT_TRUE(succeeded(mp_comm_broadcast(comm, rank_.queue, memory_of(flight.result),
                                                    4 * kWalkCount * size,
                                                    step % static_cast<int32_t>(size), &request)));
        } else {
            mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
            exchange.send = memory_of(flight.source);
            exchange.receive = memory_of(flight.result);
            exchange.send_bytes = exchange.receive_bytes = flight.bytes.data();
            exchange.send_offsets = exchange.receive_offsets = flight.offsets.data();
            EXPECT_TRUE(succeeded((kind == 1 ? mp_comm_all_gather : mp_comm_all_to_all)(
                comm, rank_.queue, &exchange, &request)));
        }
        flight.request = Request(request);
    }

    void end(std::size_t index) {
        const auto at = flights_.begin() + static_cast<std::ptrdiff_t>(index);
        EXPECT_TRUE(succeeded(mp_comm_request_wait(at->request)));
        std::vector<float> expected;
        const std::size_t size = at->members.size();
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t from = at->kind == 2 ? static_cast<std::size_t>(at->step) % size : i;
            expected.insert(expected.end(), kWalkCount, value(at->members[from], at->step));
        }
        EXPECT_EQ(values_of(rank_.context, at->result), expected)
            << "step " << at->step << ", kind " << at->kind;
        flights_.erase(at);
    }

    Rank& rank_;
    int steps_;
    std::vector<Comm> comms_;
    std::deque<Flight> flights_;
};

TEST_P(SimulatedNccl, CollectivesOfManyCommunicatorsAtRandom) {
    run(GetParam(), [](Rank& rank) { Walk(rank, 60).run(); });
}

// A sum begins a message when others have arrived, in whatever order they are looked at.
TEST_P(SimulatedNccl, SumsOfTwoCommunicatorsEndInAnyOrder) {
    run(GetParam(), [](Rank& rank) {
        const Comm part(group_of(rank.comm, 0, -rank.number));
        const Tensor source = rank.tensor(1000);
        rank.fill(source, 1.0F);
        const mp_tensor* sources[] = {source};
        std::vector<Tensor> sums;
        std::deque<Request> open;
        for (int i = 0; i < 4; ++i) {
            sums.push_back(rank.tensor(1000));
            mp_comm_request* request = nullptr;
            MP_OK(mp_comm_all_reduce(i % 2 == 0 ? rank.comm : part, rank.queue, nullptr, sources, 1,
                                     sums.back(), &request));
            open.emplace_back(request);
        }
        // The first two have begun all they have, since others were begun after them. Meanwhile the others arrive.
        for (int i = 0; i < 2; ++i) {
            MP_OK(mp_comm_request_wait(open.front()));
            open.pop_front();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::rotate(open.begin(), open.begin() + rank.number % 2, open.end());
        while (!open.empty()) {
            Request next = std::move(open.front());
            open.pop_front();
            const mp_status status = mp_comm_request_test(next);
            if (status == MP_STATUS_NOT_READY) {
                open.push_back(std::move(next));
            } else {
                MP_OK(status);
            }
        }
        for (const Tensor& sum : sums) {
            EXPECT_EQ(values_of(rank.context, sum),
                      std::vector<float>(1000, static_cast<float>(rank.count)));
        }
    });
}

// ---- training -------------------------------------------------------------------------------------

TEST_P(SimulatedNccl, TrainsWithTheBitsOfRanksOnTheHost) {
    const int32_t count = GetParam();
    for (const char* recipe : {"bf16_mixed", "bf16_pure_sr"}) {
        for (const int32_t stage : {0, 1, 2, 3}) {
            SCOPED_TRACE(std::string(recipe) + ", stage " + std::to_string(stage));
            std::vector<std::vector<unsigned char>> host(static_cast<std::size_t>(count));
            run_ranks(count, [&](mp_comm* comm, int32_t rank) {
                const Context context = make_context(1);
                host[static_cast<std::size_t>(rank)] = train(context, comm, recipe, stage, rank);
            });
            for (const uint32_t flags : {0U, MP_OPTIMIZER_OFFLOAD}) {
                run(count, [&](Rank& rank) {
                    EXPECT_EQ(train(rank.context, rank.comm, recipe, stage, rank.number, flags),
                              host[static_cast<std::size_t>(rank.number)])
                        << "flags " << flags;
                });
            }
            RankOptions lent = {recipe, stage};
            lent.lends = true;
            run(count, [&](Rank& rank) {
                EXPECT_EQ(train(rank.context, rank.comm, lent, rank.number),
                          host[static_cast<std::size_t>(rank.number)])
                    << "in memory of the caller's";
            });
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SimulatedNccl, ::testing::Values(4, 8));

} // namespace
} // namespace mp::test
