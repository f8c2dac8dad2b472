// SPDX-License-Identifier: Apache-2.0
// Training on ranks that is saved and goes on on others: the families of recipes, and one run's steps.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpointer.hpp"
#include "checkpoint/simulated_files.hpp"
#include "comm/zero.hpp"

namespace mp::test {

inline constexpr int32_t kBefore = 2; // steps before the save
inline constexpr int32_t kAfter = 5;  // and after it
inline constexpr const char* kFolder = "/c";

struct Family {
    const char* name;
    Training run;
    int32_t first_stage; // stage 0 gathers nothing: where the gather rounds, its bits are others
};

inline Family family(
    const char* name, const char* preset,
    const std::function<void(Training&)>& change = [](Training&) {}) {
    Family made = {name, {}, 0};
    made.run.recipe = recipe::find_preset(preset).recipe;
    change(made.run);
    const recipe::Recipe& recipe = made.run.recipe;
    const bool has_scales = is_scaled(recipe.weight) || is_scaled(recipe.master) ||
                            is_scaled(recipe.state(numerics::StateId::exp_avg).format) ||
                            is_scaled(recipe.state(numerics::StateId::exp_avg_sq).format);
    made.run.sharding.kind = has_scales ? shard::ShardKind::greedy : shard::ShardKind::flat;
    made.run.sharding.bucket_elements = 60000;
    made.run.sharding.order = comm::SumOrder::tree;
    made.run.slots = made.run.sharding.slots = 8;
    made.first_stage =
        optim::gather_dtype(recipe, recipe.weight, false) != dtype_of(recipe.weight) ||
                made.run.as_codes
            ? 1
            : 0;
    return made;
}

// Every way in which weights and states are kept.
inline std::vector<Family> families() {
    const auto moments = [](FormatId format) {
        return [format](Training& run) {
            run.recipe.state(numerics::StateId::exp_avg).format =
                run.recipe.state(numerics::StateId::exp_avg_sq).format = format;
        };
    };
    const auto codes = [](Training& run) {
        run.recipe.weight_gather = DType::fp32;
        run.recipe.fp8.gather = run.as_codes = true;
    };
    return {
        family("fp32", "fp32"),
        family("bf16_mixed", "bf16_mixed"),
        family("bf16_mixed_dual", "bf16_mixed_dual"),
        family("fp16_mixed", "fp16_mixed"),
        family("kahan", "bf16_pure_kahan"),
        family("stochastic", "bf16_pure_sr"),
        family("remainder", "bf16_pure_remainder"),
        family("int8 blocks", "bf16_pure", moments(FormatId::dynamic8)),
        family("int4 blocks", "bf16_pure", moments(FormatId::dynamic4)),
        family("fp8 blocks", "bf16_mixed", moments(FormatId::block)),
        family("fp8 blocks of 128", "bf16_mixed", moments(FormatId::block128)),
        family("companded", "bf16_pure", moments(FormatId::companded8)),
        family("int8 kahan", "bf16_pure_kahan",
               [](Training& run) { run.recipe.compensation = FormatId::dynamic8; }),
        family("lion", "bf16_pure", [](Training& run) { run.rule = numerics::RuleId::lion; }),
        family("fp16 scaled", "bf16_pure", moments(FormatId::fp16_scaled)),
        family("msamp_o2", "msamp_o2"),
        family("msamp_o3", "msamp_o3"),
        family("fp8 codes", "fp8_current", codes),
    };
}

// A rank's checkpointer, with its optimizer alone.
inline std::unique_ptr<checkpoint::Checkpointer> checkpointer_of(TestModel& test_model,
                                                                 SimulatedFiles& files) {
    checkpoint::CheckpointerOptions options;
    options.files = &files;
    auto made = std::make_unique<checkpoint::Checkpointer>(test_model.context(), &test_model.comm(),
                                                           options);
    made->add(checkpoint::stateful_optimizer(
        std::shared_ptr<optim::Optimizer>(std::shared_ptr<void>(), &test_model.optimizer())));
    return made;
}

// The outcome after each of the steps.
inline std::vector<Outcome> go_on(TestModel& test_model, int32_t first, int32_t steps) {
    test_model.optimizer().shard(test_model.stream());
    std::vector<Outcome> outcomes;
    for (int32_t step = first; step < first + steps; ++step) {
        test_model.backward(step, false);
        test_model.optimizer().step(test_model.stream(), nullptr);
        outcomes.push_back(test_model.outcome());
        test_model.release_all();
    }
    return outcomes;
}

inline void expect_all_same(const std::vector<Outcome>& expected,
                            const std::vector<Outcome>& actual) {
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE("step " + std::to_string(i));
        expect_same(expected[i], actual[i]);
    }
}

// Steps 0 to kBefore - 1 on so many ranks, and a checkpoint of them.
inline void save_on(int32_t ranks, const Training& run, SimulatedFiles& files) {
    train_ranks(ranks, run, [&](TestModel& test_model) {
        const auto checkpointer = checkpointer_of(test_model, files);
        (void)go_on(test_model, 0, kBefore);
        checkpointer->save(kFolder, kBefore, false);
    });
}

// Loads on so many ranks, into other values, and compares every rank's next steps.
inline void expect_goes_on(int32_t ranks, Training run, SimulatedFiles& files,
                           const std::vector<Outcome>& expected) {
    run.first = 0.5F;
    train_ranks(ranks, run, [&](TestModel& test_model) {
        const auto checkpointer = checkpointer_of(test_model, files);
        (void)checkpointer->load(kFolder, {}, nullptr);
        expect_all_same(expected, go_on(test_model, kBefore, kAfter));
    });
}

// The same steps without a stop.
inline std::vector<Outcome> straight(int32_t ranks, const Training& run) {
    std::vector<Outcome> expected;
    train_ranks(ranks, run, [&](TestModel& test_model) {
        (void)go_on(test_model, 0, kBefore);
        std::vector<Outcome> outcomes = go_on(test_model, kBefore, kAfter);
        if (test_model.comm().rank() == 0) {
            expected = std::move(outcomes);
        }
    });
    return expected;
}

} // namespace mp::test
