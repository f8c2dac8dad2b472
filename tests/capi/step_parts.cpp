// SPDX-License-Identifier: Apache-2.0
// Steps in parts: the bits of a whole step in every recipe, gradients that are given, and what is refused.
#include "planned_model.hpp"
#include "training.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

const mp_sharding_desc kNobody = MP_SHARDING_DESC_INIT;
constexpr uint32_t kGiven = MP_OPTIMIZER_GRADS_GIVEN;

int32_t dtype_of(mp_tensor* tensor) {
    mp_tensor_desc is = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(tensor, &is)));
    return is.dtype;
}
bool has_codes(mp_tensor* tensor) {
    return dtype_of(tensor) == MP_DTYPE_FP8_E4M3 || dtype_of(tensor) == MP_DTYPE_FP8_E5M2;
}

struct Model : Live {
    std::vector<Kind> kinds;

    Model(const char* name, const std::vector<Kind>& of, uint32_t flags)
        : Live(name, of, nullptr, kNobody, flags), kinds(of) {}

    [[nodiscard]] int32_t count() const { return static_cast<int32_t>(kinds.size()); }
    [[nodiscard]] std::vector<int64_t> shape(int32_t i) const {
        const Kind& kind = kinds[static_cast<std::size_t>(i)];
        return kind.columns == 0 ? std::vector<int64_t>{kind.rows}
                                 : std::vector<int64_t>{kind.rows, kind.columns};
    }
    // Of the type that its own one has, or would have.
    Tensor make_grad(const Tensor& like, int32_t i) const {
        return has_codes(like) ? make_quantized(context, dtype_of(like), shape(i), nullptr)
                               : make_tensor(context, dtype_of(like), shape(i));
    }
    void fill(mp_tensor* grad, int32_t i, uint64_t step) const {
        const std::vector<int64_t> sizes = shape(i);
        int64_t elements = 1;
        for (const int64_t size : sizes) {
            elements *= size;
        }
        const Tensor exact = make_tensor(context, MP_DTYPE_FP32, sizes,
                                         numbers(static_cast<std::size_t>(elements),
                                                 step * 100 + static_cast<uint64_t>(i), 0.01F));
        if (has_codes(grad)) {
            MP_OK(mp_tensor_quantize(exact, nullptr, grad, nullptr, nullptr, nullptr));
        } else {
            round_into(exact, grad);
        }
    }
    void fill_own(uint64_t step) const {
        for (int32_t i = 0; i < count(); ++i) {
            fill(state_of(optimizer, i, "grad"), i, step);
        }
    }
    mp_status params(const std::vector<int32_t>& indices,
                     const std::vector<mp_tensor*>& given = {}) const {
        return mp_optimizer_step_params(optimizer, nullptr, indices.data(),
                                        static_cast<int32_t>(indices.size()),
                                        given.empty() ? nullptr : given.data());
    }
};

std::string weights_and_states(const Model& model) {
    std::string all;
    for (int32_t i = 0; i < model.count(); ++i) {
        for (const char* name :
             {"param", "master", "exp_avg", "exp_avg_sq", "compensation", "param_scale_inv",
              "master_scale_inv", "exp_avg_scale_inv", "exp_avg_sq_scale_inv"}) {
            mp_tensor* state = nullptr;
            if (mp_optimizer_get_state(model.optimizer, i, name, &state) == MP_STATUS_OK) {
                const std::vector<unsigned char> bytes = bytes_of(Tensor(state));
                all.append(name).append(bytes.begin(), bytes.end());
            }
        }
    }
    return all;
}

std::vector<Case> cases() {
    std::vector<Case> all = all_cases();
    all.push_back({"bf16_pure_sr", kPlain, MP_SHARD_FLAT});
    std::erase_if(all, [](const Case& one) { // of ranks
        return one.kind == MP_SHARD_PER_PARAMETER || one.kinds[0].dtype == MP_DTYPE_FP8_E4M3;
    });
    return all;
}

// In backward's order, some alone and some together, and one left to the end.
void step_in_parts(const Model& model) {
    MP_OK(mp_optimizer_step_begin(model.optimizer, nullptr, nullptr));
    MP_OK(model.params({5}));
    MP_OK(model.params({}));
    MP_OK(model.params({3, 4, 1}));
    MP_OK(model.params({2}));
    MP_OK(mp_optimizer_step_end(model.optimizer, nullptr));
}

// Its gradients are those of `like`.
void step_with_given(const Model& model, const Model& like) {
    MP_OK(mp_optimizer_step_begin(model.optimizer, nullptr, nullptr));
    for (int32_t i = model.count(); i-- > 0;) {
        const Tensor own = state_of(like.optimizer, i, "grad");
        const Tensor grad = model.make_grad(own, i);
        MP_OK(mp_tensor_copy(own, nullptr, grad));
        MP_OK(model.params({i}, {grad}));
    }
    MP_OK(mp_optimizer_step_end(model.optimizer, nullptr));
}

} // namespace

TEST(StepParts, TheBitsAreThoseOfAWholeStep) {
    int compared = 0;
    for (const Case& one : cases()) {
        SCOPED_TRACE(one.recipe);
        const Model whole(one.recipe, one.kinds, 0);
        const Model parts(one.recipe, one.kinds, MP_OPTIMIZER_ZERO_GRAD);
        const Model given(one.recipe, one.kinds, kGiven);
        for (uint64_t step = 1; step <= 3; ++step) {
            whole.fill_own(step);
            parts.fill_own(step);
            MP_OK(mp_optimizer_step(whole.optimizer, nullptr, nullptr));
            step_in_parts(parts);
            step_with_given(given, whole);
            const std::string expected = weights_and_states(whole);
            EXPECT_TRUE(weights_and_states(parts) == expected) << step;
            EXPECT_TRUE(weights_and_states(given) == expected) << step;
            for (const unsigned char byte : bytes_of(state_of(parts.optimizer, 0, "grad"))) {
                ASSERT_EQ(byte, 0);
            }
        }
        EXPECT_EQ(stats_of(parts.optimizer).step, 3);
        ++compared;
    }
    EXPECT_GE(compared, 12);
}

// Gradients of any type, whose values are exact in each.
TEST(StepParts, GivenGradientsHaveAnyType) {
    const std::vector<Kind> kinds = {{40, 16, MP_DTYPE_NONE, 0}, {30, 8, MP_DTYPE_NONE, 0}};
    std::string expected;
    for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16, MP_DTYPE_FP16}) {
        const Model model("bf16_mixed", kinds, kGiven);
        MP_OK(mp_optimizer_step_begin(model.optimizer, nullptr, nullptr));
        std::vector<uint32_t> memory(640); // of both, one after the other
        for (int32_t i = 0; i < 2; ++i) {
            const Tensor grad = wrap_tensor(model.context, dtype, model.shape(i), memory.data());
            std::vector<float> values(i == 0 ? 640 : 240);
            for (std::size_t k = 0; k < values.size(); ++k) {
                values[k] = static_cast<float>(static_cast<int>(k % 7) - 3) * 0.125F;
            }
            round_into(make_tensor(model.context, MP_DTYPE_FP32, model.shape(i), values), grad);
            MP_OK(model.params({i}, {grad}));
        }
        MP_OK(mp_optimizer_step_end(model.optimizer, nullptr));
        expected = expected.empty() ? weights_and_states(model) : expected;
        EXPECT_TRUE(weights_and_states(model) == expected) << dtype;
    }
}

TEST(StepParts, ThePlanKnowsThatThereAreNoGradients) {
    for (const Case& one : cases()) {
        const Model model(one.recipe, one.kinds, kGiven);
        mp_memory_report planned = MP_MEMORY_REPORT_INIT;
        MP_OK(model.plan(nullptr, 0, 1, &planned, nullptr));
        expect_equal(planned, model.held(), one.recipe);
        EXPECT_EQ(planned.grad_bytes, 0);
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        MP_OK(mp_optimizer_get_desc(model.optimizer, &desc));
        EXPECT_EQ(desc.flags, kGiven);
    }
}

TEST(StepParts, UnusedOnesAreLeftOut) {
    const Model whole("fp32", kPlain, 0), parts("fp32", kPlain, 0);
    const int32_t unused[] = {3, 0};
    for (const Model* model : {&whole, &parts}) {
        model->fill_own(1);
        MP_OK(mp_optimizer_mark_unused(model->optimizer, nullptr, unused, 2));
    }
    MP_OK(mp_optimizer_step(whole.optimizer, nullptr, nullptr));
    MP_OK(mp_optimizer_step_begin(parts.optimizer, nullptr, nullptr));
    MP_FAILS(parts.params({5, 3}), MP_STATUS_BAD_STATE, "'p3'", "unused");
    MP_OK(parts.params({5}));
    MP_OK(mp_optimizer_step_end(parts.optimizer, nullptr));
    EXPECT_TRUE(weights_and_states(parts) == weights_and_states(whole));
}

TEST(StepParts, WhatNeedsAllGradientsIsRefused) {
    const Model model("fp32", kPlain, 0), checks("fp32", kPlain, MP_OPTIMIZER_CHECK_FINITE),
        offloads("fp32", kPlain, MP_OPTIMIZER_OFFLOAD);
    const Scaler scaler = make_scaler(model.context);
    const auto begin = [](const Model& of, mp_scaler* with = nullptr) {
        return mp_optimizer_step_begin(of.optimizer, nullptr, with);
    };
    MP_FAILS(begin(checks), MP_STATUS_UNSUPPORTED, "MP_OPTIMIZER_CHECK_FINITE");
    MP_FAILS(begin(offloads), MP_STATUS_UNSUPPORTED, "MP_OPTIMIZER_OFFLOAD");
    MP_FAILS(begin(model, scaler), MP_STATUS_UNSUPPORTED, "infinities");
    MP_OK(mp_optimizer_set_max_grad_norm(model.optimizer, 1.0));
    MP_FAILS(begin(model), MP_STATUS_UNSUPPORTED, "max_grad_norm");
    MP_OK(mp_optimizer_set_max_grad_norm(model.optimizer, 0.0));
    MP_OK(begin(model));
    MP_OK(mp_optimizer_step_end(model.optimizer, nullptr));
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    mp_optimizer* made = nullptr;
    for (const uint32_t flag : {MP_OPTIMIZER_OFFLOAD, MP_OPTIMIZER_CHECK_FINITE}) {
        desc.flags = kGiven | flag;
        MP_FAILS(mp_optimizer_create(model.context, model.recipe, &desc, &made),
                 MP_STATUS_INVALID_ARGUMENT, "MP_OPTIMIZER_GRADS_GIVEN");
    }
    const Model given("fp32", kPlain, kGiven);
    MP_FAILS(mp_optimizer_set_max_grad_norm(given.optimizer, 1.0), MP_STATUS_INVALID_ARGUMENT,
             "MP_OPTIMIZER_GRADS_GIVEN");
    run_ranks(2, [](mp_comm* comm, int32_t) {
        const Live shared("fp32", kPlain, comm, kNobody);
        MP_FAILS(mp_optimizer_step_begin(shared.optimizer, nullptr, nullptr), MP_STATUS_UNSUPPORTED,
                 "ranks");
        const Tensor late = make_tensor(shared.context, MP_DTYPE_FP32, {8}); // it is not cut
        MP_OK(add_param(shared.optimizer, 0, "late", late));
    });
}

// Memory that a step sets to zero serves one parameter at a time.
TEST(StepParts, OneGradientForTwoIsZeroedOnce) {
    const std::vector<Kind> kinds = {{64, 8, MP_DTYPE_NONE, 0}, {64, 8, MP_DTYPE_NONE, 0}};
    for (const uint32_t flag : {0U, MP_OPTIMIZER_ZERO_GRAD}) {
        const Model model("fp32", kinds, kGiven | flag);
        const Tensor grad = make_tensor(model.context, MP_DTYPE_FP32, model.shape(0));
        MP_OK(mp_optimizer_step_begin(model.optimizer, nullptr, nullptr));
        if (flag != 0) {
            MP_FAILS(model.params({0, 1}, {grad, grad}), MP_STATUS_INVALID_ARGUMENT, "'p1'",
                     "MP_OPTIMIZER_ZERO_GRAD");
            MP_OK(model.params({0}, {grad}));
            MP_OK(model.params({1}, {grad}));
        } else {
            MP_OK(model.params({0, 1}, {grad, grad}));
        }
        MP_OK(mp_optimizer_step_end(model.optimizer, nullptr));
    }
}

namespace {

void given_step(const Model& model, double lr_meanwhile, mp_step_record& record) {
    MP_OK(mp_optimizer_step_begin(model.optimizer, nullptr, nullptr));
    MP_OK(mp_optimizer_set_lr(model.optimizer, 0, lr_meanwhile));
    for (int32_t i = 0; i < model.count(); ++i) {
        const Tensor grad = make_tensor(model.context, MP_DTYPE_FP32, model.shape(i));
        MP_OK(model.params({i}, {grad}));
    }
    mp_tensor* found_inf = nullptr; // the caller's, too
    MP_OK(mp_optimizer_get_found_inf_tensor(model.optimizer, &found_inf));
    const float one = 1.0F;
    MP_OK(mp_tensor_write(Tensor(found_inf), nullptr, &one, sizeof one));
    MP_OK(mp_optimizer_step_end(model.optimizer, nullptr));
    int32_t count = 0;
    MP_OK(mp_optimizer_get_record_count(model.optimizer, &count));
    MP_OK(mp_optimizer_get_record(model.optimizer, count - 1, &record));
}

} // namespace

TEST(StepParts, TheHistoryHasWhatTheStepBeganWith) {
    const Model model("fp32", kPlain, kGiven);
    MP_OK(mp_optimizer_set_history(model.optimizer, 4, nullptr));
    MP_OK(mp_optimizer_set_lr(model.optimizer, 0, 0.25));
    mp_step_record record = MP_STEP_RECORD_INIT;
    given_step(model, 0.5, record);
    EXPECT_EQ(record.lr, 0.25);
    const Tensor zero = make_tensor(model.context, MP_DTYPE_FP32, {1}); // no step can be taken
    MP_OK(mp_optimizer_set_grad_scale_tensor(model.optimizer, zero));
    given_step(model, 0.5, record);
    EXPECT_EQ(record.lr, 0.5);
    char name[100];
    MP_OK(mp_optimizer_get_bad_tensor(model.optimizer, name, sizeof name, nullptr));
    EXPECT_STREQ(name, "a gradient that is not here any more");
}

TEST(StepParts, WrongCallsAreSaidAndChangeNothing) {
    const Folder folder("parts");
    const Model model("fp32", kPlain, 0);
    mp_optimizer* const optimizer = model.optimizer;
    const Checkpoint checkpoint = checkpoint_of(model.context, optimizer, nullptr);
    model.fill_own(1);
    MP_FAILS(model.params({0}), MP_STATUS_BAD_STATE, "mp_optimizer_step_begin");
    MP_FAILS(mp_optimizer_step_end(optimizer, nullptr), MP_STATUS_BAD_STATE, "step_begin");
    MP_OK(mp_optimizer_step_begin(optimizer, nullptr, nullptr));
    const std::string before = weights_and_states(model);
    const Tensor small = make_tensor(model.context, MP_DTYPE_FP32, {3});
    const Tensor whole_numbers = make_tensor(model.context, MP_DTYPE_INT32, {256});
    const Tensor own_weight = view_of(model.weights[0], 0, {256});
    const int32_t one = 1;
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"parameter 6", model.params({6}), {"6"}},
        {"parameter -1", model.params({0, -1}), {"-1"}},
        {"one twice", model.params({0, 1, 0}), {"'p0'", "twice"}},
        {"a weight as gradient", model.params({1}, {own_weight}), {"weight of 'p0'"}},
        {"-1 of them", mp_optimizer_step_params(optimizer, nullptr, &one, -1, nullptr), {"count"}},
    });
    expect_refused<MP_STATUS_BAD_STATE>({
        {"another step", mp_optimizer_step(optimizer, nullptr, nullptr), {"step_end"}},
        {"it begins again", mp_optimizer_step_begin(optimizer, nullptr, nullptr), {"step_end"}},
        {"t is set", mp_optimizer_set_step(optimizer, nullptr, 5), {"step_end"}},
        {"zero_grad", mp_optimizer_zero_grad(optimizer, nullptr), {"step_end"}},
        {"an export", mp_checkpoint_export_weights(checkpoint, "never"), {"step_end"}},
        {"a mark", mp_optimizer_mark_unused(optimizer, nullptr, &one, 1), {"step_end"}},
        {"a checkpoint", mp_checkpoint_save(checkpoint, folder.c_str(), 1, 0), {"step_end"}},
    });
    MP_FAILS(model.params({1}, {small}), MP_STATUS_INVALID_SHAPE, "'p1'", "3");
    MP_FAILS(model.params({1}, {whole_numbers}), MP_STATUS_INVALID_DTYPE, "int32");
    MP_FAILS(model.params({1}, {nullptr}), MP_STATUS_NULL_ARGUMENT, "grads[i]");
    EXPECT_TRUE(weights_and_states(model) == before);
    MP_OK(model.params({1}));
    MP_FAILS(model.params({1}), MP_STATUS_BAD_STATE, "'p1'", "was written");
    MP_OK(mp_optimizer_step_end(optimizer, nullptr));
    MP_FAILS(model.params({0}), MP_STATUS_BAD_STATE, "mp_optimizer_step_begin");
}

TEST(StepParts, AStepWithoutAGradientStaysOpen) {
    const Model model("fp32", kPlain, kGiven);
    MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE,
             "mp_optimizer_step_begin");
    MP_OK(mp_optimizer_step_begin(model.optimizer, nullptr, nullptr));
    MP_FAILS(model.params({0}), MP_STATUS_BAD_STATE, "'p0'", "no gradient of its own");
    const auto give = [&](int32_t i) {
        const Tensor grad = make_tensor(model.context, MP_DTYPE_FP32, model.shape(i));
        MP_OK(model.params({i}, {grad}));
    };
    for (const int32_t i : {0, 1, 2, 3, 5}) {
        give(i);
    }
    MP_FAILS(mp_optimizer_step_end(model.optimizer, nullptr), MP_STATUS_BAD_STATE, "'p4'");
    give(4);
    MP_OK(mp_optimizer_step_end(model.optimizer, nullptr));
    const Tensor weight = make_tensor(model.context, MP_DTYPE_FP32, {8});
    const Tensor grad = make_tensor(model.context, MP_DTYPE_FP32, {8});
    MP_FAILS(add_param(model.optimizer, 0, "late", weight, grad), MP_STATUS_INVALID_ARGUMENT,
             "MP_OPTIMIZER_GRADS_GIVEN");
}
