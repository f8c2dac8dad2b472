// SPDX-License-Identifier: Apache-2.0
// Ten steps of MS-AMP's levels against its formulas (tests/fixtures/make_msamp.py): codes, scales and masters to the bit, over
// several tensors with a loss scale and clipping. MS-AMP multiplies both into a gradient's scale_inv; here they are one factor
// of the step, and codes and scale_inv of the gradient stay as they are.
//
// Two differences are meant (docs/recipes.md): scales of tiny tensors end at 2^126, which the fixture has too, and an infinite
// amax keeps its scale, which it has not: the step is skipped.
#include <sstream>

#include "fixture_arrays.hpp"
#include "optimizers.hpp"

using namespace mp_test;

namespace {

struct State {
    Array codes;
    float scale_inv = 0.0F; // 0: none
};

struct Step {
    std::map<std::string, Array> gradients; // fp32, times the loss scale
    double norm = 0.0;
    double factor = 0.0;
    std::map<std::string, std::map<std::string, State>> states; // by tensor and state
};

struct Level {
    std::string recipe;
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    double loss_scale = 0.0;
    double max_norm = 0.0;
    std::vector<std::pair<std::string, Array>> starts;
    std::vector<Step> steps;
};

constexpr const char* kStates[] = {"param", "grad", "exp_avg", "exp_avg_sq", "master"};
constexpr const char* kTensors[] = {"usual", "wide", "late", "tiny", "vanishing"};
constexpr int kSteps = 10;

Step read_step(const FixtureFile& file, const std::string& place) {
    Step step;
    std::istringstream(file.fact("step " + place)) >> step.norm >> step.factor;
    for (const std::string tensor : kTensors) {
        step.gradients[tensor] = array_in(file, place + "/" + tensor + "/gradient");
        for (const char* state : kStates) {
            const std::string at = place + "/" + tensor + "/" + state;
            if (file.has(at)) {
                const bool is_fp32 = file.array(at).dtype == "fp32";
                step.states[tensor][state] = {
                    array_in(file, at), is_fp32 ? 0.0F : std::stof(file.fact("scale_inv " + at))};
            }
        }
    }
    return step;
}

std::vector<Level> read_levels() {
    const FixtureFile file("msamp");
    std::vector<Level> levels;
    for (const auto& [name, words] : file.facts("level")) {
        Level level;
        mp_param_group_desc& group = level.group;
        level.recipe = name;
        std::istringstream(words) >> group.lr >> group.beta1 >> group.beta2 >> group.eps >>
            group.weight_decay >> level.loss_scale >> level.max_norm;
        for (const std::string tensor : kTensors) {
            level.starts.emplace_back(tensor, array_in(file, name + "/start/" + tensor));
        }
        for (int step = 1; step <= kSteps; ++step) {
            level.steps.push_back(read_step(file, name + "/" + std::to_string(step)));
        }
        levels.push_back(level);
    }
    return levels;
}

struct MsampSteps : ::testing::Test {
    Context context = make_context();

    Tensor vector_of(const Array& array) const {
        Tensor tensor = make_tensor(context, array.dtype, {array.columns});
        EXPECT_TRUE(
            succeeded(mp_tensor_write(tensor, nullptr, array.bytes.data(), array.bytes.size())));
        return tensor;
    }

    // A weight of the level's form, made of `start`.
    void add(mp_optimizer* optimizer, const std::string& name, const Array& start,
             int32_t dtype) const {
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = MP_SCALING_TENSOR;
        quant.rule = MP_SCALE_RULE_MSAMP;
        const Tensor param = make_quantized(context, dtype, {start.columns}, &quant);
        const Tensor init = vector_of(start);
        MP_OK(add_param(optimizer, 0, name.c_str(), param, nullptr, init));
    }

    void compare(mp_optimizer* optimizer, int32_t index, const std::string& name,
                 const State& expected) const {
        SCOPED_TRACE(name);
        EXPECT_EQ(difference(bytes_of(state_of(optimizer, index, name)), expected.codes.bytes), "");
        if (expected.scale_inv != 0.0F) {
            const Tensor scale = state_of(optimizer, index, name + "_scale_inv");
            EXPECT_EQ(values_of(context, scale), std::vector<float>{expected.scale_inv});
        }
    }

    void step(const Level& level, mp_optimizer* optimizer, mp_scaler* scaler,
              const Step& expected) {
        for (std::size_t i = 0; i < level.starts.size(); ++i) {
            const auto index = static_cast<int32_t>(i);
            const std::string& name = level.starts[i].first;
            const Tensor exact = vector_of(expected.gradients.at(name));
            const Tensor grad = state_of(optimizer, index, "grad");
            MP_OK(mp_tensor_quantize(exact, nullptr, grad, nullptr, nullptr, nullptr));
            SCOPED_TRACE(name + " before");
            compare(optimizer, index, "grad", expected.states.at(name).at("grad"));
        }
        MP_OK(mp_optimizer_step(optimizer, nullptr, scaler));
        MP_OK(mp_scaler_update(scaler, nullptr)); // too early to grow
        const mp_optimizer_stats stats = stats_of(optimizer);
        EXPECT_NEAR(stats.grad_norm / expected.norm, 1.0, 1e-12);    // squares of codes, in double
        EXPECT_NEAR(stats.grad_mul / expected.factor, 1.0, 0x1p-24); // rounded once to fp32
        for (std::size_t i = 0; i < level.starts.size(); ++i) {
            const std::string& name = level.starts[i].first;
            SCOPED_TRACE(name);
            for (const auto& [state, value] : expected.states.at(name)) { // "grad" among them
                compare(optimizer, static_cast<int32_t>(i), state, value);
            }
        }
    }

    void train(const Level& level) {
        const Recipe recipe = make_recipe(context, level.recipe.c_str());
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = level.max_norm;
        const Optimizer optimizer = make_optimizer(context, recipe, desc);
        int32_t group = 0;
        MP_OK(mp_optimizer_add_group(optimizer, &level.group, &group));
        for (const auto& [name, start] : level.starts) {
            add(optimizer, name, start, level.steps.at(0).states.at(name).at("param").codes.dtype);
        }
        mp_scaler_desc scaler_desc = MP_SCALER_DESC_INIT;
        scaler_desc.init_scale = level.loss_scale;
        const Scaler scaler = make_scaler(context, &scaler_desc);
        for (std::size_t i = 0; i < level.steps.size() && !HasFailure(); ++i) {
            SCOPED_TRACE("step " + std::to_string(i + 1));
            step(level, optimizer, scaler, level.steps[i]);
        }
    }
};

TEST_F(MsampSteps, HaveTheBitsOfItsFormulas) {
    const std::vector<Level> levels = read_levels();
    ASSERT_EQ(levels.size(), 3U);
    std::size_t states = 0;
    for (const Level& level : levels) {
        for (const Step& step : level.steps) {
            for (const auto& [tensor, kept] : step.states) {
                states += kept.size();
            }
        }
    }
    ASSERT_EQ(
        states,
        650U); // three levels, ten steps, five tensors: four each, and the masters of one level
    for (const char* backend : kHostBackends) {
        context = make_context(0, backend);
        for (const Level& level : levels) {
            SCOPED_TRACE(level.recipe + " " + backend);
            train(level);
        }
    }
}

} // namespace
