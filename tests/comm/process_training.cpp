// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes train a sharded optimizer, and one is killed or stopped at a random moment. Each survivor has
// a status within the deadline and a second, can destroy its handles, and holds the states of a step that it committed,
// bit for bit those of an undisturbed run; no two survivors are more than one step apart.
// MP_TRIALS=N runs N trials for each stage and kind of end, MP_SEED the moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <unistd.h>

#include "capi/sharded_model.hpp"
#include "forked_ranks.hpp"
#include "hash.hpp"
#include "sockets.hpp"
#include "stalls.hpp"

namespace mp_test {
namespace {

constexpr int32_t kRanks = 3;
constexpr int32_t kVictim = 1;
constexpr int32_t kSteps = 40;
constexpr int64_t kDeadlineMs = 1000; // a busy machine may take half of it for a step

// What a rank tells its parent after a step, or when it has ended.
struct Report {
    int32_t rank = 0;
    mp_status status = MP_STATUS_OK;
    int64_t step = 0;      // committed
    uint64_t hash = 0;     // of this rank's states
    int64_t at_us = 0;     // when the status was known
    int64_t ending_us = 0; // what destroying everything took
    char text[160] = {};
};

mp_sharding_desc sharding_of(int32_t stage) {
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
    sharding.bucket_elements = 20000;
    return sharding;
}

struct TestModel : ShardedModel {
    TestModel(mp_comm* comm, int32_t of_rank, int32_t of_stage)
        : ShardedModel(comm, sharding_of(of_stage)), rank(of_rank), stage(of_stage) {}

    // Weights to and fro, gradients, and the step.
    mp_status train(int64_t step) {
        mp_status status = gather();
        if (status == MP_STATUS_OK) {
            status = backward(step);
        }
        return status == MP_STATUS_OK ? mp_optimizer_step(optimizer, nullptr, nullptr) : status;
    }

    int64_t committed() {
        mp_optimizer_stats stats = {};
        stats.struct_size = sizeof stats;
        EXPECT_TRUE(succeeded(mp_optimizer_get_stats(optimizer, nullptr, &stats)));
        return stats.step;
    }

    uint64_t hash() {
        mp::test::Fnv1a hash;
        for (int32_t i = 0; i < kParams; ++i) {
            int64_t start = 0;
            int64_t count = 0;
            EXPECT_TRUE(succeeded(mp_optimizer_get_slice(optimizer, i, rank, &start, &count)));
            if (stage != 0 && count == 0) {
                continue; // another rank's
            }
            for (const char* name : {"exp_avg", "exp_avg_sq"}) {
                mp_tensor* raw = nullptr;
                EXPECT_TRUE(succeeded(mp_optimizer_get_state(optimizer, i, name, &raw)));
                const Tensor state(raw);
                const auto bytes = bytes_of(state);
                hash.add_bytes(bytes.data(), bytes.size());
            }
        }
        return hash.value();
    }

    int32_t rank;
    int32_t stage;
};

// A rank's whole scenario. It reports when it is sharded, after each step where `tells_steps`, and its end.
template <typename Tell>
void live(const mp_comm_callbacks& table, int32_t stage, bool tells_steps, Tell&& tell) {
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = kDeadlineMs;
    mp_comm* comm = nullptr;
    Report report;
    report.rank = table.rank;
    report.status = mp_comm_create_callbacks(&desc, &table, &comm);
    int64_t ending = 0;
    {
        TestModel test_model(comm, table.rank, stage);
        if (report.status == MP_STATUS_OK) {
            report.status = mp_optimizer_shard(test_model.optimizer, nullptr);
            (void)snprintf(report.text, sizeof report.text, "%s", mp_last_error_message());
        }
        tell(report);
        while (report.status == MP_STATUS_OK && report.step < kSteps) {
            report.status = test_model.train(report.step);
            report.at_us = now_us();
            (void)snprintf(report.text, sizeof report.text, "%s", mp_last_error_message());
            report.step = test_model.committed();
            if (tells_steps || report.status != MP_STATUS_OK) {
                report.hash = test_model.hash();
            }
            if (tells_steps) {
                tell(report);
            }
        }
        ending = now_us();
    }
    mp_comm_destroy(comm);
    report.ending_us = now_us() - ending;
    tell(report);
}

using Family = ForkedRanks<Report>;

Family make_family(int32_t stage, bool tells_steps, int32_t stage_of_victim) {
    Mesh mesh(kRanks);
    Mesh of_optimizer(kRanks);
    return Family(kRanks, [&](int32_t rank, auto&& tell) {
        live(socket_callbacks(mesh, rank, &of_optimizer), rank == kVictim ? stage_of_victim : stage,
             tells_steps, tell);
    });
}

Family make_family(int32_t stage, bool tells_steps) {
    return make_family(stage, tells_steps, stage);
}

using Hashes = std::map<std::pair<int32_t, int64_t>, uint64_t>; // by rank and step

// An undisturbed run, and how long its steps take.
Hashes undisturbed(int32_t stage, int64_t* micros) {
    Family family = make_family(stage, true);
    EXPECT_EQ(family.hear(kRanks).size(), static_cast<std::size_t>(kRanks));
    const int64_t begin = now_us();
    const auto wanted = static_cast<std::size_t>(kRanks * (kSteps + 1));
    const std::vector<Report> reports = family.hear(wanted);
    EXPECT_EQ(reports.size(), wanted);
    *micros = now_us() - begin;
    Hashes hashes;
    for (const Report& report : reports) {
        EXPECT_EQ(report.status, MP_STATUS_OK) << report.text;
        hashes[{report.rank, report.step}] = report.hash;
    }
    return hashes;
}

struct Survivors {
    int64_t struck_us = 0;
    std::vector<Report> reports;
};

// One family, one end.
Survivors lose_one(int32_t stage, int signal, int64_t after_us) {
    Family family = make_family(stage, false);
    EXPECT_EQ(family.hear(kRanks).size(), static_cast<std::size_t>(kRanks));
    (void)usleep(static_cast<useconds_t>(after_us));
    family.signal(kVictim, signal);
    Survivors survivors{now_us(), family.hear(kRanks - 1)};
    std::vector<Report>& reports = survivors.reports;
    const auto of_victim = [](const Report& report) { return report.rank == kVictim; };
    if (std::any_of(reports.begin(), reports.end(), of_victim)) { // it had finished
        const std::vector<Report> rest = family.hear(1);
        reports.insert(reports.end(), rest.begin(), rest.end());
        reports.erase(std::find_if(reports.begin(), reports.end(), of_victim));
    }
    return survivors;
}

// How many survivors were told of the end; 0: all had finished before.
int32_t trial(int32_t stage, int signal, int64_t after_us, const Hashes& hashes) {
    const auto [struck, reports] =
        undisturbed_by_stalls(kDeadlineMs / 2, [&] { return lose_one(stage, signal, after_us); });
    EXPECT_EQ(reports.size(), static_cast<std::size_t>(kRanks - 1)) << "a survivor hangs";
    int32_t told = 0;
    std::vector<int64_t> steps;
    for (const Report& report : reports) {
        EXPECT_LT(report.ending_us, (kDeadlineMs + 1000) * 1000);
        steps.push_back(report.step);
        if (report.status == MP_STATUS_OK) {
            EXPECT_EQ(report.step, kSteps);
            continue;
        }
        ++told;
        EXPECT_TRUE(report.status == MP_STATUS_PEER_LOST || report.status == MP_STATUS_TIMEOUT)
            << report.status << ": " << report.text;
        EXPECT_LT(report.at_us - struck, (kDeadlineMs + 1000) * 1000) << report.text;
        if (report.step > 0) {
            EXPECT_EQ(report.hash, hashes.at({report.rank, report.step}))
                << "rank " << report.rank << " holds no committed state at step " << report.step;
        }
    }
    const auto [first, last] = std::minmax_element(steps.begin(), steps.end());
    EXPECT_TRUE(steps.empty() || *last - *first <= 1) << "survivors are apart";
    return told;
}

int64_t number_from(const char* name, int64_t fallback) {
    const char* text = std::getenv(name);
    return text == nullptr ? fallback : std::atoll(text);
}

class ProcessTraining : public testing::TestWithParam<int32_t> {};

TEST_P(ProcessTraining, SurvivorsHoldACommittedStep) {
    const int32_t stage = GetParam();
    const int64_t trials = number_from("MP_TRIALS", 4);
    int64_t micros = 0;
    const Hashes hashes = undisturbed(stage, &micros);
    std::mt19937_64 random(static_cast<uint64_t>(number_from("MP_SEED", 1) * 4 + stage));
    std::uniform_int_distribution<int64_t> moment(0, micros);
    for (const int signal : {SIGKILL, SIGSTOP}) {
        int64_t told = 0;
        int64_t done = 0;
        // Of a few ends all may by chance come too late, more so where the machine was busy as `micros` were measured.
        while ((done < trials || (told == 0 && done < 20 * trials)) && !HasFailure()) {
            told += trial(stage, signal, moment(random), hashes);
            ++done;
        }
        std::printf("stage %d, signal %d: %lld trials, %lld survivors were told\n", stage, signal,
                    static_cast<long long>(done), static_cast<long long>(told));
        EXPECT_GT(told, 0) << "no end came in time to be seen";
    }
}

INSTANTIATE_TEST_SUITE_P(Stages, ProcessTraining, testing::Values(0, 1, 2, 3));

TEST(ProcessTrainingRanks, ThatDifferAreNamed) {
    Family family = make_family(1, false, 2);
    const std::vector<Report> reports = family.hear(kRanks);
    EXPECT_EQ(reports.size(), static_cast<std::size_t>(kRanks));
    for (const Report& report : reports) {
        EXPECT_EQ(report.status, MP_STATUS_RANK_MISMATCH);
        EXPECT_NE(std::string(report.text).find("rank(s) 1 do not"), std::string::npos)
            << report.text;
    }
}

// The hashes see what they are for: they change with every step, and not with the stage.
TEST(ProcessTrainingHashes, TellStepsApart) {
    int64_t micros = 0;
    const Hashes first = undisturbed(1, &micros);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
        for (int64_t step = 2; step <= kSteps; ++step) {
            EXPECT_NE(first.at({rank, step}), first.at({rank, step - 1}));
        }
    }
    EXPECT_EQ(first, undisturbed(3, &micros));
}

} // namespace
} // namespace mp_test
