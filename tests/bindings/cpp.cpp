// SPDX-License-Identifier: Apache-2.0
// mixedprec.hpp with exceptions: contexts, tensors, recipes and products, and what is refused of them.
#include "cpp.hpp"

TEST(Cpp, TensorsKeepTypesAndSizes) {
    const auto context = mp::Context::create();
    const auto values = ramp(6);
    auto tensor = mp::Tensor::from(context, values, {2, 3});
    EXPECT_EQ(tensor.to_vector<float>(), values);
    EXPECT_EQ(tensor.desc().shape[1], 3);
    EXPECT_EQ(tensor.view(3, {3}).elements<const float>()[0], values[3]);

    EXPECT_EQ(status_of([&] {
                  return mp::Tensor::from(context, values, {2, 2});
              }),
              MP_STATUS_INVALID_SHAPE);
    std::vector<float> own(6);
    EXPECT_EQ(status_of([&] { return mp::Tensor::wrap(context, own, {7}); }),
              MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(status_of([&] {
                  return mp::Tensor::wrap(context, own, {1, 1, 1, 1, 1, 1, 1, 1, 6});
              }),
              MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(status_of([&] { return tensor.elements<std::int32_t>(); }), MP_STATUS_INVALID_DTYPE);
    EXPECT_EQ(status_of([&] { return tensor.to_vector<mp::Bf16>(); }), MP_STATUS_INVALID_DTYPE);
    EXPECT_EQ(status_of([&] { tensor.write(std::vector<std::int32_t>(6)); }),
              MP_STATUS_INVALID_DTYPE);
    EXPECT_EQ(status_of([&] { tensor.write(std::vector<float>(5)); }), MP_STATUS_INVALID_SHAPE);

    auto wrapped = mp::Tensor::wrap(context, own, {2, 3});
    tensor.copy_to(wrapped);
    EXPECT_EQ(own, values);
    auto bf16 = mp::Tensor::create(context, MP_DTYPE_BF16, {6});
    tensor.cast_to(bf16);
    std::vector<mp::Bf16> codes(6);
    mp::cast(context, values, codes);
    EXPECT_EQ(bf16.to_vector<mp::Bf16>()[1].bits, codes[1].bits);
    EXPECT_EQ(status_of([&] { mp::cast(context, values, std::vector<float>(3)); }),
              MP_STATUS_INVALID_SHAPE);
    auto amax = zeros(context, {});
    tensor.amax_to(amax);
    EXPECT_EQ(amax.elements<float>()[0], 11.0f / 16.0f);
}

TEST(Cpp, SharedMemoryLivesAsLongAsTheTensorAndItsUsers) {
    const auto context = mp::Context::create();
    auto memory = std::make_shared<std::vector<float>>(8, 1.0f);
    const std::weak_ptr<std::vector<float>> watched = memory;
    auto recipe = mp::Recipe::create(context, "fp32");
    auto optimizer = optimizer_of(context, recipe);
    optimizer.add_param("p", mp::Tensor::wrap(context, *memory, {8}, memory));
    memory.reset();
    EXPECT_FALSE(watched.expired());
    optimizer.step();
    optimizer = mp::Optimizer();
    EXPECT_TRUE(watched.expired());
    EXPECT_EQ(status_of([&] {
                  auto bad = std::make_shared<std::vector<float>>(8);
                  return mp::Tensor::wrap_pointer(context, reinterpret_cast<char*>(bad->data()) + 1,
                                                  mp::detail::tensor_desc(MP_DTYPE_FP32, {7}), bad);
              }),
              MP_STATUS_INVALID_ARGUMENT);
}

TEST(Cpp, RecipesByNameKeyAndJson) {
    const auto context = mp::Context::create();
    try {
        static_cast<void>(mp::Recipe::create(context, "bf16_pure_kahn"));
        FAIL();
    } catch (const mp::Error& error) {
        EXPECT_EQ(error.status(), MP_STATUS_UNKNOWN_NAME);
        EXPECT_NE(std::string(error.what()).find("bf16_pure_kahan"), std::string::npos);
    }
    auto recipe = mp::Recipe::create(context, "fp8_delayed");
    recipe.set(MP_RECIPE_GEMM_MARGIN, 1);
    recipe.set(MP_RECIPE_FP8_FORMAT, "e4m3");
    recipe.set(MP_RECIPE_GEMM_AMAX_EPSILON, 0.5);
    const auto again = mp::Recipe::from_json(context, recipe.to_json());
    EXPECT_EQ(again.get_int(MP_RECIPE_GEMM_MARGIN), 1);
    EXPECT_EQ(again.get_string(MP_RECIPE_FP8_FORMAT), "e4m3");
    EXPECT_EQ(again.get_float(MP_RECIPE_GEMM_AMAX_EPSILON), 0.5);
    EXPECT_EQ(status_of([&] { recipe.set(MP_RECIPE_GEMM_MARGIN, 0.5); }),
              MP_STATUS_INVALID_ARGUMENT);
    const auto copy = recipe.clone();
    EXPECT_FALSE(copy.frozen());
    EXPECT_FALSE(mp::Recipe::create(context, "auto").reason().empty());
    EXPECT_EQ(mp::Recipe::presets().front().name, std::string("fp32"));
    EXPECT_EQ(mp::Recipe::keys().size(), static_cast<std::size_t>(mp_recipe_key_count()));
    EXPECT_EQ(mp::Recipe::create(context, "fp32")
                  .plan_memory(MP_RULE_ADAMW, std::int64_t{100})
                  .total_bytes,
              1600);
    EXPECT_EQ(mp::Recipe::create(context, "fp32").plan_memory(MP_RULE_LION, {60, 40}).total_bytes,
              1200);
    const auto mixed = mp::Recipe::create(context, "bf16_pure");
    std::vector<mp::PlannedTensor> tensors = {1000, 24};
    tensors[1].weight_dtype = MP_DTYPE_FP32, tensors[1].rule = MP_RULE_LION;
    const auto plan = mixed.plan_tensors(tensors);
    EXPECT_EQ(plan.memory.weight_bytes, 2 * 1000 + 4 * 24);
    EXPECT_EQ(plan.memory.state_bytes[MP_STATE_EXP_AVG_SQ], 2 * 1000);
    EXPECT_EQ(plan.traffic.total_bytes, 0);
    EXPECT_GT(mixed.plan_tensors(tensors, {}, 1, 2).traffic.total_bytes, 0);
    tensors[0].state_formats[0] = "fp32";
    EXPECT_EQ(mixed.plan_tensors(tensors).memory.state_bytes[MP_STATE_EXP_AVG], 4 * 1000 + 2 * 24);
    tensors[0].state_formats[0] = "int9";
    EXPECT_EQ(status_of([&] { return mixed.plan_tensors(tensors); }), MP_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] {
                  return recipe.weight(context, {4, 4}, std::vector<float>(15));
              }),
              MP_STATUS_INVALID_SHAPE);
}

TEST(Cpp, ANoteIsSuccess) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(
        context, "bf16_pure"); // bf16 second moments at beta2 0.999 cannot decrease
    auto optimizer = optimizer_of(context, recipe);
    EXPECT_NE(mp::note().find("beta2"), std::string::npos) << mp::note();
    context.sync();
    EXPECT_TRUE(mp::note().empty());
}

TEST(Cpp, QuantizedTensorsAndProducts) {
    const auto context = mp::Context::create();
    const auto values = ramp(64 * 32);
    auto source = mp::Tensor::from(context, values, {64, 32});
    mp::QuantOptions quant;
    quant.scaling = MP_SCALING_ROW;
    auto codes = mp::Tensor::create_quantized(context, MP_DTYPE_FP8_E4M3, {64, 32}, quant);
    mp::QuantStats stats;
    source.quantize_to(codes, nullptr, {}, &stats);
    EXPECT_EQ(stats.elements, 64 * 32);
    EXPECT_EQ(codes.scales().desc().shape[0], 64);
    EXPECT_EQ(codes.quant_options().scaling, MP_SCALING_ROW);
    auto back = zeros(context, {64, 32});
    codes.dequantize_to(back);
    for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(back.elements<float>()[i], values[i], 0.05);
    EXPECT_EQ(mp::scale_grid(quant, 64, 32).rows, 64);

    mp::GemmOptions options;
    options.m = 64, options.n = 64, options.k = 32,
    options.dtype_a = options.dtype_b = MP_DTYPE_FP32, options.flags = MP_GEMM_TRANS_B;
    auto gemm = mp::Gemm::create(context, options);
    auto d = zeros(context, {64, 64});
    gemm.run(source, source, d);
    double sum = 0.0;
    for (std::size_t k = 0; k < 32; ++k)
        sum += static_cast<double>(values[32 + k]) * values[64 + k];
    EXPECT_NEAR(d.elements<float>()[64 + 2], sum, 1e-5);
    EXPECT_FALSE(gemm.describe().empty());
    options.k = -1;
    EXPECT_EQ(status_of([&] { return mp::Gemm::create(context, options); }),
              MP_STATUS_INVALID_SHAPE);
}

TEST(Cpp, QueuesAndEventsOfAHost) {
    const auto context = mp::Context::create();
    auto queue = mp::Queue::create(context);
    auto event = mp::Event::create(context);
    auto tensor = zeros(context, {4});
    tensor.zero(queue);
    event.record(queue);
    queue.wait(event);
    event.sync();
    EXPECT_TRUE(event.reached());
    queue.sync();
    EXPECT_EQ(status_of([&] { return mp::Queue::wrap(context, &context); }), MP_STATUS_UNSUPPORTED);
    EXPECT_NE(context.describe().find("\"host\""), std::string::npos);
    EXPECT_GE(context.num_threads(), 1);
    EXPECT_EQ(mp::Context::device_name(MP_DEVICE_HOST), "host");
    EXPECT_EQ(mp::version(), static_cast<std::uint32_t>(MP_VERSION));
}

TEST(Cpp, HandlesMoveAndAMovedOneIsRefused) {
    const auto context = mp::Context::create();
    auto a = zeros(context, {4});
    mp::Tensor b = std::move(a);
    EXPECT_FALSE(a); // NOLINT(bugprone-use-after-move): what is left behind is empty, and refused
    EXPECT_EQ(status_of([&] { a.zero(); }), MP_STATUS_NULL_ARGUMENT);
    b = mp::Tensor();
    EXPECT_FALSE(b);
    mp_tensor* raw = zeros(context, {4}).release();
    EXPECT_EQ(mp::Tensor(raw).desc().shape[0], 4);
    EXPECT_EQ(status_of([&] { return mp::Tensor(raw).desc(); }), MP_STATUS_INVALID_HANDLE)
        << "destroyed by the line above";
}

TEST(Cpp, DlpackGoesThroughWithoutACopy) {
    const auto context = mp::Context::create();
    auto tensor = mp::Tensor::from(context, ramp(6), {2, 3});
    auto back = mp::Tensor::from_dlpack(context, tensor.to_dlpack());
    EXPECT_EQ(back.data(), tensor.data());
    EXPECT_EQ(back.desc().ndim, 2);
}
