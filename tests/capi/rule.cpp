// SPDX-License-Identifier: Apache-2.0
// Rules as a program learns them: what they say is what groups are made of.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "optimizers.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

int32_t rule_count() {
    int32_t count = 0;
    EXPECT_TRUE(succeeded(mp_rule_get_count(&count)));
    return count;
}

mp_rule_info info_of(int32_t rule) {
    mp_rule_info info = MP_RULE_INFO_INIT;
    EXPECT_TRUE(succeeded(mp_rule_get_info(rule, &info)));
    return info;
}

std::vector<std::string> states_of(int32_t rule) {
    std::vector<std::string> names;
    for (int32_t i = 0; i < info_of(rule).state_count; ++i) {
        mp_rule_state state = MP_RULE_STATE_INIT;
        EXPECT_TRUE(succeeded(mp_rule_get_state(rule, i, &state)));
        names.emplace_back(state.name);
    }
    return names;
}

template <typename T> double member(const T& group, const std::string& name) {
    return name == "lr"      ? group.lr
           : name == "beta1" ? group.beta1
           : name == "beta2" ? group.beta2
           : name == "eps"   ? group.eps
                             : group.weight_decay;
}

struct Made {
    Context context = make_context();
    Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer = make_optimizer(context, recipe);
};

} // namespace

TEST(Rule, NumbersAndNamesBelongTogether) {
    for (int32_t rule = 0; rule < rule_count(); ++rule) {
        int32_t number = -1;
        MP_OK(mp_rule_get_number(info_of(rule).name, &number));
        EXPECT_EQ(number, rule);
    }
    EXPECT_STREQ(info_of(MP_RULE_ADAMW).name, "adamw");
    EXPECT_STREQ(info_of(MP_RULE_ADAM).name, "adam");
    EXPECT_STREQ(info_of(MP_RULE_LION).name, "lion");
}

TEST(Rule, StatesAreThoseOfAParameter) {
    using Names = std::vector<std::string>;
    EXPECT_EQ(states_of(MP_RULE_ADAMW), (Names{"exp_avg", "exp_avg_sq"}));
    EXPECT_EQ(states_of(MP_RULE_LION), (Names{"exp_avg"}));
    for (int32_t rule = 0; rule < rule_count(); ++rule) {
        Made made;
        mp_param_group_desc group{};
        group.struct_size = sizeof group;
        group.rule = rule;
        MP_OK(mp_optimizer_add_group(made.optimizer, &group, nullptr));
        const Tensor weight = make_tensor(made.context, MP_DTYPE_FP32, {8});
        MP_OK(add_param(made.optimizer, 0, "w", weight));
        for (const std::string& name : states_of(rule)) {
            mp_tensor* state = nullptr;
            MP_OK(mp_optimizer_get_state(made.optimizer, 0, name.c_str(), &state));
            EXPECT_NE(Tensor(state), nullptr) << name;
        }
    }
}

// A number by name is meant, 0 too, and comes back so that a new group made with it is alike.
TEST(Rule, HyperparametersByNameAreLiteral) {
    for (int32_t rule = 0; rule < rule_count(); ++rule) {
        for (int32_t i = 0; i < info_of(rule).hyper_count; ++i) {
            Made made;
            mp_rule_hyper hyper = MP_RULE_HYPER_INIT;
            MP_OK(mp_rule_get_hyper(rule, i, &hyper));
            SCOPED_TRACE(std::string(info_of(rule).name) + " " + hyper.name);
            mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
            group.rule = rule;
            for (const double value : {0.0, 0.25}) {
                const mp_hyper named = {hyper.name, value};
                group.hypers = &named;
                group.hyper_count = 1;
                int32_t index = -1;
                ASSERT_GE(mp_optimizer_add_group(made.optimizer, &group, &index), 0);
                mp_param_group_desc found = MP_PARAM_GROUP_DESC_INIT;
                MP_OK(mp_optimizer_get_group(made.optimizer, index, &found));
                EXPECT_EQ(member(found, hyper.name), value);
                EXPECT_EQ(found.hyper_count, value == 0.0 && hyper.usual != 0.0 ? 1 : 0);
                int32_t again = -1;
                ASSERT_GE(mp_optimizer_add_group(made.optimizer, &found, &again), 0);
                mp_param_group_desc same = MP_PARAM_GROUP_DESC_INIT;
                MP_OK(mp_optimizer_get_group(made.optimizer, again, &same));
                for (const char* name : {"lr", "beta1", "beta2", "eps", "weight_decay"}) {
                    EXPECT_EQ(member(same, name), member(found, name)) << name;
                }
            }
        }
    }
}

TEST(Rule, WrongNamesOfHyperparameters) {
    Made made;
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    mp_hyper named[2] = {{"lr", 0.1}, {"lr", 0.1}};
    group.hypers = named;
    const auto fails = [&](int32_t count, mp_status status, const char* words) {
        group.hyper_count = count;
        MP_FAILS(mp_optimizer_add_group(made.optimizer, &group, nullptr), status, words);
    };
    fails(-1, MP_STATUS_INVALID_ARGUMENT, "hyper_count is -1");
    fails(2, MP_STATUS_INVALID_ARGUMENT, "lr, which is given already");
    group.lr = 0.1;
    fails(1, MP_STATUS_INVALID_ARGUMENT, "lr, which is given already");
    named[0].value = 0.0; // gives way
    MP_OK(mp_optimizer_add_group(made.optimizer, &group, nullptr));
    mp_param_group_desc found = MP_PARAM_GROUP_DESC_INIT;
    MP_OK(mp_optimizer_get_group(made.optimizer, 0, &found));
    EXPECT_EQ(found.lr, 0.1);
    group.lr = 0.0;
    named[0].name = "momentum";
    fails(1, MP_STATUS_UNKNOWN_NAME, "adamw does not read; it reads lr, beta1, beta2, eps");
    named[0].name = nullptr;
    fails(1, MP_STATUS_NULL_ARGUMENT, "hypers.name is NULL");
    group.hypers = nullptr;
    fails(1, MP_STATUS_NULL_ARGUMENT, "hypers is NULL");
    named[0] = {"eps", 0.0};
    group.hypers = named;
    group.rule = MP_RULE_LION;
    fails(1, MP_STATUS_UNKNOWN_NAME, "lion does not read");
}

TEST(Rule, StatesHaveNumbersAndNames) {
    EXPECT_STREQ(mp_rule_state_name(MP_STATE_EXP_AVG), "exp_avg");
    EXPECT_STREQ(mp_rule_state_name(MP_STATE_EXP_AVG_SQ), "exp_avg_sq");
    EXPECT_EQ(mp_rule_state_name(-1), nullptr);
    EXPECT_EQ(mp_rule_state_name(MP_MAX_STATES), nullptr);
    for (int32_t rule = 0; rule < rule_count(); ++rule) {
        for (int32_t i = 0; i < info_of(rule).state_count; ++i) {
            mp_rule_state state = MP_RULE_STATE_INIT;
            MP_OK(mp_rule_get_state(rule, i, &state));
            EXPECT_STREQ(mp_rule_state_name(state.number), state.name);
        }
    }
}

// Zeros stand for what is usual, and that is what it says; the end of its range is refused.
TEST(Rule, HyperparametersAreThoseOfAGroup) {
    for (int32_t rule = 0; rule < rule_count(); ++rule) {
        Made made;
        mp_param_group_desc zeros{};
        zeros.struct_size = sizeof zeros;
        zeros.rule = rule;
        MP_OK(mp_optimizer_add_group(made.optimizer, &zeros, nullptr));
        mp_param_group_desc found = MP_PARAM_GROUP_DESC_INIT;
        MP_OK(mp_optimizer_get_group(made.optimizer, 0, &found));
        for (int32_t i = 0; i < info_of(rule).hyper_count; ++i) {
            mp_rule_hyper hyper = MP_RULE_HYPER_INIT;
            MP_OK(mp_rule_get_hyper(rule, i, &hyper));
            SCOPED_TRACE(std::string(info_of(rule).name) + " " + hyper.name);
            EXPECT_EQ(member(found, hyper.name), hyper.usual);
            EXPECT_LT(hyper.usual, hyper.limit);
            mp_param_group_desc beyond = found;
            const std::string name = hyper.name;
            double& value = name == "lr"      ? beyond.lr
                            : name == "beta1" ? beyond.beta1
                            : name == "beta2" ? beyond.beta2
                            : name == "eps"   ? beyond.eps
                                              : beyond.weight_decay;
            value = hyper.limit;
            MP_FAILS(mp_optimizer_add_group(made.optimizer, &beyond, nullptr),
                     MP_STATUS_INVALID_ARGUMENT, hyper.name);
        }
        mp_param_group_desc uncorrected = zeros;
        uncorrected.flags = MP_RULE_NO_BIAS_CORRECTION;
        const mp_status status = mp_optimizer_add_group(made.optimizer, &uncorrected, nullptr);
        EXPECT_EQ(status == MP_STATUS_OK, info_of(rule).corrects_bias == 1);
    }
}

TEST(Rule, WrongCalls) {
    int32_t number = 7;
    MP_FAILS(mp_rule_get_number("sgd", &number), MP_STATUS_UNKNOWN_NAME, "adamw, adam, lion");
    EXPECT_EQ(number, 7);
    MP_FAILS(mp_rule_get_number(nullptr, &number), MP_STATUS_NULL_ARGUMENT, "name");
    MP_FAILS(mp_rule_get_number("adam", nullptr), MP_STATUS_NULL_ARGUMENT, "rule");
    MP_FAILS(mp_rule_get_count(nullptr), MP_STATUS_NULL_ARGUMENT, "count");
    mp_rule_info info = MP_RULE_INFO_INIT;
    MP_FAILS(mp_rule_get_info(rule_count(), &info), MP_STATUS_INVALID_ARGUMENT, "MP_RULE_");
    MP_FAILS(mp_rule_get_info(-1, &info), MP_STATUS_INVALID_ARGUMENT, "MP_RULE_");
    mp_rule_state state = MP_RULE_STATE_INIT;
    MP_FAILS(mp_rule_get_state(MP_RULE_LION, 1, &state), MP_STATUS_INVALID_ARGUMENT, "1 states");
    mp_rule_hyper hyper = MP_RULE_HYPER_INIT;
    MP_FAILS(mp_rule_get_hyper(MP_RULE_LION, -1, &hyper), MP_STATUS_INVALID_ARGUMENT, "-1");
}
