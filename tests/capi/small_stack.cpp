// SPDX-License-Identifier: Apache-2.0
// Calls from a thread with a small stack, as Go, musl and fibers have: docs/abi.md says how much one needs.
#include <pthread.h>

#include "bits_training.hpp"
#include "every_preset.hpp"

using namespace mp_test;
using namespace mp_test::bits;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStack = std::size_t{1} << 20; // whose frames are larger
#else
constexpr std::size_t kStack = std::size_t{64} << 10;
#endif

void on_a_small_stack(const std::function<void()>& body) {
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStack), 0);
    pthread_t thread{};
    const auto run = [](void* data) -> void* {
        (*static_cast<const std::function<void()>*>(data))();
        return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)),
              0);
    EXPECT_EQ(pthread_join(thread, nullptr), 0);
    (void)pthread_attr_destroy(&attributes);
}

// With a communicator of one rank, so that gradients go through the sums of every order.
void train_and_save(const Configuration& c) {
    try {
        mp_comm_desc desc = MP_COMM_DESC_INIT;
        mp_comm* made = nullptr;
        check(mp_comm_create_self(&desc, &made));
        const Comm comm(made);
        const Folder folder("small_stack");
        Collected collected;
        Trainer trainer(c, 0, comm, 50);
        trainer.train(0, 2, collected);
        trainer.save(folder.c_str());
        trainer.load(folder.c_str());
        trainer.collect(collected);
    } catch (const std::runtime_error& error) {
        ADD_FAILURE() << value_of(c, kRecipe) << ": " << error.what();
    }
}

} // namespace

TEST(SmallStack, EveryPreset) {
    for (const char* backend : kHostBackends) {
        on_a_small_stack([backend] {
            const Context context = make_context(1, backend);
            for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
                const char* name = nullptr;
                const char* text = nullptr;
                MP_OK(mp_recipe_get_preset_info(i, &name, &text));
                run_layer(context, name);
                run_steps(context, name);
            }
            std::size_t needed = 0;
            MP_OK(mp_context_describe(context, nullptr, 0, &needed));
        });
    }
}

TEST(SmallStack, TrainingAndCheckpoints) {
    for (std::size_t i = 0; i < options()[kRecipe].values.size(); ++i) {
        Configuration c{};
        c[kRecipe] = static_cast<int32_t>(i);
        c[kTransport] = kSelf;
        c[kOrder] = static_cast<int32_t>(i % 3);
        c[kStage] = static_cast<int32_t>(i % 4);
        c[kPlan] = is_scaled(c) && c[kStage] > 0 ? MP_SHARD_GREEDY : MP_SHARD_FLAT;
        c[kThreads] = static_cast<int32_t>(i % 2);
        on_a_small_stack([c] { train_and_save(c); });
    }
}

// Every scaling, with codes that are turned; every pair of types of a product, by the one that takes all of them.
TEST(SmallStack, CodesAndProducts) {
    on_a_small_stack([] {
        const Context context = make_context(1);
        const Tensor source =
            make_tensor(context, MP_DTYPE_FP32, {128, 128}, numbers(128 * 128, 1));
        for (int32_t scaling = MP_SCALING_TENSOR; scaling <= MP_SCALING_MX_32X1; ++scaling) {
            mp_quant_desc quant = MP_QUANT_DESC_INIT;
            quant.scaling = scaling;
            const Tensor codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {128, 128}, &quant);
            const Tensor turned = make_tensor(context, MP_DTYPE_FP8_E4M3, {128, 128});
            MP_OK(mp_tensor_quantize(source, nullptr, codes, turned, nullptr, nullptr));
        }
        for (const int32_t dtype :
             {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2}) {
            mp_gemm_desc desc = MP_GEMM_DESC_INIT;
            desc.m = desc.n = desc.k = 128;
            desc.dtype_a = desc.dtype_b = dtype;
            desc.implementation = "simple";
            const Gemm gemm = make_gemm(context, desc);
            const Tensor a = make_tensor(context, dtype, {128, 128});
            const Tensor d = make_tensor(context, MP_DTYPE_FP32, {128, 128});
            MP_OK(mp_gemm_run(gemm, nullptr, a, a, nullptr, nullptr, d));
        }
    });
}
