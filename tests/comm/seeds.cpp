// SPDX-License-Identifier: Apache-2.0
// 1,000 seeds of the simulated network: whatever is delayed, reordered, dropped, stopped or corrupted, every rank
// that can return does, with the right bytes or with a status that says what happened; and a seed replays exactly.
// MP_SEED runs one seed alone.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "collectives.hpp"
#include "simulation.hpp"

namespace mp::test {
namespace {

constexpr int64_t kDeadlineMs = 60;
constexpr uint64_t kSeeds = 1000;

struct Outcome {
    Status status;
    std::string wrong; // what was received is not what was sent
    bool is_sticky = true;
};

struct Record {
    uint64_t trace = 0;
    bool was_corrupted = false;
    int64_t turns = 0;
    std::vector<Outcome> ranks;
};

SimFaults faults_of(std::mt19937_64& random, int32_t size) {
    const auto below = [&](uint64_t bound) { return random() % bound; };
    SimFaults faults;
    faults.after_turns = static_cast<int64_t>(below(300));
    const auto rank = static_cast<int32_t>(below(static_cast<uint64_t>(size)));
    switch (below(5)) {
    case 1:
        faults.dropped = rank;
        break;
    case 2:
        faults.dropped = rank;
        faults.is_drop_seen = false;
        break;
    case 3:
        faults.stopped = rank;
        break;
    case 4:
        faults.corrupt_message = static_cast<int32_t>(below(40));
        break;
    default:
        break;
    }
    return faults;
}

void take_steps(Communicator& comm, Outcome& outcome) {
    for (uint64_t step = 0; step < 4 && outcome.status.ok(); ++step) {
        std::array<Exchange, 2> exchanges = {make_exchange(comm.rank(), comm.size(), 1, step),
                                             make_exchange(comm.rank(), comm.size(), 2, step + 50)};
        std::array<CommRequest, 2> requests;
        std::array<uint32_t, 2> agreement = {static_cast<uint32_t>(comm.rank()), 3};
        Status status = comm.begin(describe(exchanges[0]), {}, requests.data());
        status = status.ok() ? comm.begin(describe(exchanges[1]), {}, &requests[1]) : status;
        status = status.ok() ? comm.run(comm::MaxU32{agreement.data(), 2}) : status;
        status = status.ok() ? requests[1].wait() : status;
        status = status.ok() ? requests[0].wait() : status;
        status =
            status.ok() ? comm.run(comm::Barrier{}, {0, "the end of a step", nullptr}) : status;
        outcome.status = status;
        if (!status.ok()) {
            return; // what is still open fails with the same
        }
        for (const Exchange& exchange : exchanges) {
            outcome.wrong += check_exchange(exchange, comm.rank(), comm.size());
        }
        if (agreement[0] != static_cast<uint32_t>(comm.size() - 1) || agreement[1] != 3) {
            outcome.wrong += "the agreement";
        }
    }
}

Record run_seed(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto size = static_cast<int32_t>(2 + random() % 4);
    const uint64_t world_seed = random();
    SimWorld world(size, world_seed, faults_of(random, size));
    Record run;
    run.ranks.resize(static_cast<std::size_t>(size));
    world.run(kDeadlineMs, [&](int32_t rank, Communicator& comm) {
        Outcome& outcome = run.ranks[static_cast<std::size_t>(rank)];
        take_steps(comm, outcome);
        if (!outcome.status.ok()) {
            const Status again = comm.run(comm::Barrier{});
            outcome.is_sticky = again.code() == outcome.status.code();
        }
        for (const char* c = outcome.status.text(); *c != '\0'; ++c) {
            world.note(static_cast<unsigned char>(*c));
        }
    });
    run.trace = world.trace();
    run.was_corrupted = world.was_corrupted();
    run.turns = world.turns();
    return run;
}

// What must hold, whatever the seed.
std::string violation(uint64_t seed, const Record& run) {
    std::mt19937_64 random(seed);
    const auto size = static_cast<int32_t>(2 + random() % 4);
    (void)random();
    const SimFaults faults = faults_of(random, size);
    const bool is_fault_free = faults.dropped < 0 && faults.stopped < 0;
    bool was_noticed = false;
    std::string found;
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const Outcome& outcome = run.ranks[rank];
        const Code code = outcome.status.code();
        const bool is_own = static_cast<int32_t>(rank) == faults.dropped && code == Code::internal;
        const bool is_known =
            code == Code::ok || code == Code::timeout || code == Code::peer_lost || is_own;
        was_noticed = was_noticed || !outcome.wrong.empty();
        if (!is_known || !outcome.is_sticky || (is_fault_free && code != Code::ok) ||
            (!run.was_corrupted && !outcome.wrong.empty())) {
            found += "rank " + std::to_string(rank) + ": " + outcome.status.text() + " " +
                     outcome.wrong + "\n";
        }
    }
    if (run.was_corrupted && !was_noticed) {
        found += "a corrupted byte was not noticed\n";
    }
    return found;
}

TEST(Simulation, Seeds) {
    const char* alone = std::getenv("MP_SEED");
    const uint64_t first = alone != nullptr ? std::strtoull(alone, nullptr, 10) : 1;
    const uint64_t end = alone != nullptr ? first + 1 : kSeeds + 1;
    std::array<int, 4> counts{}; // ok, timeout, peer_lost, own end
    int corrupted = 0;
    int64_t turns = 0;
    for (uint64_t seed = first; seed < end; ++seed) {
        const Record run = run_seed(seed);
        const std::string found = violation(seed, run);
        ASSERT_EQ(found, "") << "MP_SEED=" << seed;
        const Record again = run_seed(seed);
        ASSERT_EQ(run.trace, again.trace) << "MP_SEED=" << seed << " does not replay";
        turns += run.turns;
        corrupted += run.was_corrupted ? 1 : 0;
        for (const Outcome& outcome : run.ranks) {
            const Code code = outcome.status.code();
            ++counts[code == Code::ok          ? 0
                     : code == Code::timeout   ? 1
                     : code == Code::peer_lost ? 2
                                               : 3];
        }
    }
    std::printf("%llu seeds, %lld turns; ranks that ended well %d, by timeout %d, by a lost rank "
                "%d, dropped %d; "
                "%d corrupted bytes, all noticed\n",
                static_cast<unsigned long long>(end - first), static_cast<long long>(turns),
                counts[0], counts[1], counts[2], counts[3], corrupted);
    if (alone == nullptr) { // each kind of end has come
        for (const int count : counts) {
            EXPECT_GT(count, 20);
        }
        EXPECT_GT(corrupted, 20);
    }
}

} // namespace
} // namespace mp::test
