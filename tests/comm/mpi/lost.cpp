// SPDX-License-Identifier: Apache-2.0
// A rank of mpirun is lost at a chosen message of its scenario, in any phase.
#include "../scenario.hpp"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <unistd.h>

#include "program.hpp"

namespace mp::test {
namespace {

Status end_of(const std::string& fate, const Settings& settings) {
    if (fate == "kill") {
        (void)raise(SIGKILL);
    } else if (fate == "exit") {
        _exit(0);
    }
    stop_for_good(settings);
}

} // namespace

std::string lost(const Settings& settings) {
    const std::string fate = settings.more.at(0);
    const std::string phase = settings.more.at(2);
    Training run = training_of_scenario(std::atoi(settings.more.at(1).c_str()));
    run.sharding.shard_ranks = std::atoi(settings.more.at(4).c_str());
    const auto fault = std::make_shared<PlannedFault>();
    std::shared_ptr<Communicator> comm = open(settings, nullptr, fault);
    const int32_t rank = comm->rank();
    const int32_t ranks = comm->size();
    const Undisturbed undisturbed = live_undisturbed(ranks, run);
    if (rank == ranks - 1) {
        fault->phase = phase;
        fault->message = std::atoi(settings.more.at(3).c_str());
        fault->strike = [&] { return end_of(fate, settings); };
    }
    const std::string folder = settings.folder + "/saved";
    std::filesystem::create_directories(folder); // by whoever comes first
    std::string wrong;
    {
        Scenario scenario(run, std::move(comm), folder, fault);
        scenario.run();
        std::printf("rank %d at step %lld after %lld ms: %s\n", rank,
                    static_cast<long long>(scenario.step()),
                    static_cast<long long>(scenario.waited_ms()), scenario.status().text());
        wrong = wrong_with(scenario, undisturbed.states[static_cast<std::size_t>(rank)],
                           settings.deadline_ms, may_finish_without(ranks - 1, rank, run));
    }
    return rank == 0 ? wrong + wrong_with_folder(folder, run, phase != "load") : wrong;
}

std::string messages(const Settings& settings) {
    const Training run = training_of_scenario(std::atoi(settings.more.at(0).c_str()));
    for (const auto& [phase, count] : live_undisturbed(4, run).messages.back()) {
        if (phase != kWholeScenario) {
            std::printf("%s %d\n", phase.c_str(), count);
        }
    }
    return "";
}

} // namespace mp::test
