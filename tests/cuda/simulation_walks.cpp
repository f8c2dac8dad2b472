// SPDX-License-Identifier: Apache-2.0
// Random walks of calls: one twin takes every step as it comes, the other has some of them captured and does those by graphs.
// After each step both have the same bits. MP_WALK_STEPS: how many; MP_WALK_SEED: the first walk's seed.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <random>
#include <unistd.h>

#include "simulation_twin.hpp"

namespace mp::test {
namespace {

constexpr const char* kRecipes[] = {
    "fp32",       "bf16_mixed",       "bf16_pure_kahan", "bf16_pure_sr", "bf16_pure_remainder",
    "fp16_mixed", "fp8_current",      "fp8_delayed",     "fp8_rowwise",  "fp8_block",
    "mxfp8",      "fp8_rowwise_gw_hp"};
constexpr int kStepsOfAWalk = 40;
constexpr std::size_t kMostGraphs = 6;

// A walk that ends the process is told too, for it to be taken again.
char last_words[256];
struct sigaction before_us;
void say_last_words(int) {
    (void)!write(STDERR_FILENO, last_words, std::strlen(last_words));
    (void)sigaction(SIGSEGV, &before_us, nullptr); // it comes again at once
}

class Walk {
  public:
    explicit Walk(uint64_t seed)
        : seed_(seed), random_(seed), recipe_(kRecipes[seed % std::size(kRecipes)]),
          eager_(recipe_), captured_(recipe_) {}

    // False after the first difference or failure, which is told.
    bool take(int step) {
        remember(step, "begins");
        try {
            return expect_same(take_step(step));
        } catch (const std::exception& error) {
            ADD_FAILURE() << last_words << error.what();
            control().misuse = 0; // the next walk is not to blame
            return false;
        }
    }

  private:
    struct Captured {
        Step step;
        Graph graph;
    };

    std::size_t below(std::size_t limit) { return random_() % limit; }
    bool happens(std::size_t one_in) { return below(one_in) == 0; }

    Step random_step(bool can_be_captured) {
        Step step;
        step.queue = below(kTwinQueues);
        step.ends = !happens(4);
        const std::size_t passes = 1 + below(3);
        for (std::size_t i = 0; i < passes; ++i) {
            Pass pass;
            pass.layer = below(kTwinLayers);
            pass.rows = happens(12) ? kTwinRows.size() - 1 : below(kTwinRows.size() - 1);
            if (step.ends) {
                pass.kind = static_cast<Pass::Kind>(below(can_be_captured ? 4 : 5));
                pass.overflows = happens(15);
            }
            step.passes.push_back(pass);
        }
        return step;
    }

    std::string take_step(int number) {
        switch (below(8)) {
        case 0:
        case 1:
            return capture(number);
        case 2:
        case 3:
        case 4:
            return graphs_.empty() ? run_some(number) : replay(number);
        case 5:
            return renew(number);
        default:
            return run_some(number);
        }
    }

    // One or more without waiting between them.
    std::string run_some(int number) {
        remember(number, "does steps");
        for (std::size_t left = 1 + below(3); left > 0; --left) {
            const Step step = random_step(false);
            for (Twin* twin : {&eager_, &captured_}) {
                twin->take_turn(step.queue);
                twin->run(step);
            }
        }
        return "steps";
    }

    // After the same step without a capture, which takes what memory it needs.
    std::string capture(int number) {
        remember(number, "captures a step");
        Captured made;
        made.step = random_step(true);
        for (Twin* twin : {&eager_, &captured_}) {
            twin->take_turn(made.step.queue);
            twin->run(made.step);
        }
        if (happens(3)) {
            run_some(number); // between the two
        }
        captured_.sync();
        record(made);
        graphs_.push_back(std::move(made));
        if (graphs_.size() > kMostGraphs) {
            captured_.sync(); // one in use cannot go
            graphs_.pop_front();
        }
        launch(graphs_.back());
        return "a captured step";
    }

    void record(Captured& made) {
        const cudaStream_t stream = captured_.stream(made.step.queue);
        must_not_fail(MP_SIMULATED(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeGlobal));
        try {
            mp_queue* const queue = captured_.queue(made.step.queue);
            if (happens(3) && mp_queue_sync(queue) != MP_STATUS_BAD_STATE) {
                throw std::runtime_error("a queue that is captured was waited for");
            }
            captured_.run(made.step);
        } catch (...) {
            (void)made.graph.capture(stream);
            throw;
        }
        must_not_fail(made.graph.capture(stream));
    }

    std::string replay(int number) {
        remember(number, "replays graphs");
        for (std::size_t left = 1 + below(2); left > 0; --left) {
            launch(graphs_[below(graphs_.size())]);
        }
        return "a replay";
    }

    void launch(const Captured& one) {
        eager_.take_turn(one.step.queue);
        eager_.run(one.step);
        captured_.take_turn(one.step.queue);
        must_not_fail(one.graph.launch(captured_.stream(one.step.queue)));
    }

    // With the graphs that use what goes.
    std::string renew(int number) {
        remember(number, "makes something anew");
        captured_.sync();
        if (happens(2)) {
            const std::size_t queue = below(kTwinQueues);
            std::erase_if(graphs_, [&](const Captured& one) { return one.step.queue == queue; });
            eager_.renew_queue(queue);
            captured_.renew_queue(queue);
            return "a queue made anew";
        }
        const std::size_t layer = below(kTwinLayers);
        // A step that ends is one of all layers.
        std::erase_if(graphs_, [&](const Captured& one) {
            return one.step.ends ||
                   std::any_of(one.step.passes.begin(), one.step.passes.end(),
                               [&](const Pass& pass) { return pass.layer == layer; });
        });
        eager_.renew_layer(layer);
        captured_.renew_layer(layer);
        return "a layer made anew";
    }

    static void must_not_fail(cudaError_t error) {
        if (error != cudaSuccess) {
            throw std::runtime_error("CUDA's error " + std::to_string(error));
        }
    }

    void remember(int step, const char* what) {
        (void)std::snprintf(last_words, sizeof last_words,
                            "MP_WALK_SEED=%llu MP_WALK_STEPS=%d: recipe %s, step %d %s\n",
                            static_cast<unsigned long long>(seed_), kStepsOfAWalk, recipe_, step,
                            what);
    }

    bool expect_same(const std::string& what) {
        const Twin::Bits expected = eager_.bits();
        for (const auto& [name, bits] : captured_.bits()) {
            if (expected.at(name) != bits) {
                ADD_FAILURE() << last_words << "after " << what << ", " << name << " differs";
                return false;
            }
        }
        if (control().misuse != 0) {
            ADD_FAILURE() << last_words << "a call misused CUDA";
            control().misuse = 0;
            return false;
        }
        return true;
    }

    uint64_t seed_;
    std::mt19937_64 random_;
    const char* recipe_;
    Twin eager_, captured_;
    std::deque<Captured> graphs_;
};

// The host learns of no replay. A graph of forwards alone changes what the end of a step without a backward counts.
TEST(Walks, ReplayedForwardsCountAtTheNextEndOfAStep) {
    ASSERT_EQ(MP_SIMULATED(cudaSetDevice)(0), cudaSuccess);
    Twin eager("fp8_delayed");
    Twin captured("fp8_delayed");
    const Step forward = {0, {{Pass::evaluate, 0, 1, false}}, false};
    const Step end = {0, {{Pass::evaluate, 1, 1, false}}, true};
    eager.run(forward);
    captured.run(forward);
    captured.sync();
    Graph graph;
    ASSERT_EQ(MP_SIMULATED(cudaStreamBeginCapture)(captured.stream(0), cudaStreamCaptureModeGlobal),
              cudaSuccess);
    captured.run(forward);
    ASSERT_EQ(graph.capture(captured.stream(0)), cudaSuccess);
    for (int i = 0; i < 2; ++i) {
        eager.run(end);
        captured.run(end);
        eager.run(forward);
        ASSERT_EQ(graph.launch(captured.stream(0)), cudaSuccess);
    }
    eager.run(end);
    captured.run(end);
    EXPECT_EQ(eager.bits(), captured.bits());
}

uint64_t number_of(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(Walks, GraphsHaveTheBitsOfTheSameSteps) {
    ASSERT_EQ(MP_SIMULATED(cudaSetDevice)(0), cudaSuccess);
    struct sigaction action = {};
    action.sa_handler = say_last_words;
    ASSERT_EQ(sigaction(SIGSEGV, &action, &before_us), 0);
    const auto steps = static_cast<int64_t>(number_of("MP_WALK_STEPS", 600));
    uint64_t seed = number_of("MP_WALK_SEED", 1);
    int64_t taken = 0;
    int failures = 0;
    const Outstanding before;
    for (; taken < steps && failures < 5; ++seed) {
        Walk walk(seed);
        for (int step = 0; step < kStepsOfAWalk; ++step, ++taken) {
            if (!walk.take(step)) {
                ++failures;
                break;
            }
        }
    }
    (void)sigaction(SIGSEGV, &before_us, nullptr);
    EXPECT_TRUE(before == Outstanding()) << "something was not given back";
    std::printf("%lld steps of random walks\n", static_cast<long long>(taken));
}

} // namespace
} // namespace mp::test
