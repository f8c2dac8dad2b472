// SPDX-License-Identifier: Apache-2.0
// Training whose messages may move between the calls, and a caller who computes meanwhile.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "comm/progress.hpp"
#include "zero.hpp"

namespace mp::test {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline constexpr milliseconds kPatience{20000}; // until a test gives up

// What a caller does who computes: no call of the library. False where it took too long.
inline bool compute_until(const std::function<bool()>& condition,
                          milliseconds at_most = kPatience) {
    const auto until = Clock::now() + at_most;
    while (!condition() && Clock::now() < until) {
        std::this_thread::sleep_for(milliseconds(1));
    }
    return condition();
}

inline Training training_of(int32_t stage, const char* recipe = "bf16_pure_kahan") {
    Training run;
    run.recipe = recipe::find_preset(recipe).recipe;
    run.sharding.stage = stage;
    run.sharding.bucket_elements = 30000;
    return run;
}

inline const comm::MessageCounts& messages(TestModel& test_model) {
    return test_model.optimizer().sharding()->progress().messages();
}

inline bool all_finished(TestModel& test_model) {
    return messages(test_model).finished == messages(test_model).begun;
}

inline void gather_all(TestModel& test_model) {
    for (int32_t p = 0; p < test_model.optimizer().parameters().count(); ++p) {
        test_model.optimizer().sharding()->begin_gather(test_model.stream(),
                                                        std::vector<int32_t>{p});
    }
}

} // namespace mp::test
