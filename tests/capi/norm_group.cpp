// SPDX-License-Identifier: Apache-2.0
// Ranks with other parameters of one model clip and skip alike; what a loop reads of scaler and optimizer in device memory.
#include <cmath>
#include <limits>

#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

struct Param {
    const char* name;
    int64_t count;
    uint32_t flags = 0;
};
constexpr Param kEmbedding = {"embedding", 5000};
constexpr Param kHead = {"head", 40000}; // three chunks
constexpr Param kNorm = {"norm", 7};

// Whole numbers: their squares sum up exactly in any order.
std::vector<float> gradient_of(const Param& param) {
    std::vector<float> values(static_cast<std::size_t>(param.count));
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(static_cast<int64_t>(i) % 15 - 7);
    }
    return values;
}

double squares_of(const Param& param) {
    double sum = 0.0;
    for (const float x : gradient_of(param)) {
        sum += static_cast<double>(x) * static_cast<double>(x);
    }
    return sum;
}

struct Model {
    Context context = make_context(1);
    Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer;
    std::vector<Tensor> weights, grads;

    explicit Model(const std::vector<Param>& params, mp_comm* norm_comm = nullptr,
                   mp_comm* shards = nullptr) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = 1.0;
        optimizer = make_optimizer_on(shards, context, recipe, &desc);
        EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, nullptr, nullptr)));
        EXPECT_TRUE(succeeded(mp_optimizer_set_norm_comm(optimizer, norm_comm)));
        for (const Param& param : params) {
            add(param);
        }
    }
    void add(const Param& param) {
        weights.push_back(make_tensor(context, MP_DTYPE_FP32, {param.count},
                                      numbers(static_cast<std::size_t>(param.count), 3)));
        grads.push_back(make_tensor(context, MP_DTYPE_FP32, {param.count}, gradient_of(param)));
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = param.name;
        desc.flags = param.flags;
        desc.param = weights.back();
        desc.grad = grads.back();
        EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, 0, &desc, nullptr)));
    }
    mp_optimizer_stats stats() { return stats_of(optimizer); }
    // One element of the gradient of parameter `index`.
    void spoil(std::size_t index, float value) const {
        static_cast<float*>(data_of(grads[index]))[3] = value;
    }
};

Param elsewhere(Param param) {
    param.flags = MP_PARAM_NORM_ELSEWHERE;
    return param;
}

std::vector<Param> params_of(int32_t rank) {
    return rank == 0 ? std::vector<Param>{kEmbedding, kNorm}
                     : std::vector<Param>{kHead, elsewhere(kNorm)};
}

Tensor tensor_of(mp_status (*get)(mp_optimizer*, mp_tensor**), mp_optimizer* optimizer) {
    mp_tensor* out = nullptr;
    EXPECT_TRUE(succeeded(get(optimizer, &out)));
    return Tensor(out);
}

} // namespace

TEST(NormGroup, ClipsByTheNormOfAllParameters) {
    Model whole({kEmbedding, kNorm, kHead});
    MP_OK(mp_optimizer_step(whole.optimizer, nullptr, nullptr));
    const double norm = std::sqrt(squares_of(kEmbedding) + squares_of(kNorm) + squares_of(kHead));
    EXPECT_EQ(whole.stats().grad_norm, norm);
    run_ranks(2, [&](mp_comm* comm, int32_t rank) {
        Model part(params_of(rank), comm);
        MP_OK(mp_optimizer_step(part.optimizer, nullptr, nullptr));
        EXPECT_EQ(part.stats().grad_norm, norm);
        EXPECT_EQ(values_of(part.context,
                            tensor_of(mp_optimizer_get_grad_norm_tensor, part.optimizer))[0],
                  static_cast<float>(norm));
        EXPECT_EQ(bytes_of(part.weights[0]), bytes_of(whole.weights[rank == 0 ? 0 : 2]));
        EXPECT_EQ(bytes_of(part.weights[1]), bytes_of(whole.weights[1]));
    });
}

// A rank whose gradients are all zero, or which has none, takes part as any other.
TEST(NormGroup, ARankMayHaveNoGradient) {
    run_ranks(3, [&](mp_comm* comm, int32_t rank) {
        Model part(rank == 2 ? std::vector<Param>() : params_of(rank), comm);
        if (rank == 1) {
            MP_OK(mp_optimizer_zero_grad(part.optimizer, nullptr));
        }
        EXPECT_GE(mp_optimizer_step(part.optimizer, nullptr, nullptr), MP_STATUS_OK)
            << mp_last_error_message();
        EXPECT_EQ(part.stats().grad_norm, std::sqrt(squares_of(kEmbedding) + squares_of(kNorm)));
        EXPECT_EQ(part.stats().step, 1);
    });
}

// The others wait neither for it nor take a step without it.
TEST(NormGroup, OneThatCannotGoOnStopsAll) {
    run_ranks(2, [&](mp_comm* comm, int32_t rank) {
        Model part(params_of(rank), comm);
        mp_guard_desc guard = MP_GUARD_DESC_INIT;
        guard.max_loss_z = 6.0;
        MP_OK(mp_optimizer_set_guard(part.optimizer, nullptr, &guard));
        const auto before = bytes_of(part.weights[0]);
        if (rank == 0) {
            MP_FAILS(mp_optimizer_step(part.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE,
                     "mp_optimizer_set_loss");
        } else {
            MP_OK(mp_optimizer_set_loss(part.optimizer, 2.0));
            MP_FAILS(mp_optimizer_step(part.optimizer, nullptr, nullptr), MP_STATUS_PEER_ERROR,
                     "rank 0", "could not go on");
        }
        EXPECT_EQ(bytes_of(part.weights[0]), before);
        EXPECT_EQ(part.stats().skipped_steps, 0);
        MP_OK(mp_optimizer_set_loss(part.optimizer, 2.0));
        MP_OK(mp_optimizer_step(part.optimizer, nullptr, nullptr));
        EXPECT_EQ(part.stats().step, 1);
    });
}

// An infinity in a parameter that counts elsewhere is seen all the same.
TEST(NormGroup, SkipsWhereAnyGradientIsNotFinite) {
    run_ranks(2, [&](mp_comm* comm, int32_t rank) {
        Model part(params_of(rank), comm);
        const Scaler scaler = make_scaler(part.context);
        const auto before = bytes_of(part.weights[0]);
        if (rank == 1) {
            part.spoil(1, std::numeric_limits<float>::infinity());
        }
        MP_OK(mp_optimizer_step(part.optimizer, nullptr, scaler));
        EXPECT_EQ(part.stats().found_inf, 1U);
        EXPECT_EQ(values_of(part.context,
                            tensor_of(mp_optimizer_get_found_inf_tensor, part.optimizer))[0],
                  1.0F);
        EXPECT_EQ(bytes_of(part.weights[0]), before);
        MP_OK(mp_scaler_update(scaler, nullptr));
        double scale = 0.0;
        MP_OK(mp_scaler_get_scale(scaler, nullptr, &scale));
        EXPECT_EQ(scale, 32768.0);
        part.spoil(1, 1.0F);
        MP_OK(mp_optimizer_step(part.optimizer, nullptr, scaler));
        EXPECT_EQ(part.stats().found_inf, 0U);
    });
}

// Two by two: ranks 0 and 1 share one half of the model, 2 and 3 the other.
TEST(NormGroup, BesideSharding) {
    Model whole({kEmbedding, kNorm, kHead});
    MP_OK(mp_optimizer_step(whole.optimizer, nullptr, nullptr));
    const double norm = whole.stats().grad_norm;
    run_ranks(4, [&](mp_comm* comm, int32_t rank) {
        const int32_t half = rank / 2;
        mp_comm* raw = nullptr;
        MP_OK(mp_comm_split(comm, half, rank, &raw));
        const Comm shards(raw);
        MP_OK(mp_comm_split(comm, rank % 2, rank, &raw));
        const Comm others(raw);
        Model part(params_of(half), others, shards);
        MP_OK(mp_optimizer_step(part.optimizer, nullptr, nullptr));
        EXPECT_EQ(part.stats().grad_norm, norm);
        EXPECT_EQ(bytes_of(part.weights[0]), bytes_of(whole.weights[half == 0 ? 0 : 2]));
    });
}

// Each would decide by a loss of its own.
TEST(NormGroup, OneLossForTheGuard) {
    run_ranks(2, [&](mp_comm* comm, int32_t rank) {
        Model model({rank == 0 ? kHead : kNorm}, comm);
        mp_guard_desc guard = MP_GUARD_DESC_INIT;
        guard.max_loss_z = 3.0;
        MP_OK(mp_optimizer_set_guard(model.optimizer, nullptr, &guard));
        const auto before = bytes_of(model.weights[0]);
        MP_OK(mp_optimizer_set_loss(model.optimizer, 1.0 + rank));
        MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_RANK_MISMATCH,
                 "loss", "ranks 0 and 1");
        EXPECT_EQ(bytes_of(model.weights[0]), before);
        MP_OK(mp_optimizer_set_loss(model.optimizer, 1.0));
        MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
        EXPECT_NE(bytes_of(model.weights[0]), before);
    });
}

TEST(NormGroup, AParameterThatNobodyCountsIsRefused) {
    Model model({kEmbedding, elsewhere(kNorm)});
    MP_FAILS(mp_optimizer_step(model.optimizer, nullptr, nullptr), MP_STATUS_BAD_STATE, "norm",
             "mp_optimizer_set_norm_comm");
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = "x";
    desc.flags = 4;
    desc.param = model.weights[0];
    MP_FAILS(mp_optimizer_add_param(model.optimizer, 0, &desc, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "flags");
}

TEST(NormGroup, ScalersCombineWhatTheyFound) {
    run_ranks(3, [&](mp_comm* comm, int32_t rank) {
        const Context context = make_context(1);
        const Scaler scaler = make_scaler(context);
        for (const bool is_bad : {true, false}) {
            const float grads[1] = {is_bad && rank == 2 ? NAN : 1.0F};
            const void* const arrays[] = {grads};
            const int32_t dtypes[] = {MP_DTYPE_FP32};
            const int64_t counts[] = {1};
            MP_OK(mp_scaler_check_pointers(scaler, nullptr, 1, arrays, dtypes, counts));
            MP_OK(mp_scaler_combine(scaler, nullptr, comm));
            mp_scaler_state state = MP_SCALER_STATE_INIT;
            MP_OK(mp_scaler_get_state(scaler, nullptr, &state));
            EXPECT_EQ(state.found_inf, is_bad ? 1U : 0U);
            MP_OK(mp_scaler_update(scaler, nullptr));
        }
    });
}

TEST(DeviceNumbers, AScalersAreItsOwnMemory) {
    const Context context = make_context();
    mp_scaler* raw = nullptr;
    MP_OK(mp_scaler_create(context, nullptr, &raw));
    Scaler scaler(raw);
    mp_tensor* out = nullptr;
    MP_OK(mp_scaler_get_scale_tensor(scaler, &out));
    const Tensor scale(out);
    MP_OK(mp_scaler_get_found_inf_tensor(scaler, &out));
    const Tensor found_inf(out);
    EXPECT_EQ(values_of(context, scale)[0], 65536.0F);
    EXPECT_EQ(values_of(context, found_inf)[0], 0.0F);
    const float one = 1.0F; // by a kernel of the caller's
    MP_OK(mp_tensor_write(found_inf, nullptr, &one, sizeof one));
    MP_OK(mp_scaler_update(scaler, nullptr));
    EXPECT_EQ(values_of(context, scale)[0], 32768.0F);
    EXPECT_EQ(values_of(context, found_inf)[0], 0.0F);
    scaler = Scaler();
    EXPECT_EQ(values_of(context, scale)[0], 32768.0F); // kept alive
    mp_scaler_desc desc = MP_SCALER_DESC_INIT;
    desc.kind = MP_SCALER_NONE;
    MP_OK(mp_scaler_create(context, &desc, &raw));
    const Scaler none(raw);
    MP_OK(mp_scaler_get_scale_tensor(none, &out));
    EXPECT_EQ(values_of(context, Tensor(out))[0], 1.0F);
    MP_OK(mp_scaler_get_found_inf_tensor(none, &out));
    EXPECT_EQ(values_of(context, Tensor(out))[0], 0.0F);
}

TEST(DeviceNumbers, AnOptimizersStayAtTheirPlace) {
    Model model({kEmbedding});
    const Tensor norm = tensor_of(mp_optimizer_get_grad_norm_tensor, model.optimizer);
    const Tensor found_inf = tensor_of(mp_optimizer_get_found_inf_tensor, model.optimizer);
    MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
    EXPECT_EQ(values_of(model.context, norm)[0],
              static_cast<float>(std::sqrt(squares_of(kEmbedding))));
    model.add(kHead);
    MP_OK(mp_optimizer_add_group(model.optimizer, nullptr, nullptr));
    MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
    EXPECT_EQ(values_of(model.context, norm)[0],
              static_cast<float>(std::sqrt(squares_of(kEmbedding) + squares_of(kHead))));
    EXPECT_EQ(model.stats().step, 2);
    model.spoil(0, NAN);
    MP_OK(mp_optimizer_step(model.optimizer, nullptr, nullptr));
    EXPECT_EQ(values_of(model.context, found_inf)[0], 1.0F);
    model.optimizer = Optimizer();
    EXPECT_EQ(values_of(model.context, found_inf)[0], 1.0F); // kept alive
}
