// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes train a sharded optimizer, and one is killed or stopped at a random moment. Each survivor has
// a status within the deadline and a second, can destroy its handles, and holds the states of a step that it committed,
// bit for bit those of an undisturbed run; no two survivors are more than one step apart.
// MP_TRIALS=N runs N trials for each stage and kind of end, MP_SEED the moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <random>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/support.hpp"
#include "sockets.hpp"

namespace mp_test {
namespace {

constexpr int32_t kRanks = 3;
constexpr int32_t kVictim = 1;
constexpr int32_t kSteps = 40;
constexpr int64_t kDeadlineMs = 1000; // a busy machine may take half of it for a step
constexpr std::array<int64_t, 4> kSizes = {40000, 7, 0, 20000};

int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// What a rank tells its parent after a step, or when it has ended.
struct Report {
    int32_t rank = 0;
    mp_status status = MP_STATUS_OK;
    int64_t step = 0;        // committed
    uint64_t hash = 0;       // of this rank's states
    int64_t at_us = 0;       // when the status was known
    int64_t ending_us = 0;   // what destroying everything took
    bool has_failed = false; // a check of the rank's own
    char text[160] = {};
};

class Rank {
  public:
    Rank(mp_comm* comm, int32_t rank, int32_t stage) : rank_(rank), stage_(stage) {
        mp_zero_desc zero = MP_ZERO_DESC_INIT;
        zero.zero_stage = stage;
        zero.bucket_elements = 20000;
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = 1.0;
        mp_optimizer* raw = nullptr;
        EXPECT_TRUE(
            succeeded(mp_optimizer_create_sharded(context_, recipe_, &desc, comm, &zero, &raw)));
        optimizer_ = Optimizer(raw);
        int32_t group = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer_, nullptr, &group)));
        for (std::size_t i = 0; i < kSizes.size(); ++i) {
            params_.push_back(make_tensor(context_, MP_DTYPE_FP32, {kSizes[i]},
                                          numbers(static_cast<std::size_t>(kSizes[i]), i + 1)));
            const std::string name = 'p' + std::to_string(i);
            mp_param_desc param = MP_PARAM_DESC_INIT;
            param.name = name.c_str();
            param.param = params_.back();
            EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer_, group, &param, nullptr)));
        }
    }

    mp_status shard() { return mp_optimizer_shard(optimizer_, nullptr); }

    // Weights to and fro, gradients that differ by step, and the step.
    mp_status train(int64_t step) {
        constexpr std::array<int32_t, 4> kAll = {0, 1, 2, 3};
        mp_status status = mp_optimizer_gather_begin(optimizer_, nullptr, kAll.data(), 4);
        if (status == MP_STATUS_OK) {
            status = mp_optimizer_gather_wait(optimizer_, nullptr, kAll.data(), 4);
        }
        for (int32_t i = 4; i-- > 0 && status == MP_STATUS_OK;) {
            status = write_gradient(i, step);
        }
        return status == MP_STATUS_OK ? mp_optimizer_step(optimizer_, nullptr, nullptr) : status;
    }

    int64_t committed() {
        mp_optimizer_stats stats = {};
        stats.struct_size = sizeof stats;
        EXPECT_TRUE(succeeded(mp_optimizer_get_stats(optimizer_, nullptr, &stats)));
        return stats.step;
    }

    uint64_t hash() {
        uint64_t hash = 0xcbf29ce484222325U;
        for (int32_t i = 0; i < 4; ++i) {
            int64_t start = 0;
            int64_t count = 0;
            EXPECT_TRUE(succeeded(mp_optimizer_piece(optimizer_, i, rank_, &start, &count)));
            if (stage_ != 0 && count == 0) {
                continue; // another rank's
            }
            for (const char* name : {"exp_avg", "exp_avg_sq"}) {
                mp_tensor* raw = nullptr;
                EXPECT_TRUE(succeeded(mp_optimizer_state(optimizer_, i, name, &raw)));
                const Tensor state(raw);
                for (const unsigned char byte : bytes_of(state)) {
                    hash = (hash ^ byte) * 0x100000001b3U;
                }
            }
        }
        return hash;
    }

  private:
    mp_status write_gradient(int32_t i, int64_t step) {
        mp_status status = mp_optimizer_acquire_grad(optimizer_, nullptr, i);
        mp_tensor* raw = nullptr;
        if (status == MP_STATUS_OK) {
            status = mp_optimizer_state(optimizer_, i, "grad", &raw);
        }
        const Tensor grad(raw);
        std::vector<float> values(static_cast<std::size_t>(kSizes[static_cast<std::size_t>(i)]));
        for (std::size_t k = 0; k < values.size(); ++k) {
            values[k] = static_cast<float>((static_cast<int64_t>(k) * 7 + step * 3 + i) % 15 - 7);
        }
        if (status == MP_STATUS_OK) {
            status = mp_tensor_write(nullptr, grad, values.data(), values.size() * sizeof(float));
        }
        return status == MP_STATUS_OK ? mp_optimizer_grad_ready(optimizer_, nullptr, i) : status;
    }

    int32_t rank_;
    int32_t stage_;
    Context context_ = make_context(1);
    Recipe recipe_ = make_recipe(context_, "fp32");
    Optimizer optimizer_;
    std::vector<Tensor> params_;
};

void tell(int pipe, Report& report) {
    report.has_failed = testing::Test::HasFailure();
    (void)!write(pipe, &report, sizeof report);
}

// A rank's whole life. It reports when it is sharded, after each step where `tells_steps`, and its end.
void live(const std::array<Mesh*, 2>& sockets, int32_t rank, int32_t stage, bool tells_steps,
          int pipe) {
    const mp_comm_callbacks table = socket_callbacks(*sockets[0], rank, sockets[1]);
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = kDeadlineMs;
    mp_comm* comm = nullptr;
    Report report;
    report.rank = rank;
    report.status = mp_comm_create_callbacks(&desc, &table, &comm);
    int64_t ending = 0;
    {
        Rank trainee(comm, rank, stage);
        if (report.status == MP_STATUS_OK) {
            report.status = trainee.shard();
        }
        tell(pipe, report);
        while (report.status == MP_STATUS_OK && report.step < kSteps) {
            report.status = trainee.train(report.step);
            report.at_us = now_us();
            (void)snprintf(report.text, sizeof report.text, "%s", mp_last_error_message());
            report.step = trainee.committed();
            if (tells_steps || report.status != MP_STATUS_OK) {
                report.hash = trainee.hash();
            }
            if (tells_steps) {
                tell(pipe, report);
            }
        }
        ending = now_us();
    }
    mp_comm_destroy(comm);
    report.ending_us = now_us() - ending;
    tell(pipe, report);
}

// The ranks as processes, and what they say.
class Family {
  public:
    Family(int32_t stage, bool tells_steps) {
        Mesh mesh(kRanks);
        Mesh of_optimizer(kRanks);
        EXPECT_EQ(pipe(results_.data()), 0);
        for (int32_t rank = 0; rank < kRanks; ++rank) {
            const pid_t child = fork();
            if (child == 0) {
                (void)close(results_[0]);
                live({&mesh, &of_optimizer}, rank, stage, tells_steps, results_[1]);
                _exit(0);
            }
            ranks_.push_back(child);
        }
        mesh.close_all();
        of_optimizer.close_all();
        (void)close(results_[1]);
        (void)fcntl(results_[0], F_SETFL, O_NONBLOCK);
    }
    ~Family() {
        (void)close(results_[0]);
        for (const pid_t rank : ranks_) {
            (void)kill(rank, SIGKILL);
            (void)waitpid(rank, nullptr, 0);
        }
    }
    Family(const Family&) = delete;
    Family& operator=(const Family&) = delete;

    // So many reports, or those that came in twenty seconds.
    std::vector<Report> hear(std::size_t count) {
        std::vector<Report> reports;
        for (const int64_t end = now_us() + 20'000'000; now_us() < end && reports.size() < count;) {
            Report report;
            if (read(results_[0], &report, sizeof report) == static_cast<ssize_t>(sizeof report)) {
                EXPECT_FALSE(report.has_failed) << "rank " << report.rank;
                reports.push_back(report);
            } else {
                (void)usleep(500);
            }
        }
        return reports;
    }

    void strike(int signal) { (void)kill(ranks_[kVictim], signal); }

  private:
    std::array<int, 2> results_{};
    std::vector<pid_t> ranks_;
};

using Hashes = std::map<std::pair<int32_t, int64_t>, uint64_t>; // by rank and step

// An undisturbed run, and how long its steps take.
Hashes undisturbed(int32_t stage, int64_t* micros) {
    Family family(stage, true);
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

// One family, one end. How many survivors were told of it; 0: all had finished before.
int32_t trial(int32_t stage, int signal, int64_t after_us, const Hashes& hashes) {
    Family family(stage, false);
    EXPECT_EQ(family.hear(kRanks).size(), static_cast<std::size_t>(kRanks));
    (void)usleep(static_cast<useconds_t>(after_us));
    family.strike(signal);
    const int64_t struck = now_us();
    std::vector<Report> reports = family.hear(kRanks - 1);
    const auto of_victim = [](const Report& report) { return report.rank == kVictim; };
    if (std::any_of(reports.begin(), reports.end(), of_victim)) { // it had finished
        const std::vector<Report> rest = family.hear(1);
        reports.insert(reports.end(), rest.begin(), rest.end());
        reports.erase(std::find_if(reports.begin(), reports.end(), of_victim));
    }
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
        for (int64_t i = 0; i < trials && !HasFailure(); ++i) {
            told += trial(stage, signal, moment(random), hashes);
        }
        std::printf("stage %d, signal %d: %lld trials, %lld survivors were told\n", stage, signal,
                    static_cast<long long>(trials), static_cast<long long>(told));
        EXPECT_GT(told, 0) << "no end came in time to be seen";
    }
}

INSTANTIATE_TEST_SUITE_P(Stages, ProcessTraining, testing::Values(0, 1, 2, 3));

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
