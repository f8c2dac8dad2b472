// SPDX-License-Identifier: Apache-2.0
// Very many things: each call's work for one does not grow with how many there are. What is quadratic takes many minutes at
// these numbers, and CTest's limit ends it; no clock is read.
#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

constexpr int32_t kMany = 200000;

// Bytes of so many small arrays, one behind another: neighbours touch, and none overlaps.
struct Arrays {
    static constexpr int64_t kCount = 4;
    std::vector<float> memory;

    explicit Arrays(int32_t arrays) : memory(static_cast<std::size_t>(arrays) * kCount, 1.0F) {}
    float* at(int32_t i) { return memory.data() + static_cast<std::ptrdiff_t>(i) * kCount; }
    Tensor tensor(mp_context* context, int32_t i) {
        return wrap_tensor(context, MP_DTYPE_FP32, {kCount}, at(i));
    }
};

struct Model {
    Context context = make_context(1);
    Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer;
    Arrays weights;
    Arrays grads;

    explicit Model(int32_t arrays) : weights(arrays), grads(arrays) {
        optimizer = make_optimizer(context, recipe);
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, nullptr)));
    }
    mp_status add(int32_t weight, int32_t grad, const std::string& name) {
        const Tensor param = weights.tensor(context, weight);
        const Tensor gradient = grads.tensor(context, grad);
        return add_param(optimizer, 0, name.c_str(), param, gradient);
    }
    // From both ends inwards, so that neither appending nor prepending is what happens to be fast.
    void add_all(int32_t count) {
        for (int32_t i = 0; i < count; ++i) {
            const int32_t place = i % 2 == 0 ? i / 2 : count - 1 - i / 2;
            ASSERT_TRUE(succeeded(add(place, place, "module.layer." + std::to_string(place))));
        }
    }
};

} // namespace

TEST(Many, ParametersAreAddedSteppedAndRead) {
    Model model(kMany + 1);
    model.add_all(kMany);
    MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
    MP_OK(mp_optimizer_zero_grad(model.optimizer, nullptr));
    for (int32_t i = 0; i < kMany; ++i) {
        ASSERT_NE(model.weights.at(i)[0], 1.0F) << i;
        ASSERT_EQ(model.grads.at(i)[3], 0.0F) << i;
        mp_tensor* state = nullptr;
        MP_OK(mp_optimizer_get_state(model.optimizer, i, "exp_avg", &state));
        mp_tensor_destroy(state);
        MP_OK(mp_optimizer_sync_master(model.optimizer, nullptr, i));
    }
    // What is refused among few is refused among many.
    MP_FAILS(model.add(kMany, kMany, "module.layer.77"), MP_STATUS_INVALID_ARGUMENT,
             "already is a parameter 'module.layer.77'");
    for (const int32_t taken : {0, 1, kMany / 2, kMany - 1}) {
        const std::string of = "'module.layer." + std::to_string(taken) + "'";
        MP_FAILS(model.add(taken, kMany, "new"), MP_STATUS_INVALID_ARGUMENT,
                 "the weight of 'new' overlaps the weight of " + of);
        MP_FAILS(model.add(kMany, taken, "new"), MP_STATUS_INVALID_ARGUMENT,
                 "the gradient of 'new' overlaps the gradient of " + of);
    }
    MP_OK(model.add(kMany, kMany, "new")); // a refusal kept nothing
}

TEST(Many, ParametersAreSavedAndLoaded) {
    constexpr int32_t kSaved = 30000;
    const Folder folder("many");
    std::vector<std::vector<float>> weights;
    for (const bool is_load : {false, true}) {
        Model model(kSaved);
        model.add_all(kSaved);
        const Checkpoint checkpoint = checkpoint_of(model.context, model.optimizer);
        std::vector<int32_t> data(kSaved);
        for (int32_t i = 0; i < kSaved; ++i) {
            data[static_cast<std::size_t>(i)] = is_load ? 0 : i;
            MP_OK(mp_checkpoint_add_data(checkpoint, ("data." + std::to_string(i)).c_str(),
                                         &data[static_cast<std::size_t>(i)], sizeof data[0]));
        }
        if (is_load) {
            MP_OK(mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr));
            EXPECT_EQ(data.back(), kSaved - 1);
        } else {
            MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
            MP_OK(mp_checkpoint_save(checkpoint, folder.c_str(), 1, 0));
        }
        weights.push_back(model.weights.memory);
    }
    EXPECT_TRUE(weights[0] == weights[1]);
}

TEST(Many, SlotsAreSteppedOnPointers) {
    const Context context = make_context(1);
    std::vector<Arrays> arrays(4, Arrays(kMany));
    std::vector<mp_step_slot> slots(kMany, MP_STEP_SLOT_INIT);
    for (int32_t i = 0; i < kMany; ++i) {
        mp_step_slot& slot = slots[static_cast<std::size_t>(i)];
        const int32_t place = i % 2 == 0 ? i / 2 : kMany - 1 - i / 2;
        slot.count = Arrays::kCount;
        slot.uid = static_cast<uint64_t>(i);
        slot.param.data = arrays[0].at(place);
        slot.grad.data = arrays[1].at(place);
        slot.states[0].data = arrays[2].at(place);
        slot.states[1].data = arrays[3].at(place);
        slot.param.dtype = slot.grad.dtype = MP_DTYPE_FP32;
        slot.states[0].dtype = slot.states[1].dtype = MP_DTYPE_FP32;
    }
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    MP_OK(
        mp_optimizer_step_pointers(context, nullptr, &args, slots.data(), kMany, nullptr, nullptr));
    slots[5].grad.data = slots[kMany - 1].states[1].data;
    MP_FAILS(
        mp_optimizer_step_pointers(context, nullptr, &args, slots.data(), kMany, nullptr, nullptr),
        MP_STATUS_INVALID_ARGUMENT, "grad of slot 5",
        "slot " + std::to_string(kMany - 1) + ": exp_avg_sq");
}

// A group each, as some trainers have them.
TEST(Many, GroupsAreAddedAndSet) {
    constexpr int32_t kGroups = 50000;
    Model model(1);
    for (int32_t i = 1; i < kGroups; ++i) {
        MP_OK(mp_optimizer_add_group(model.optimizer, nullptr, nullptr));
    }
    for (int32_t i = 0; i < kGroups; ++i) {
        MP_OK(mp_optimizer_set_lr(model.optimizer, i, 1e-3));
        MP_OK(mp_optimizer_set_enabled(model.optimizer, i, i % 2));
    }
    MP_OK(model.add(0, 0, "w"));
    MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
}
