// SPDX-License-Identifier: Apache-2.0
// Weights and gradients in memory of the caller's where ranks share them: the bits of the library's memory, what lies where and
// when, and what is refused.
#include "callers_memory.hpp"

using namespace mp_test;

namespace {

constexpr int32_t kRanks = 3;

mp_status gather(mp_optimizer* optimizer, const std::vector<int32_t>& indices) {
    const auto count = static_cast<int32_t>(indices.size());
    const mp_status status = mp_optimizer_gather_begin(optimizer, nullptr, indices.data(), count);
    return status != MP_STATUS_OK
               ? status
               : mp_optimizer_gather_wait(optimizer, nullptr, indices.data(), count);
}
mp_status gather(const Program& program, const std::vector<int32_t>& indices) {
    return gather(program.optimizer, indices);
}
void release(const Program& program, const std::vector<int32_t>& indices) {
    MP_OK(mp_optimizer_gather_free(program.optimizer, nullptr, indices.data(),
                                   static_cast<int32_t>(indices.size())));
}
bool has_memory(mp_tensor* tensor) {
    void* data = nullptr;
    return mp_tensor_get_data(tensor, &data) == MP_STATUS_OK;
}

} // namespace

TEST(CallersMemory, TrainsToTheBitsOfTheLibrarys) {
    std::vector<std::vector<unsigned char>> wanted;
    run_sharded(kRanks, [&](mp_comm* comm, int32_t rank) {
        Program program(comm, 1, MP_SHARD_FLAT, Arrays::library);
        program.train(0, 3);
        const auto weights = program.weights();
        if (rank == 0) {
            wanted = weights;
        }
    });
    for (int32_t stage = 0; stage <= 3; ++stage) {
        for (const int32_t plan : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER, MP_SHARD_GREEDY}) {
            for (const Arrays arrays :
                 {Arrays::library, Arrays::wrapped, Arrays::views, Arrays::shared}) {
                SCOPED_TRACE("stage " + std::to_string(stage) + " plan " + std::to_string(plan) +
                             " arrays " + std::to_string(static_cast<int>(arrays)));
                run_sharded(kRanks, [&](mp_comm* comm, int32_t /*rank*/) {
                    Program program(comm, stage, plan, arrays, plan == MP_SHARD_FLAT ? 1 : 0);
                    program.train(0, 3);
                    EXPECT_EQ(program.weights(), wanted);
                });
            }
        }
    }
}

// Without ranks too, where nothing comes and goes.
TEST(CallersMemory, ServesAnOrdinaryOptimizer) {
    Program library(nullptr, 0, MP_SHARD_FLAT, Arrays::library);
    Program wrapped(nullptr, 0, MP_SHARD_FLAT, Arrays::wrapped);
    library.train(0, 2);
    wrapped.train(0, 2);
    EXPECT_EQ(wrapped.weights(), library.weights());
}

TEST(CallersMemory, IsWhereTheCallerSaid) {
    run_sharded(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        for (const Arrays arrays : {Arrays::wrapped, Arrays::shared}) {
            Program program(comm, 3, MP_SHARD_FLAT, arrays);
            EXPECT_FALSE(has_memory(program.params[0]));
            MP_OK(gather(program, {0, 1, 2}));
            for (const int32_t i : {0, 1, 2}) {
                EXPECT_EQ(data_of(program.params[static_cast<std::size_t>(i)]), program.weight(i));
            }
            release(program, {0, 1, 2});
            EXPECT_FALSE(has_memory(program.params[0]));
        }
        // A gradient that has its memory for itself is there always, and zeros once it has left.
        Program program(comm, 2, MP_SHARD_FLAT, Arrays::wrapped);
        const Tensor grad = state_of(program.optimizer, 0, "grad");
        EXPECT_EQ(data_of(grad), program.gradient(0));
        program.gradient(0)[5] = 1.0F;
        MP_OK(mp_optimizer_acquire_grad(program.optimizer, nullptr, 0)); // it has all it needs
        EXPECT_EQ(program.gradient(0)[5], 1.0F);
        MP_OK(mp_optimizer_grad_ready(program.optimizer, nullptr, 0));
        EXPECT_EQ(program.gradient(0)[5], 0.0F);
        EXPECT_EQ(data_of(grad), program.gradient(0));
        mp_memory_report memory = MP_MEMORY_REPORT_INIT;
        MP_OK(mp_optimizer_get_memory(program.optimizer, &memory));
        EXPECT_EQ(memory.grad_bytes, 4 * (30000 + 7 + 20000 + 33000 + 16500 + 100));
        MP_OK(mp_optimizer_step(program.optimizer, nullptr, nullptr));
    });
}

// What is gathered takes no memory of the library's, and a gradient neither.
TEST(CallersMemory, SavesTheLibrarys) {
    run_sharded(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        for (const Arrays arrays : {Arrays::library, Arrays::shared}) {
            Counter counter;
            {
                Program program(comm, 3, MP_SHARD_FLAT, arrays, 1, &counter);
                (void)program.weights(); // and scratch memory, once
                const int64_t before = counter.live;
                MP_OK(gather(program, {0}));
                MP_OK(mp_optimizer_acquire_grad(program.optimizer, nullptr, 1));
                MP_OK(mp_optimizer_acquire_grad(program.optimizer, nullptr, 2));
                const int64_t more = counter.live - before, needed = 4 * (30000 + 7 + 20000);
                EXPECT_TRUE(arrays == Arrays::library ? more >= needed : more < needed / 8) << more;
                release(program, {0});
                MP_OK(mp_optimizer_step(program.optimizer, nullptr, nullptr));
            }
            EXPECT_EQ(counter.live, 0);
        }
    });
}

// What was to be added with another one that cannot be is as it was, before the cut and after it.
TEST(CallersMemory, IsNotTakenByAFailure) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        for (const int32_t stage : {1, 3}) {
            for (const bool is_cut : {false, true}) {
                const Context context = make_context(1);
                const mp_sharding_desc sharding = stage_desc(stage);
                const Optimizer optimizer = make_optimizer_on(
                    comm, context, make_recipe(context, "fp32"), nullptr, &sharding);
                add_group(optimizer);
                const Tensor first = make_tensor(context, MP_DTYPE_FP32, {3});
                MP_OK(add_param(optimizer, 0, "first", first));
                MP_OK(is_cut ? mp_optimizer_shard(optimizer, nullptr) : MP_STATUS_OK);
                float memory[2][4] = {};
                Tensor tensors[2];
                mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {4});
                desc.flags = MP_TENSOR_DEFERRED;
                for (std::size_t i = 0; i < 2; ++i) {
                    mp_tensor* made = nullptr;
                    MP_OK(mp_tensor_wrap(context, &desc, memory[i], nullptr, nullptr, &made));
                    tensors[i] = Tensor(made);
                }
                mp_param_desc params[2] = {MP_PARAM_DESC_INIT, MP_PARAM_DESC_INIT};
                params[0].name = "second";
                params[0].param = tensors[0];
                params[0].grad = tensors[1];
                params[1].name = "first"; // taken
                params[1].param = first;
                MP_FAILS(mp_optimizer_add_params(optimizer, 0, params, 2, nullptr),
                         MP_STATUS_INVALID_ARGUMENT, "'first'");
                for (const Tensor& tensor : tensors) {
                    MP_OK(mp_tensor_get_desc(tensor, &desc));
                    EXPECT_EQ(desc.flags, MP_TENSOR_DEFERRED);
                }
                MP_OK(mp_optimizer_add_params(optimizer, 0, params, 1, nullptr));
                if (stage == 3) { // and has no memory now
                    const Tensor lr = wrap_tensor(context, MP_DTYPE_FP32, {1}, memory[1]);
                    MP_FAILS(mp_optimizer_set_lr_tensor(optimizer, 0, lr),
                             MP_STATUS_INVALID_ARGUMENT, "gradient of 'second'");
                    MP_FAILS(add_param(optimizer, 0, "third",
                                       make_tensor(context, MP_DTYPE_FP32, {4}), tensors[1]),
                             MP_STATUS_BAD_STATE, "desc.grad");
                }
                MP_OK(mp_optimizer_shard(optimizer, nullptr));
                MP_OK(gather(optimizer, {1}));
                EXPECT_EQ(data_of(tensors[0]), memory[0]);
            }
        }
    });
}

TEST(CallersMemory, TwoInOnePlaceAreRefused) {
    run_sharded(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        Program program(comm, 3, MP_SHARD_FLAT, Arrays::shared);
        const auto wanted = program.weights();
        MP_FAILS(gather(program, {1, 0, 3}), MP_STATUS_BAD_STATE, "weight of parameter 3",
                 "weight of parameter 0", "mp_optimizer_gather_free");
        for (const std::size_t i : {0, 1, 3}) {
            EXPECT_FALSE(has_memory(program.params[i])) << "nothing is half there";
        }
        MP_OK(gather(program, {0}));
        MP_FAILS(gather(program, {3}), MP_STATUS_BAD_STATE, "parameter 0");
        EXPECT_EQ(std::memcmp(program.weight(0), wanted[0].data(), wanted[0].size()), 0);
        release(program, {3}); // which has nothing, and gives nothing back
        MP_FAILS(gather(program, {3}), MP_STATUS_BAD_STATE, "parameter 0");
        release(program, {0});
        MP_OK(gather(program, {3}));
        release(program, {3});
        EXPECT_EQ(program.weights(), wanted);

        MP_OK(mp_optimizer_acquire_grad(program.optimizer, nullptr, 0));
        MP_FAILS(mp_optimizer_acquire_grad(program.optimizer, nullptr, 3), MP_STATUS_BAD_STATE,
                 "gradient of parameter 3", "gradient of parameter 0", "leaving");
        MP_FAILS(mp_optimizer_grad_ready(program.optimizer, nullptr, 3), MP_STATUS_BAD_STATE,
                 "parameter 3", "mp_optimizer_acquire_grad");
        MP_OK(mp_optimizer_grad_ready(program.optimizer, nullptr, 0));
        MP_OK(mp_optimizer_acquire_grad(program.optimizer, nullptr, 3));
        MP_OK(mp_optimizer_step(program.optimizer, nullptr, nullptr));
    });
}

// Two places are for one layer ahead, not for two.
TEST(CallersMemory, AsManyPlacesAsLayersAreWhole) {
    run_sharded(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        Program program(comm, 3, MP_SHARD_FLAT, Arrays::shared, 2);
        MP_FAILS(mp_optimizer_layer_begin(program.optimizer, nullptr, 0, MP_PASS_FORWARD),
                 MP_STATUS_BAD_STATE, "weight of parameter 3", "weight of parameter 0");
        release(program, {0, 1, 2});
        const auto weights = program.weights();
        EXPECT_EQ(weights, Program(comm, 3, MP_SHARD_FLAT, Arrays::library).weights());
    });
}

// Also with what is there always, and with numbers that a step reads.
TEST(CallersMemory, MeetsNothingElse) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        const Context context = make_context(1);
        const Recipe recipe = make_recipe(context, "fp32");
        Block memory(std::size_t{4} * 40000);
        std::memset(memory.memory.get(), 0, memory.bytes);
        const auto wrap = [&](uint32_t flags, int64_t count) {
            mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {count});
            desc.flags = flags;
            mp_tensor* made = nullptr;
            EXPECT_TRUE(succeeded(
                mp_tensor_wrap(context, &desc, memory.memory.get(), nullptr, nullptr, &made)));
            return Tensor(made);
        };
        for (const int32_t stage : {1, 2, 3}) {
            const mp_sharding_desc sharding = stage_desc(stage);
            const Optimizer optimizer =
                make_optimizer_on(comm, context, recipe, nullptr, &sharding);
            add_group(optimizer);
            const Tensor first = wrap(MP_TENSOR_DEFERRED, 40000);
            const Tensor second = wrap(MP_TENSOR_DEFERRED, 40000);
            MP_OK(add_param(optimizer, 0, "first", first));
            const mp_status status = add_param(optimizer, 0, "second", second);
            if (stage == 3) {
                MP_OK(status);
            } else { // both would be there always
                MP_FAILS(status, MP_STATUS_INVALID_ARGUMENT, "'second'", "weight of 'first'");
                mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
                MP_OK(mp_tensor_get_desc(second, &desc));
                EXPECT_EQ(desc.flags, MP_TENSOR_DEFERRED) << "as it was";
            }
            const Tensor lr = wrap(0, 1);
            MP_FAILS(mp_optimizer_set_lr_tensor(optimizer, 0, lr), MP_STATUS_INVALID_ARGUMENT,
                     "lr overlaps the weight of 'first'");
            const Tensor own = make_tensor(context, MP_DTYPE_FP32, {40000});
            MP_FAILS(add_param(optimizer, 0, "third", wrap(MP_TENSOR_DEFERRED, 40000),
                               wrap(MP_TENSOR_DEFERRED, 40000)),
                     MP_STATUS_INVALID_ARGUMENT, "grad of 'third' overlaps");
            if (stage < 2) {
                continue;
            }
            const Tensor grad = wrap(MP_TENSOR_DEFERRED, 40000);
            MP_OK(add_param(optimizer, 0, "fourth", own, grad));
            MP_OK(mp_optimizer_shard(optimizer, nullptr));
            const int32_t index = stage == 3 ? 2 : 1;
            if (stage == 2) { // the weight is there
                MP_FAILS(mp_optimizer_acquire_grad(optimizer, nullptr, index), MP_STATUS_BAD_STATE,
                         "gradient of parameter 1", "weight of parameter 0");
            } else {
                MP_OK(mp_optimizer_acquire_grad(optimizer, nullptr, index));
                const int32_t both[] = {0};
                MP_FAILS(mp_optimizer_gather_begin(optimizer, nullptr, both, 1),
                         MP_STATUS_BAD_STATE, "weight of parameter 0", "gradient of parameter 2");
            }
        }
    });
}

// A gradient that stays has its place for itself.
TEST(CallersMemory, NothingGetsThePlaceOfAGradientThatStays) {
    run_sharded(2, [](mp_comm* comm, int32_t /*rank*/) {
        const Context context = make_context(1);
        const mp_sharding_desc sharding = stage_desc(3);
        const Optimizer optimizer =
            make_optimizer_on(comm, context, make_recipe(context, "fp32"), nullptr, &sharding);
        add_group(optimizer);
        std::vector<float> memory(40000);
        mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {40000});
        desc.flags = MP_TENSOR_DEFERRED;
        mp_tensor* made = nullptr;
        MP_OK(mp_tensor_wrap(context, &desc, memory.data(), nullptr, nullptr, &made));
        const Tensor first(made);
        MP_OK(add_param(optimizer, 0, "first", first));
        MP_OK(add_param(optimizer, 0, "second", make_tensor(context, MP_DTYPE_FP32, {40000}),
                        wrap_tensor(context, MP_DTYPE_FP32, {40000}, memory.data())));
        MP_OK(mp_optimizer_shard(optimizer, nullptr));
        MP_FAILS(gather(optimizer, {0}), MP_STATUS_BAD_STATE, "weight of parameter 0",
                 "gradient of parameter 1");
    });
}

// What is frozen, trained again and added after the cut, also several in one place.
TEST(CallersMemory, ParametersMayChange) {
    for (const int32_t stage : {2, 3}) {
        for (const int32_t plan : {MP_SHARD_FLAT, MP_SHARD_PER_PARAMETER}) {
            run_sharded(kRanks, [&](mp_comm* comm, int32_t /*rank*/) {
                std::vector<std::vector<unsigned char>> wanted;
                for (const Arrays arrays : {Arrays::library, Arrays::wrapped, Arrays::shared}) {
                    std::vector<float> memory = numbers(20000, 77);
                    std::vector<float> gradient(20000, 0.5F);
                    Program program(comm, stage, plan, arrays);
                    program.train(0, 1);
                    const int32_t in_one_place[] = {0, 3}; // in Arrays::shared
                    const auto set = [&](int32_t frozen) {
                        MP_OK(mp_optimizer_set_frozen(program.optimizer, nullptr, in_one_place, 2,
                                                      frozen));
                    };
                    set(1);
                    const auto frozen = program.weights();
                    set(0); // with gradients of the library's from now on
                    EXPECT_EQ(program.weights(), frozen);
                    const auto wrap = [&](std::vector<float>& values) {
                        return wrap_tensor(program.context, MP_DTYPE_FP32, {20000}, values.data());
                    };
                    const Tensor late = wrap(memory);
                    MP_OK(add_param(program.optimizer, 0, "late", late, wrap(gradient)));
                    const auto index = static_cast<int32_t>(program.params.size());
                    const Tensor grad = state_of(program.optimizer, index, "grad");
                    EXPECT_EQ(data_of(grad), gradient.data()) << "it stays";
                    EXPECT_EQ(gradient[7], 0.5F);
                    if (stage == 3) {
                        std::fill(memory.begin(), memory.end(), -1.0F);
                        MP_OK(gather(program, {index}));
                        EXPECT_EQ(data_of(late), memory.data());
                        EXPECT_EQ(memory, numbers(20000, 77));
                        release(program, {index});
                    }
                    const auto weights = program.weights();
                    wanted = wanted.empty() ? weights : wanted;
                    EXPECT_EQ(weights, wanted);
                }
            });
        }
    }
}

// Frozen codes with scales of blocks: both lie where the caller has them while they are gathered.
TEST(CallersMemory, HoldsFrozenCodes) {
    constexpr int64_t kRows = 300, kColumns = 256;
    run_sharded(kRanks, [](mp_comm* comm, int32_t /*rank*/) {
        const Context context = make_context(1);
        const mp_sharding_desc sharding = stage_desc(3);
        const Optimizer optimizer =
            make_optimizer_on(comm, context, make_recipe(context, "fp32"), nullptr, &sharding);
        add_group(optimizer);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = MP_SCALING_BLOCK_1X128;
        Block codes(kRows * kColumns), scales(kRows * 2 * sizeof(float));
        const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP8_E4M3, {kRows, kColumns});
        mp_tensor* made = nullptr;
        MP_OK(mp_tensor_wrap_quantized(context, &desc, &quant, codes.memory.get(),
                                       scales.memory.get(), nullptr, nullptr, nullptr, &made));
        const Tensor base(made);
        const Tensor exact =
            make_tensor(context, MP_DTYPE_FP32, {kRows, kColumns}, numbers(kRows * kColumns, 3));
        MP_OK(mp_tensor_quantize(exact, nullptr, base, nullptr, nullptr, nullptr));
        const auto wanted_codes = bytes_of(base), wanted_scales = bytes_of(scales_of(base));
        MP_OK(add_param_flags(optimizer, "base", base, MP_PARAM_FROZEN));
        MP_OK(mp_optimizer_shard(optimizer, nullptr));
        std::memset(codes.memory.get(), 0xff, codes.bytes);
        std::memset(scales.memory.get(), 0xff, scales.bytes);
        const int32_t first = 0;
        MP_OK(mp_optimizer_gather_begin(optimizer, nullptr, &first, 1));
        MP_OK(mp_optimizer_gather_wait(optimizer, nullptr, &first, 1));
        EXPECT_EQ(data_of(base), codes.memory.get());
        EXPECT_EQ(std::memcmp(codes.memory.get(), wanted_codes.data(), wanted_codes.size()), 0);
        EXPECT_EQ(std::memcmp(scales.memory.get(), wanted_scales.data(), wanted_scales.size()), 0);
        MP_OK(mp_optimizer_gather_free(optimizer, nullptr, &first, 1));
        EXPECT_FALSE(has_memory(base));
    });
}
