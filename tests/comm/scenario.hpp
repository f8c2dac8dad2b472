// SPDX-License-Identifier: Apache-2.0
// A rank's scenario, phase by phase: it shards, trains, saves, trains on, loads what it saved and trains again. However it
// ends, the states are those of a committed step, and what lies on the disk is whole.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "checkpoint/checkpointer.hpp"
#include "faulty_transport.hpp"
#include "hash.hpp"
#include "test_model.hpp"

namespace mp::test {

// A folder that goes with this object.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "mixedprec-XXXXXX").string();
        if (::mkdtemp(name.data()) != nullptr) {
            path_ = name;
        }
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

// Of the tree's order, so that the bits are those of every number of ranks.
inline Training training_of_scenario(int32_t stage) {
    Training run;
    run.recipe = recipe::find_preset("bf16_mixed_dual").recipe;
    run.sharding.stage = stage;
    run.sharding.bucket_elements = 30000;
    run.sharding.order = comm::SumOrder::tree;
    run.slots = run.sharding.slots = 8;
    return run;
}

// Of this rank's shares: what only a step changes.
inline uint64_t states_of(TestModel& test_model) {
    Fnv1a hash;
    for (int32_t i = 0; i < test_model.optimizer().parameters().count(); ++i) {
        if (test_model.optimizer().sharding()->weights().own_slice(i).count == 0) {
            continue;
        }
        const bool is_matrix = model()[static_cast<std::size_t>(i)].ndim == 2; // else no master
        for (const char* name : {"exp_avg", "exp_avg_sq", is_matrix ? "master" : "exp_avg"}) {
            const auto state = test_model.optimizer().parameters().state(i, name);
            hash.add_bytes(state->data(), state->bytes());
        }
    }
    return hash.value();
}

inline constexpr int64_t kSavedStep = 2;

// Of a test_model's optimizer alone, by these ranks; null: one rank.
inline std::unique_ptr<checkpoint::Checkpointer> checkpointer_of(TestModel& test_model,
                                                                 Communicator* comm) {
    auto made = std::make_unique<checkpoint::Checkpointer>(test_model.context(), comm,
                                                           checkpoint::CheckpointerOptions{});
    made->add(checkpoint::stateful_optimizer(
        std::shared_ptr<optim::Optimizer>(std::shared_ptr<void>(), &test_model.optimizer())));
    return made;
}

class Scenario {
  public:
    Scenario(const Training& run, std::shared_ptr<Communicator> comm, std::string folder,
             std::shared_ptr<PlannedFault> fault)
        : run_(run), fault_(std::move(fault)), folder_(std::move(folder)), comm_(std::move(comm)) {}

    // To the end, or to the first call that fails.
    void run() {
        try {
            begin();
            train(0);
            train(1);
            save();
            train(2);
            load();
            train(2); // again
        } catch (const Error& error) {
            status_ = error.status();
            waited_ms_ = (fault_->waited_ns - waited_before_ns_) / 1000000;
        }
        if (model_ != nullptr && model_->optimizer().sharding() != nullptr) {
            step_ = model_->optimizer().tables().read_state(model_->stream()).step;
            states_[step_] = states_of(*model_);
        }
    }

    [[nodiscard]] const Status& status() const noexcept { return status_; }
    // What the call that failed waited for messages.
    [[nodiscard]] int64_t waited_ms() const noexcept { return waited_ms_; }
    // The last committed step; -1: it never came to be sharded.
    [[nodiscard]] int64_t step() const noexcept { return step_; }
    // By committed step; in the end the last one's.
    [[nodiscard]] const std::map<int64_t, uint64_t>& states() const noexcept { return states_; }

  private:
    void enter(const char* phase) {
        fault_->enter(phase);
        waited_before_ns_ = fault_->waited_ns;
    }

    void begin() {
        enter("make");
        model_ = std::make_unique<TestModel>(run_, comm_);
        checkpointer_ = checkpointer_of(*model_, comm_.get());
        enter("shard");
        model_->optimizer().shard(model_->stream());
    }

    void train(int32_t step) {
        enter("gather"); // messages in stage 3 only
        (void)model_->outcome();
        model_->release_all();
        enter("backward");
        model_->backward(step, true);
        enter("step");
        model_->optimizer().step(model_->stream(), nullptr);
        states_[step + 1] = states_of(*model_);
    }

    void save() {
        enter("save");
        checkpointer_->save(folder_, kSavedStep, false);
    }

    void load() {
        enter("load");
        (void)checkpointer_->load(folder_, {}, nullptr);
    }

    Training run_;
    std::shared_ptr<PlannedFault> fault_;
    std::string folder_;
    std::shared_ptr<Communicator> comm_;
    std::unique_ptr<TestModel> model_;
    std::unique_ptr<checkpoint::Checkpointer> checkpointer_;
    std::map<int64_t, uint64_t> states_;
    int64_t waited_before_ns_ = 0;
    Status status_;
    int64_t waited_ms_ = 0;
    int64_t step_ = -1;
};

// Undisturbed scenarios of so many ranks, as threads: what each has after each step, and how many messages it begins by phase.
struct Undisturbed {
    std::vector<std::map<int64_t, uint64_t>> states;
    std::vector<std::map<std::string, int32_t>> messages;
};

inline Undisturbed live_undisturbed(int32_t ranks, const Training& run) {
    const TemporaryFolder folder;
    Undisturbed found;
    found.states.resize(static_cast<std::size_t>(ranks));
    found.messages.resize(static_cast<std::size_t>(ranks));
    auto transports = comm::make_thread_transports({ranks, 0});
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < ranks; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        threads.emplace_back([&, i] {
            const auto fault = std::make_shared<PlannedFault>();
            Scenario scenario(run,
                              std::make_shared<Communicator>(std::make_unique<FaultyTransport>(
                                  std::move(transports[i]), fault)),
                              folder.path(), fault);
            scenario.run();
            if (scenario.status().ok()) {
                found.states[i] = scenario.states();
                found.messages[i] = fault->counts;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return found;
}

// Of a rank in another group nothing is needed after the last agreement.
inline bool may_finish_without(int32_t lost, int32_t rank, const Training& run) {
    const int32_t group = run.sharding.shard_ranks;
    return group > 0 && rank / group != lost / group;
}

// What is wrong with how a survivor ended; nothing where all is well. `may_finish`: it may need nothing of the lost one.
inline std::string wrong_with(const Scenario& scenario, const std::map<int64_t, uint64_t>& expected,
                              int64_t deadline_ms, bool may_finish = false) {
    const Code code = scenario.status().code();
    if (!(may_finish && code == Code::ok) && code != Code::peer_lost && code != Code::timeout &&
        code != Code::mpi_error) {
        return "it ended with status " + std::to_string(static_cast<int>(code)) + ": " +
               scenario.status().text() + "; ";
    }
    std::string wrong;
    if (scenario.waited_ms() > deadline_ms + 1000) {
        wrong += "it waited " + std::to_string(scenario.waited_ms()) + " ms; ";
    }
    if (scenario.step() > 0 &&
        scenario.states().at(scenario.step()) != expected.at(scenario.step())) {
        wrong += "its states are not those of step " + std::to_string(scenario.step()) + "; ";
    }
    return wrong;
}

// After the ranks are gone: there is no checkpoint, or one rank alone reads it whole, as bits of the step it was saved at.
inline std::string wrong_with_folder(const std::string& folder, Training run, bool may_have_none) {
    const auto alone = [] {
        return std::make_shared<Communicator>(
            std::move(comm::make_thread_transports({1, 0}).front()));
    };
    run.sharding.shard_ranks = 0;
    TestModel expected(run, alone());
    expected.optimizer().shard(expected.stream());
    for (int32_t step = 0; step < kSavedStep; ++step) {
        expected.backward(step, false);
        expected.optimizer().step(expected.stream(), nullptr);
    }
    run.first = 0.5F;
    TestModel test_model(run, alone());
    const auto checkpointer = checkpointer_of(test_model, nullptr);
    try {
        (void)checkpointer->load(folder, {}, nullptr);
    } catch (const Error& error) {
        const std::string text = error.status().text();
        return may_have_none && text.find("has no checkpoint") != std::string::npos ? "" : text;
    }
    return states_of(test_model) == states_of(expected) ? "" : "the checkpoint is a mixture; ";
}

} // namespace mp::test
