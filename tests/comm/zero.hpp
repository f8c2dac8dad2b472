// SPDX-License-Identifier: Apache-2.0
// The small model of test_model.hpp, trained by ranks that are threads.
#pragma once

#include <gtest/gtest.h>

#include "test_model.hpp"

namespace mp::test {

// Runs a body with a test_model of every rank; errors that it throws fail the test.
inline void train_ranks(int32_t ranks, const Training& run,
                        const std::function<void(TestModel&)>& body, int64_t deadline_ms = 20000) {
    run_ranks(make_ranks({ranks, 0}, deadline_ms), [&](std::unique_ptr<Communicator>& comm) {
        try {
            TestModel test_model(run, std::move(comm));
            body(test_model);
        } catch (const Error& error) {
            ADD_FAILURE() << error.what();
        }
    });
}

// Every rank's outcome after all steps.
inline std::vector<Outcome> train(int32_t ranks, const Training& run, bool says_ready = false) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    train_ranks(ranks, run, [&](TestModel& test_model) {
        test_model.optimizer().shard(test_model.stream());
        for (int32_t step = 0; step < run.steps; ++step) {
            test_model.backward(step, says_ready && !run.alone);
            test_model.optimizer().step(test_model.stream(), nullptr);
        }
        outcomes[static_cast<std::size_t>(test_model.comm().rank())] = test_model.outcome();
    });
    return outcomes;
}

inline void expect_same(const Outcome& expected, const Outcome& actual) {
    ASSERT_EQ(expected.params.size(), actual.params.size());
    for (std::size_t i = 0; i < expected.params.size(); ++i) {
        EXPECT_EQ(expected.params[i], actual.params[i]) << "parameter " << i;
    }
    EXPECT_EQ(expected.state.step, actual.state.step);
    EXPECT_EQ(expected.state.grad_norm, actual.state.grad_norm);
    EXPECT_EQ(expected.state.grad_mul, actual.state.grad_mul);
}

} // namespace mp::test
