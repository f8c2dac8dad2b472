// SPDX-License-Identifier: Apache-2.0
// Evaluation changes nothing: not the scales of training, not its gradients, not what a checkpoint holds. In every way to
// evaluate, at every place of a step.

#include "layers.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

using Bytes = std::vector<unsigned char>;
constexpr int64_t kSize = 32, kRows = 16;

// What somebody evaluates with.
enum class Way { never, plain, pointers, without_saved, other_saved, inference, averaged };
constexpr Way kWays[] = {Way::plain,       Way::pointers,  Way::without_saved,
                         Way::other_saved, Way::inference, Way::averaged};
// When, in each step of two micro-batches.
enum class Place { before, between, after_backward, after_end };
constexpr Place kPlaces[] = {Place::before, Place::between, Place::after_backward,
                             Place::after_end};

Recipe delayed(mp_context* context, const std::string& name) {
    Recipe recipe = make_recipe(context, name == "warm_up 0" ? "fp8_delayed" : name.c_str());
    if (name == "warm_up 0") {
        EXPECT_TRUE(succeeded(mp_recipe_set_int(recipe, MP_RECIPE_GEMM_WARM_UP, 0)));
    }
    EXPECT_TRUE(succeeded(mp_recipe_set_int(recipe, MP_RECIPE_GEMM_AMAX_HISTORY_LEN, 3)));
    return recipe;
}

struct Net {
    Context context = make_context(1);
    Recipe recipe;
    std::vector<float> w = numbers(kSize * kSize, 3);
    Tensor weight, dw;
    Linear layer, twin;
    bool keeps; // handles for what forwards keep, instead of the layer's own
    Saved mine, other;

    Net(const std::string& name, uint32_t flags, bool by_handles)
        : recipe(delayed(context, name)),
          weight(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize}, w)),
          dw(make_tensor(context, MP_DTYPE_FP32, {kSize, kSize})), layer(make(flags)),
          twin(make(MP_LINEAR_INFERENCE)), keeps(by_handles), mine(make_saved(flags)),
          other(make_saved(flags)) {}
    Linear make(uint32_t flags) {
        return make_linear(context, recipe, linear_desc(kSize, kSize, flags), weight);
    }
    Saved make_saved(uint32_t flags) {
        mp_saved* made = nullptr;
        if ((flags & MP_LINEAR_FROZEN) == 0) {
            EXPECT_TRUE(succeeded(mp_saved_create(layer, &made)));
        }
        return Saved(made);
    }
    [[nodiscard]] Tensor matrix(uint64_t seed, float size) const {
        return make_tensor(context, MP_DTYPE_FP32, {kRows, kSize},
                           numbers(kRows * kSize, seed, size));
    }
    void write_weight(float factor) {
        std::vector<float> values = w;
        for (float& value : values) {
            value *= factor;
        }
        EXPECT_TRUE(succeeded(mp_tensor_write(weight, nullptr, values.data(), values.size() * 4)));
    }
    // Of numbers a hundred times larger than training's.
    void evaluate(Way way) {
        const Tensor x = matrix(77, 100.0F), y = matrix(1, 0.0F);
        if (way == Way::averaged) { // with other weights, which the library writes
            write_weight(50.0F);
            EXPECT_TRUE(succeeded(mp_linear_forward_saved(layer, nullptr, x, y, nullptr, 0)));
            write_weight(1.0F);
        } else if (way == Way::plain) {
            EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
        } else if (way == Way::pointers) {
            EXPECT_TRUE(succeeded(mp_linear_forward_pointers(layer, nullptr, kRows, data_of(x),
                                                             data_of(y), MP_DTYPE_FP32)));
        } else if (way == Way::inference) {
            EXPECT_TRUE(succeeded(mp_linear_forward(twin, nullptr, x, y)));
        } else if (way != Way::never) {
            mp_saved* const place =
                way == Way::other_saved ? static_cast<mp_saved*>(other) : nullptr;
            EXPECT_TRUE(succeeded(mp_linear_forward_saved(layer, nullptr, x, y, place, 0)));
        }
    }
    // A micro-batch; a frozen layer has dx alone.
    void pass(uint64_t seed, bool is_first, Bytes& results) {
        const float size = static_cast<float>(1 + seed % 5);
        const Tensor x = matrix(seed, size), dy = matrix(seed + 1, 1.0F / size);
        const Tensor y = matrix(1, 0.0F), dx = matrix(1, 0.0F);
        const uint32_t flags = is_first ? 0 : MP_BACKWARD_ACCUMULATE;
        if (mine == nullptr) {
            EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
            EXPECT_TRUE(succeeded(mp_linear_backward_data(layer, nullptr, dy, dx)));
        } else if (keeps) {
            EXPECT_TRUE(succeeded(mp_linear_forward_saved(layer, nullptr, x, y, mine, 0)));
            EXPECT_TRUE(succeeded(
                mp_linear_backward_saved(layer, nullptr, mine, dy, dx, dw, nullptr, flags)));
        } else {
            EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
            EXPECT_TRUE(succeeded(mp_linear_backward(layer, nullptr, dy, dx, dw, nullptr, flags)));
        }
        for (mp_tensor* const tensor : {y.owned.get(), dx.owned.get(), dw.owned.get()}) {
            const Bytes bytes = bytes_of(tensor);
            results.insert(results.end(), bytes.begin(), bytes.end());
        }
    }
    void end_step() {
        mp_linear* const one = layer;
        EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, nullptr)));
    }
};

// Every result and every scale of four steps.
Bytes train(Net& net, Way way, Place place) {
    Bytes results;
    for (uint64_t step = 0; step < 4; ++step) {
        const auto evaluate_at = [&](Place here) {
            if (place == here) {
                const Bytes before = scaling_of(net.layer);
                net.evaluate(way);
                EXPECT_EQ(scaling_of(net.layer), before);
            }
        };
        evaluate_at(Place::before);
        net.pass(10 * step + 1, true, results);
        evaluate_at(Place::between);
        net.pass(10 * step + 5, false, results);
        evaluate_at(Place::after_backward);
        net.end_step();
        evaluate_at(Place::after_end);
        const Bytes scaling = scaling_of(net.layer);
        results.insert(results.end(), scaling.begin(), scaling.end());
    }
    return results;
}

} // namespace

TEST(Evaluation, ChangesNothingInAnyWayAtAnyPlace) {
    int cases = 0;
    for (const char* name : {"fp8_delayed", "warm_up 0", "msamp_o1_fp8_delayed", "msamp_o1"}) {
        for (const uint32_t flags : {0U, MP_LINEAR_CACHE_WEIGHT, MP_LINEAR_FROZEN}) {
            for (const bool by_handles : {false, true}) {
                Net quiet(name, flags, by_handles);
                const Bytes expected = train(quiet, Way::never, Place::before);
                for (const Way way : kWays) {
                    const bool is_frozen = flags == MP_LINEAR_FROZEN;
                    if (is_frozen && (by_handles || way == Way::averaged)) {
                        continue; // it keeps nothing, and its weight does not change
                    }
                    for (const Place place : kPlaces) {
                        SCOPED_TRACE(std::string(name) + ", flags " + std::to_string(flags) +
                                     (by_handles ? ", handles" : "") + ", way " +
                                     std::to_string(static_cast<int>(way)) + ", place " +
                                     std::to_string(static_cast<int>(place)));
                        Net net(name, flags, by_handles);
                        EXPECT_TRUE(train(net, way, place) == expected);
                        ++cases;
                    }
                }
            }
        }
    }
    std::printf("%d cases\n", cases);
}

// The saved step had its backward; what the layer did before the load is gone.
TEST(Evaluation, AfterALoadInTheMidstOfAStep) {
    for (const char* name : {"fp8_delayed", "warm_up 0", "msamp_o1_fp8_delayed"}) {
        for (const uint32_t flags : {0U, MP_LINEAR_CACHE_WEIGHT, MP_LINEAR_FROZEN}) {
            for (int lived = 0; lived < 3; ++lived) {
                for (const Way way : kWays) {
                    SCOPED_TRACE(std::string(name) + ", flags " + std::to_string(flags) +
                                 ", lived " + std::to_string(lived) + ", way " +
                                 std::to_string(static_cast<int>(way)));
                    Net whole(name, flags, false), loaded(name, flags, false);
                    Bytes right, got, ignored;
                    whole.pass(1, true, ignored);
                    whole.end_step();
                    whole.pass(11, true, ignored);
                    if (lived > 0) {
                        loaded.evaluate(Way::plain);
                    }
                    if (lived > 1) {
                        loaded.pass(8, true, ignored);
                    }
                    const Bytes saved = scaling_of(whole.layer);
                    MP_OK(mp_linear_set_scaling(loaded.layer, saved.data(), saved.size()));
                    loaded.evaluate(way);
                    whole.end_step();
                    loaded.end_step();
                    ASSERT_EQ(scaling_of(loaded.layer), scaling_of(whole.layer));
                    whole.pass(21, true, right);
                    loaded.pass(21, true, got);
                    ASSERT_EQ(got, right);
                }
            }
        }
    }
}

// A layer that a step does not use, and that is evaluated before its end.
TEST(Evaluation, OfALayerThatIsIdleChangesNothing) {
    for (const Way way : {Way::plain, Way::without_saved, Way::other_saved}) {
        Net busy("fp8_delayed", 0, false), idle("fp8_delayed", 0, false);
        Bytes results;
        mp_linear* const both[] = {busy.layer, idle.layer};
        for (uint64_t step = 0; step < 3; ++step) {
            busy.pass(step, true, results);
            if (step != 1) {
                idle.pass(step, true, results);
            }
            const Bytes before = scaling_of(idle.layer);
            idle.evaluate(way);
            MP_OK(mp_linear_end_step(both, 2, nullptr, nullptr));
            EXPECT_EQ(scaling_of(idle.layer) == before, step == 1) << static_cast<int>(way);
        }
    }
}

// Steps without a backward are there to find scales.
TEST(Evaluation, StepsWithoutABackwardCountEveryForward) {
    for (const uint32_t flags : {0U, MP_LINEAR_FROZEN, MP_LINEAR_INFERENCE}) {
        Net net("fp8_delayed", flags == MP_LINEAR_INFERENCE ? 0 : flags, false);
        const Linear layer = net.make(flags);
        const Tensor y = net.matrix(1, 0.0F);
        for (const float size : {1.0F, 9.0F, 2.0F}) {
            MP_OK(mp_linear_forward(layer, nullptr, net.matrix(5, size), y));
        }
        MP_OK(mp_linear_forward_saved(layer, nullptr, net.matrix(5, 100.0F), y, nullptr, 0));
        mp_linear* const one = layer;
        const Bytes before = scaling_of(layer);
        MP_OK(mp_linear_end_step(&one, 1, nullptr, nullptr));
        mp_linear_stats stats = MP_LINEAR_STATS_INIT;
        const Linear counting = net.make(MP_LINEAR_STATS);
        const Bytes after = scaling_of(layer);
        MP_OK(mp_linear_set_scaling(counting, after.data(), after.size()));
        MP_OK(mp_linear_get_stats(counting, MP_OPERAND_INPUT, &stats));
        if (flags == MP_LINEAR_INFERENCE) {
            EXPECT_EQ(before, after);
        } else {
            EXPECT_GT(stats.history_amax, 8.0);
            EXPECT_LE(stats.history_amax, 9.0);
        }
    }
}

// Forwards that keep nothing and are followed by as many backwards count, whatever was evaluated before.
TEST(Evaluation, BackwardsWithoutAnythingKeptCountTheirForwards) {
    Net net("fp8_delayed", 0, false);
    const Tensor y = net.matrix(1, 0.0F), dx = net.matrix(1, 0.0F), dy = net.matrix(2, 1.0F);
    for (int i = 0; i < 200; ++i) { // more than are remembered
        net.evaluate(Way::without_saved);
    }
    for (const float size : {1.0F, 9.0F, 2.0F}) { // a pipeline's micro-batches in flight
        MP_OK(mp_linear_forward_saved(net.layer, nullptr, net.matrix(5, size), y, nullptr, 0));
    }
    for (int i = 0; i < 3; ++i) {
        MP_OK(mp_linear_backward_saved(net.layer, nullptr, nullptr, dy, dx, nullptr, nullptr, 0));
    }
    net.end_step();
    const Linear counting = net.make(MP_LINEAR_STATS);
    const Bytes scaling = scaling_of(net.layer);
    MP_OK(mp_linear_set_scaling(counting, scaling.data(), scaling.size()));
    mp_linear_stats stats = MP_LINEAR_STATS_INIT;
    MP_OK(mp_linear_get_stats(counting, MP_OPERAND_INPUT, &stats));
    EXPECT_GT(stats.history_amax, 8.0);
    EXPECT_LE(stats.history_amax, 9.0);
}

TEST(Evaluation, CountsInNoStatistics) {
    for (const uint32_t cache : {0U, MP_LINEAR_CACHE_WEIGHT}) {
        Net quiet("fp8_delayed", MP_LINEAR_STATS | cache, false);
        Net net("fp8_delayed", MP_LINEAR_STATS | cache, false);
        Bytes results;
        net.evaluate(Way::without_saved);
        net.pass(1, true, results);
        net.evaluate(Way::without_saved);
        quiet.pass(1, true, results);
        for (int32_t operand = 0; operand < MP_OPERAND_COUNT; ++operand) {
            mp_linear_stats with = MP_LINEAR_STATS_INIT, without = MP_LINEAR_STATS_INIT;
            MP_OK(mp_linear_get_stats(net.layer, operand, &with));
            MP_OK(mp_linear_get_stats(quiet.layer, operand, &without));
            EXPECT_EQ(std::memcmp(&with, &without, sizeof with), 0) << operand;
        }
    }
}

// One rank evaluates, and all save: after a step, and in the midst of one. Who goes on from it has the same scales.
TEST(Evaluation, OnOneRankLeavesCheckpointsAlone) {
    for (const char* name : {"fp8_delayed", "msamp_o1"}) {
        for (const Way way : kWays) {
            for (const bool in_step : {false, true}) {
                SCOPED_TRACE(std::string(name) + ", way " + std::to_string(static_cast<int>(way)) +
                             (in_step ? ", in a step" : ""));
                const Folder folder("evaluation");
                run_ranks(2, [&](mp_comm* comm, int32_t rank) {
                    Net net(name, 0, false);
                    Bytes results;
                    mp_linear* const one = net.layer;
                    const Checkpoint checkpoint = make_checkpoint(net.context, comm);
                    EXPECT_TRUE(
                        succeeded(mp_checkpoint_add_linear(checkpoint, "layer", net.layer)));
                    const auto seed = static_cast<uint64_t>(rank);
                    net.pass(seed, true, results);
                    EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, comm)));
                    if (in_step) {
                        net.pass(seed + 5, true, results);
                    }
                    if (rank == 1) {
                        net.evaluate(way);
                    }
                    EXPECT_TRUE(succeeded(mp_checkpoint_save(checkpoint, folder.c_str(), 1, 0)));
                    if (!in_step) { // it is what it was, and what is saved
                        const Bytes scaling = scaling_of(net.layer);
                        EXPECT_TRUE(
                            succeeded(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr)));
                        EXPECT_EQ(scaling_of(net.layer), scaling);
                        return;
                    }
                    EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, comm)));
                    const Bytes scaling = scaling_of(net.layer);
                    EXPECT_TRUE(
                        succeeded(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr)));
                    EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, comm)));
                    EXPECT_EQ(scaling_of(net.layer), scaling);
                });
            }
        }
    }
}
