// SPDX-License-Identifier: Apache-2.0
// mixedprec.hpp with exceptions: every class once, what is refused, who keeps what alive, and ranks as threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mixedprec.hpp>
#include <mutex>
#include <random>
#include <thread>

namespace mp = mixedprec;

namespace {

mp_status status_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const mp::Error& error) {
        EXPECT_NE(std::string(error.what()).find(mp_status_string(error.status())),
                  std::string::npos);
        EXPECT_GT(std::string(error.what()).size(),
                  std::string(mp_status_string(error.status())).size() + 4);
        return error.status();
    }
    return MP_STATUS_OK;
}

std::vector<float> ramp(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(static_cast<int>(i * 7 % 23) - 11) / 16.0f;
    return values;
}

struct Folder {
    Folder()
        : path(std::filesystem::temp_directory_path() /
               ("mp_cpp_" + std::to_string(std::random_device()()))) {}
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
};

} // namespace

TEST(Cpp, TensorsKeepTypesAndSizes) {
    const auto context = mp::Context::create();
    const auto values = ramp(6);
    auto tensor = mp::Tensor::from(context, values, {2, 3});
    EXPECT_EQ(tensor.to_vector<float>(), values);
    EXPECT_EQ(tensor.desc().shape[1], 3);
    EXPECT_EQ(tensor.view(3, {3}).elements<const float>()[0], values[3]);

    EXPECT_EQ(status_of([&] {
                  static_cast<void>(mp::Tensor::from(context, values, {2, 2}));
              }),
              MP_STATUS_INVALID_SHAPE);
    std::vector<float> own(6);
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::Tensor::wrap(context, own, {7})); }),
              MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(status_of([&] {
                  static_cast<void>(mp::Tensor::wrap(context, own, {1, 1, 1, 1, 1, 1, 1, 1, 6}));
              }),
              MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(status_of([&] { static_cast<void>(tensor.elements<std::int32_t>()); }),
              MP_STATUS_INVALID_DTYPE);
    EXPECT_EQ(status_of([&] { static_cast<void>(tensor.to_vector<mp::Bf16>()); }),
              MP_STATUS_INVALID_DTYPE);
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
    auto amax = mp::Tensor::create(context, MP_DTYPE_FP32, {});
    tensor.amax_to(amax);
    EXPECT_EQ(amax.elements<float>()[0], 11.0f / 16.0f);
}

TEST(Cpp, SharedMemoryLivesAsLongAsTheTensorAndItsUsers) {
    const auto context = mp::Context::create();
    auto memory = std::make_shared<std::vector<float>>(8, 1.0f);
    const std::weak_ptr<std::vector<float>> watched = memory;
    auto recipe = mp::Recipe::create(context, "fp32");
    auto optimizer = mp::Optimizer::create(context, recipe);
    optimizer.add_group();
    optimizer.add_param("p", mp::Tensor::wrap(context, *memory, {8}, memory));
    memory.reset();
    EXPECT_FALSE(watched.expired());
    optimizer.step();
    optimizer = mp::Optimizer();
    EXPECT_TRUE(watched.expired());
    EXPECT_EQ(status_of([&] {
                  auto bad = std::make_shared<std::vector<float>>(8);
                  static_cast<void>(
                      mp::Tensor::wrap_pointer(context, reinterpret_cast<char*>(bad->data()) + 1,
                                               mp::detail::tensor_desc(MP_DTYPE_FP32, {7}), bad));
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
    EXPECT_EQ(status_of([&] { static_cast<void>(mixed.plan_tensors(tensors)); }),
              MP_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] {
                  static_cast<void>(recipe.weight(context, {4, 4}, std::vector<float>(15)));
              }),
              MP_STATUS_INVALID_SHAPE);
}

TEST(Cpp, ANoteIsSuccess) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(
        context, "bf16_pure"); // bf16 second moments at beta2 0.999 cannot decrease
    auto optimizer = mp::Optimizer::create(context, recipe);
    optimizer.add_group();
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
    auto back = mp::Tensor::create(context, MP_DTYPE_FP32, {64, 32});
    codes.dequantize_to(back);
    for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(back.elements<float>()[i], values[i], 0.05);
    EXPECT_EQ(mp::scale_grid(quant, 64, 32).rows, 64);

    mp::GemmOptions options;
    options.m = 64, options.n = 64, options.k = 32,
    options.dtype_a = options.dtype_b = MP_DTYPE_FP32, options.flags = MP_GEMM_TRANS_B;
    auto gemm = mp::Gemm::create(context, options);
    auto d = mp::Tensor::create(context, MP_DTYPE_FP32, {64, 64});
    gemm.run(source, source, d);
    double sum = 0.0;
    for (int k = 0; k < 32; ++k)
        sum += static_cast<double>(values[32 + k]) * values[64 + k];
    EXPECT_NEAR(d.elements<float>()[64 + 2], sum, 1e-5);
    EXPECT_FALSE(gemm.describe().empty());
    options.k = -1;
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::Gemm::create(context, options)); }),
              MP_STATUS_INVALID_SHAPE);
}

TEST(Cpp, LayersByTensorsBySavedHandlesAndOnPlainMemoryAgree) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp8_current");
    const auto w = ramp(32 * 16), x = ramp(16 * 16), dy = ramp(16 * 32);
    auto weight = recipe.weight(context, {32, 16}, w);
    auto one = mp::Linear::create(context, recipe, 16, 32, weight);
    auto tx = mp::Tensor::from(context, x, {16, 16}), tdy = mp::Tensor::from(context, dy, {16, 32});
    auto y = mp::Tensor::create(context, MP_DTYPE_FP32, {16, 32}),
         dx = mp::Tensor::create(context, MP_DTYPE_FP32, {16, 16});
    auto dw = mp::Tensor::create(context, MP_DTYPE_FP32, {32, 16});
    one.forward(tx, y);
    one.backward(tdy, dx, dw);

    auto two = mp::Linear::over(context, recipe, 16, 32, w);
    std::vector<float> py(16 * 32), pdx(16 * 16), pdw(32 * 16);
    two.forward(16, x, py);
    two.backward(16, dy, pdx, pdw, mp::span<float>());
    EXPECT_EQ(py, y.to_vector<float>());
    EXPECT_EQ(pdx, dx.to_vector<float>());
    EXPECT_EQ(pdw, dw.to_vector<float>());
    EXPECT_EQ(status_of([&] { two.forward(17, x, py); }), MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(
        status_of([&] { two.backward(16, dy, pdx, std::vector<float>(3), mp::span<float>()); }),
        MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::Linear::over(context, recipe, 16, 31, w)); }),
              MP_STATUS_INVALID_SHAPE);

    auto saved = one.make_saved(), other = one.make_saved();
    auto y2 = mp::Tensor::create(context, MP_DTYPE_FP32, {16, 32}),
         dw2 = mp::Tensor::create(context, MP_DTYPE_FP32, {32, 16});
    one.forward(tx, y2, saved);
    one.forward(y2.view(0, {16, 16}), mp::Tensor::create(context, MP_DTYPE_FP32, {16, 32}), other);
    one.backward(saved, tdy, dx, dw2);
    EXPECT_EQ(dw2.to_vector<float>(), pdw);
    EXPECT_GT(one.saved_bytes(16), 0u);
    EXPECT_EQ(one.operand_format(MP_PRODUCT_FPROP, MP_OPERAND_INPUT).dtype, MP_DTYPE_FP8_E4M3);
    EXPECT_NE(one.describe().find("fp8"), std::string::npos);
    auto filtered = recipe.clone();
    filtered.set(MP_RECIPE_GEMM_FILTER_NAMES, "lm_*");
    const auto head = mp::Linear::create(context, filtered, 16, 32, weight, nullptr, 0, "lm_head");
    EXPECT_EQ(head.operand_format(MP_PRODUCT_FPROP, MP_OPERAND_INPUT).dtype, MP_DTYPE_BF16);
}

TEST(Cpp, AMonitorEndsWithItsLayerAndItsExceptionsAreCaught) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp8_delayed");
    auto weight = recipe.weight(context, {16, 16}, ramp(256));
    auto optimizer = mp::Optimizer::create(context, recipe);
    optimizer.add_group();
    const int index = optimizer.add_param("w", weight);
    auto layer = std::make_unique<mp::Linear>(
        mp::Linear::create(context, recipe, 16, 16, weight, nullptr, MP_LINEAR_STATS));
    optimizer.set_linears({layer.get()});
    int calls = 0;
    layer->set_monitor("l", 1,
                       [&](std::string_view name, const mp_linear_stats& stats, std::string_view) {
                           EXPECT_EQ(name, "l");
                           EXPECT_GE(stats.elements, 0);
                           ++calls;
                           throw std::runtime_error("lost");
                       });
    auto x = mp::Tensor::from(context, ramp(256), {16, 16});
    auto y = mp::Tensor::create(context, MP_DTYPE_FP32, {16, 16});
    auto dw = optimizer.grad(index);
    const auto pass = [&](mp::Linear& linear) {
        linear.forward(x, y);
        linear.backward(x, nullptr, dw);
    };
    pass(*layer);
    optimizer.step();
    EXPECT_EQ(calls, MP_OPERAND_COUNT);
    const auto scaling = layer->scaling();
    layer->set_scaling(scaling);
    mp::Linear moved = std::move(*layer);
    pass(moved);
    optimizer.step();
    EXPECT_EQ(calls, 2 * MP_OPERAND_COUNT);
    pass(moved);
    { const mp::Linear ends = std::move(moved); }
    optimizer.step(); // the optimizer has the layer still, the function is gone
    EXPECT_EQ(calls, 2 * MP_OPERAND_COUNT);
}

TEST(Cpp, TheLogOutlivesTheContextObject) {
    auto lines = std::make_shared<std::atomic<int>>(0);
    auto optimizer = [&] {
        mp::ContextOptions options;
        options.log_level = MP_LOG_INFO;
        options.on_log = [lines](int, std::string_view line) {
            *lines += line.empty() ? 0 : 1;
            throw std::runtime_error("lost");
        };
        const auto context = mp::Context::create(options);
        mp::OptimizerOptions checked;
        checked.flags = MP_OPTIMIZER_CHECK_FINITE;
        auto made = mp::Optimizer::create(context, mp::Recipe::create(context, "fp32"), checked);
        made.add_group();
        made.add_param("p", mp::Tensor::create(context, MP_DTYPE_FP32, {4}));
        return made;
    }();
    const int before = *lines;
    optimizer.grad(0).write(std::vector<float>{0.0f, INFINITY, 0.0f, 0.0f});
    optimizer.step();
    EXPECT_EQ(optimizer.stats().found_inf, 1u);
    EXPECT_GT(*lines, before) << "a skipped step is told of";
}

TEST(Cpp, OptimizersScalersAndCheckpointsGoOnWhereTheyStopped) {
    const Folder folder;
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp16_mixed");
    struct Run {
        Run(const mp::Context& context, const mp::Recipe& recipe)
            : scaler(mp::Scaler::create(context, recipe)),
              optimizer(mp::Optimizer::create(context, recipe)),
              checkpoint(mp::Checkpoint::create(
                  context, nullptr, 2, [this](std::int64_t, std::int64_t) { ++progress; })) {
            mp::GroupOptions group;
            group.lr = 0.5;
            optimizer.add_group(group);
            auto initial = mp::Tensor::from(context, ramp(64), {8, 8});
            optimizer.add_param("w", recipe.weight(context, {8, 8}, ramp(64)), {nullptr, initial});
            checkpoint.add(optimizer);
            checkpoint.add(scaler);
            checkpoint.add_data("data", data);
        }
        void step(float value) {
            optimizer.grad(0).write(std::vector<float>(64, value));
            optimizer.step(scaler);
            scaler.update();
            ++data;
        }
        std::int64_t data = 0;
        int progress = 0;
        mp::Scaler scaler;
        mp::Optimizer optimizer;
        mp::Checkpoint checkpoint;
    };
    Run first(context, recipe);
    first.step(1.0f), first.step(INFINITY), first.step(0.5f);
    EXPECT_EQ(first.optimizer.stats().skipped_steps, 1);
    first.checkpoint.save(folder.path.string(), 3, MP_SAVE_BACKGROUND);
    first.checkpoint.wait();
    EXPECT_TRUE(first.checkpoint.finished());
    EXPECT_GT(first.progress, 0);
    first.step(1.0f);

    Run second(context, recipe);
    EXPECT_EQ(mp::Checkpoint::inspect(folder.path.string()).step, 3);
    EXPECT_EQ(second.checkpoint.load(folder.path.string()).tensor_count,
              mp::Checkpoint::inspect(folder.path.string()).tensor_count);
    EXPECT_EQ(second.data, 3);
    second.step(1.0f);
    EXPECT_EQ(second.scaler.scale(), first.scaler.scale());
    EXPECT_EQ(second.scaler.state().overflow_steps, 1);
    auto a = mp::Tensor::create(context, MP_DTYPE_FP32, {8, 8}),
         b = mp::Tensor::create(context, MP_DTYPE_FP32, {8, 8});
    for (const char* state : {"fp32_param", "exp_avg", "exp_avg_sq"}) {
        first.optimizer.read_state(0, state, a);
        second.optimizer.read_state(0, state, b);
        EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>()) << state;
    }
    EXPECT_EQ(first.optimizer.group(0).lr, 0.5);
    EXPECT_EQ(first.optimizer.param_name(0), "w");
    EXPECT_EQ(first.optimizer.memory().parameter_count, 64);
    EXPECT_NE(mp::Checkpoint::describe(folder.path.string()).find("step"), std::string::npos);
    first.checkpoint.export_weights((folder.path / "w.safetensors").string());
    EXPECT_EQ(status_of([&] {
                  first.checkpoint.export_weights((folder.path / "w.safetensors").string());
              }),
              MP_STATUS_IO_ERROR);
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::Scaler::preset("torhc")); }),
              MP_STATUS_UNKNOWN_NAME);
    EXPECT_EQ(mp::Scaler::create(context, mp::Scaler::preset("megatron")).scale(), 4294967296.0);
}

TEST(Cpp, AGuardAndAHistoryWatchTheSteps) {
    const Folder folder;
    std::filesystem::create_directory(folder.path);
    const std::string path = (folder.path / "steps.json").string();
    const auto context = mp::Context::create();
    mp::OptimizerOptions checked;
    checked.flags = MP_OPTIMIZER_CHECK_FINITE;
    auto optimizer = mp::Optimizer::create(context, mp::Recipe::create(context, "fp32"), checked);
    optimizer.add_group();
    const int index = optimizer.add_param("w", mp::Tensor::create(context, MP_DTYPE_FP32, {4}));
    mp::GuardOptions guard;
    EXPECT_EQ(optimizer.guard().max_loss_z, 0.0);
    guard.window = 2, guard.max_loss_z = 3.0;
    optimizer.set_guard(guard);
    EXPECT_EQ(optimizer.guard().window, 2);
    optimizer.set_history(8, path);
    for (const double loss : {1.0, 1.1, 100.0, 1.0}) {
        optimizer.set_loss(loss);
        optimizer.step();
    }
    EXPECT_EQ(optimizer.stats().outlier_steps, 1);
    EXPECT_EQ(optimizer.record_count(), 4);
    EXPECT_EQ(optimizer.record(2).outcome, MP_STEP_OUTLIER);
    EXPECT_EQ(optimizer.record(2).loss, 100.0);
    EXPECT_GT(optimizer.record(2).loss_z, 3.0);
    EXPECT_EQ(optimizer.bad_tensor(), "");
    optimizer.grad(index).write(std::vector<float>{0.0f, INFINITY, 0.0f, 0.0f});
    EXPECT_EQ(status_of([&] { optimizer.step(); }), MP_STATUS_BAD_STATE); // without its loss
    optimizer.set_loss(1.0);
    optimizer.step();
    EXPECT_EQ(optimizer.record(4).outcome, MP_STEP_NON_FINITE);
    EXPECT_EQ(optimizer.bad_tensor(), "the gradient of 'w'");
    EXPECT_TRUE(std::filesystem::exists(path));
    optimizer.clear_guard();
    EXPECT_EQ(optimizer.guard().max_loss_z, 0.0);
    EXPECT_EQ(status_of([&] { static_cast<void>(optimizer.record(5)); }),
              MP_STATUS_INVALID_ARGUMENT);
    guard.window = 1;
    EXPECT_EQ(status_of([&] { optimizer.set_guard(guard); }), MP_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { optimizer.set_guard({}); }), MP_STATUS_INVALID_ARGUMENT);
}

namespace {

// Whether the calls compile with such an argument.
template <class X>
using ByAddress = decltype(std::declval<mp::Linear&>().forward_by_address(
    1, std::declval<X>(), std::declval<std::vector<float>&>()));
template <class W>
using Over = decltype(mp::Linear::over(std::declval<mp::Context&>(), std::declval<mp::Recipe&>(), 1,
                                       1, std::declval<W>()));
template <template <class> class Call, class Argument, class = void>
constexpr bool kCompiles = false;
template <template <class> class Call, class Argument>
constexpr bool kCompiles<Call, Argument, std::void_t<Call<Argument>>> = true;
static_assert(kCompiles<ByAddress, std::vector<float>&> &&
              kCompiles<ByAddress, const std::vector<float>&> &&
              kCompiles<ByAddress, mp::span<const float>> && kCompiles<ByAddress, float (&)[3]>);
static_assert(!kCompiles<ByAddress, std::vector<float>> &&
              !kCompiles<ByAddress, const std::vector<float>> &&
              !kCompiles<ByAddress, std::array<float, 3>>);
static_assert(kCompiles<Over, const std::vector<float>&> && kCompiles<Over, mp::span<float>> &&
              !kCompiles<Over, std::vector<float>> && !kCompiles<Over, const std::vector<float>>);

} // namespace

// x of a forward on plain memory ends before the backward, and its memory is used again. The numbers are exact.
TEST(Cpp, NoLayerKeepsTheAddressOfATemporary) {
    const auto context = mp::Context::create();
    for (const char* name : {"fp32", "bf16_mixed"}) {
        auto recipe = mp::Recipe::create(context, name);
        std::vector<float> w(64 * 32, 0.5f), y(16 * 32), dy(16 * 32, 1.0f), dx(16 * 64),
            dw(64 * 32);
        auto layer = mp::Linear::over(context, recipe, 64, 32, w);
        std::vector<float> x(16 * 64, 1.0f);
        layer.forward(16, x, y);
        std::fill(x.begin(), x.end(), 7.0f);
        layer.backward(16, dy, dx, dw, mp::span<float>());
        EXPECT_EQ(dw, std::vector<float>(64 * 32, 16.0f)) << name;
        layer.forward(16, std::vector<float>(16 * 64, 2.0f), y);
        layer.backward(16, dy, dx, dw, mp::span<float>());
        EXPECT_EQ(dw, std::vector<float>(64 * 32, 32.0f)) << name;
        // By address where it is said, and only there.
        auto lean = mp::Linear::over_by_address(context, recipe, 64, 32, w);
        std::fill(x.begin(), x.end(), 1.0f);
        lean.forward_by_address(16, x, y);
        lean.backward(16, dy, dx, dw, mp::span<float>());
        EXPECT_EQ(dw, std::vector<float>(64 * 32, 16.0f)) << name;
        if (name == std::string("fp32")) {
            EXPECT_EQ(status_of([&] { lean.forward(16, x, y); }), MP_STATUS_INVALID_ARGUMENT);
        } else {
            lean.forward(16, x, y);
        }
    }
}

TEST(Cpp, StepsOnOwnArrays) {
    const auto context = mp::Context::create();
    std::vector<float> p(100, 1.0f), m(100), v(100);
    const std::vector<float> g(100, 0.5f);
    const auto slot = mp::slot(p, g, m, v);
    mp::StepArgs args;
    args.lr = 0.01;
    args.max_grad_norm = 1.0;
    EXPECT_DOUBLE_EQ(mp::step(context, args, slot).grad_norm, 5.0);
    EXPECT_LT(p[0], 1.0f);
    auto p2 = std::vector<float>(100, 1.0f), m2 = std::vector<float>(100),
         v2 = std::vector<float>(100);
    const mp::StepSlot other = mp::slot(p2, g, m2, v2);
    auto plan = mp::StepPlan::create(context, args, mp::span<const mp_step_slot>(&other, 1));
    plan.run();
    EXPECT_EQ(p, p2);
    EXPECT_EQ(plan.stats().step, 1);
    const mp_hyper none = {"beta1", 0.0};
    args.hypers = &none, args.hyper_count = 1, args.max_grad_norm = 0.0;
    plan.set_args(args);
    EXPECT_EQ(plan.args().hyper_count, 1);
    plan.run();
    EXPECT_EQ(m2, g);
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::slot(p, g, m, std::vector<float>(3))); }),
              MP_STATUS_INVALID_SHAPE);
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::step(context, args, mp::slot(p, p, m, v))); }),
              MP_STATUS_INVALID_ARGUMENT);
}

namespace {

/* Ranks of one process over queues of bytes: what a transport of one's own must do, at its smallest. */
struct Wire {
    std::mutex mutex;
    std::map<std::tuple<std::uint64_t, int, int>, std::vector<char>> parts; // sequence, from, to
    std::map<std::pair<int, int>, std::shared_ptr<Wire>> groups;            // context, color
};

struct Threads final : mp::Transport {
    Threads(std::shared_ptr<Wire> shared, int own, int ranks)
        : wire(std::move(shared)), rank(own), size(ranks) {}
    mp_status begin(const mp_comm_operation& operation, void** request) override {
        if (fail)
            throw std::runtime_error("the cable is cut");
        const std::lock_guard lock(wire->mutex);
        const auto put = [&](int to, const void* data, std::int64_t bytes) {
            const char* from = static_cast<const char*>(data);
            wire->parts[{operation.sequence, rank, to}].assign(from, from + bytes);
        };
        for (int to = 0; to < size; ++to) {
            if (operation.kind == MP_COMM_ALL_TO_ALL) {
                put(to, static_cast<const char*>(operation.send) + operation.send_offsets[to],
                    operation.send_bytes[to]);
            } else if (operation.kind == MP_COMM_ALL_GATHER) {
                put(to, operation.send, operation.send_bytes[0]);
            } else if (operation.kind == MP_COMM_MAX_U32) {
                put(to, operation.receive, operation.count * 4);
            } else if (operation.kind == MP_COMM_BARRIER) {
                put(to, "", 0);
            } else if (rank == operation.root) {
                put(to, operation.receive, operation.receive_bytes[0]);
            }
        }
        *request = new mp_comm_operation(operation);
        return MP_STATUS_OK;
    }
    mp_status poll(void* request, bool& done) override {
        const auto& operation = *static_cast<mp_comm_operation*>(request);
        const std::lock_guard lock(wire->mutex);
        const bool broadcast = operation.kind == MP_COMM_BROADCAST;
        for (int from = 0; from < size; ++from) {
            if ((!broadcast || from == operation.root) &&
                !wire->parts.count({operation.sequence, from, rank}))
                return MP_STATUS_OK;
        }
        for (int from = 0; from < size; ++from) {
            if (broadcast && from != operation.root)
                continue;
            const auto& part = wire->parts[{operation.sequence, from, rank}];
            char* into = static_cast<char*>(operation.receive);
            if (operation.kind == MP_COMM_MAX_U32) {
                for (std::int64_t i = 0; i < operation.count; ++i) {
                    std::uint32_t mine = 0, theirs = 0;
                    std::memcpy(&mine, into + i * 4, 4),
                        std::memcpy(&theirs, part.data() + i * 4, 4);
                    mine = std::max(mine, theirs);
                    std::memcpy(into + i * 4, &mine, 4);
                }
            } else if (!part.empty()) {
                std::memcpy(broadcast ? into : into + operation.receive_offsets[from], part.data(),
                            part.size());
            }
        }
        done = true;
        return MP_STATUS_OK;
    }
    void release(void* request) override { delete static_cast<mp_comm_operation*>(request); }
    std::shared_ptr<Transport> split(const mp_comm_group& group) override {
        const std::lock_guard lock(wire->mutex);
        auto& part = wire->groups[{group.context, group.color}];
        if (!part)
            part = std::make_shared<Wire>();
        return std::make_shared<Threads>(part, group.rank, group.count);
    }
    std::shared_ptr<Wire> wire;
    int rank, size;
    bool fail = false;
};

std::vector<float> train_on_ranks(std::vector<mp::Comm> comms, int stage) {
    std::vector<std::vector<float>> weights(comms.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
        threads.emplace_back([&, rank] {
            const auto context = mp::Context::create();
            auto recipe = mp::Recipe::create(context, "bf16_mixed");
            mp::ShardingOptions sharding;
            sharding.stage = stage;
            auto optimizer = mp::Optimizer::create_sharded(context, recipe, comms[rank], sharding);
            optimizer.add_group();
            auto w = recipe.weight(context, {200, 200}, ramp(40000));
            const int index = optimizer.add_param("w", w);
            optimizer.shard();
            for (int step = 0; step < 5; ++step) {
                auto gradient = ramp(40000);
                for (float& g : gradient)
                    g *= static_cast<float>(static_cast<int>(rank) + step);
                optimizer.acquire_grad(index);
                optimizer.grad(index).write(gradient);
                optimizer.grad_ready(index);
                optimizer.step();
            }
            comms[rank].barrier();
            weights[rank] = w.to_vector<float>();
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (const auto& one : weights)
        EXPECT_EQ(one, weights[0]);
    return weights[0];
}

} // namespace

TEST(Cpp, RanksAsThreadsAndOverAnOwnTransport) {
    const auto expected = train_on_ranks(mp::Comm::threads(2), 1);
    EXPECT_NE(expected, ramp(40000));
    EXPECT_EQ(train_on_ranks(mp::Comm::threads(2), 2), expected);
    auto wire = std::make_shared<Wire>();
    const std::weak_ptr<Wire> watched = wire;
    std::vector<mp::Comm> own;
    for (int rank = 0; rank < 2; ++rank)
        own.push_back(mp::Comm::over(std::make_shared<Threads>(wire, rank, 2), rank, 2));
    wire.reset();
    EXPECT_EQ(train_on_ranks(std::move(own), 1), expected);
    EXPECT_TRUE(watched.expired()) << "the transport must end with its last user";
}

TEST(Cpp, ASaveInTheBackgroundWantsRanksThatAnotherThreadMayUse) {
    for (const bool any_thread : {false, true}) {
        const Folder folder;
        auto wire = std::make_shared<Wire>();
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 2; ++rank) {
            threads.emplace_back([&, rank] {
                const auto context = mp::Context::create();
                const auto comm = mp::Comm::over(std::make_shared<Threads>(wire, rank, 2), rank, 2,
                                                 {}, any_thread ? MP_COMM_TAKES_ANY_THREAD : 0u);
                auto checkpoint = mp::Checkpoint::create(context, comm);
                std::int64_t data = 7;
                checkpoint.add_data("data", data);
                EXPECT_EQ(status_of([&] {
                              checkpoint.save(folder.path.string(), 1, MP_SAVE_BACKGROUND);
                          }),
                          any_thread ? MP_STATUS_OK : MP_STATUS_UNSUPPORTED);
                checkpoint.wait();
            });
        }
        for (std::thread& thread : threads)
            thread.join();
        EXPECT_EQ(std::filesystem::exists(folder.path), any_thread);
    }
}

TEST(Cpp, AnExceptionInATransportIsAStatus) {
    auto transport = std::make_shared<Threads>(std::make_shared<Wire>(), 0, 1);
    auto comm = mp::Comm::over(transport, 0, 1);
    transport->fail = true;
    EXPECT_LT(status_of([&] { comm.barrier(); }), 0);
    EXPECT_LT(status_of([&] { comm.status(); }), 0);
}

TEST(Cpp, RanksReduce) {
    auto comms = mp::Comm::threads(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            const auto context = mp::Context::create();
            mp::Comm& comm = comms[static_cast<std::size_t>(rank)];
            EXPECT_EQ(comm.rank(), rank);
            auto mine = mp::Tensor::from(
                context, std::vector<float>{1.0f, 2.0f + static_cast<float>(rank)}, {2});
            auto sum = mp::Tensor::create(context, MP_DTYPE_FP32, {2});
            comm.all_reduce({&mine}, sum);
            EXPECT_EQ(sum.to_vector<float>(), (std::vector<float>{2.0f, 5.0f}));
            auto part = mp::Tensor::create(context, MP_DTYPE_FP32, {1});
            comm.reduce_scatter({&mine}, std::vector<std::int64_t>{1, 1}, part);
            EXPECT_EQ(part.to_vector<float>()[0], rank == 0 ? 2.0f : 5.0f);
            EXPECT_EQ(status_of([&] {
                          comm.reduce_scatter({&mine}, std::vector<std::int64_t>{2}, part);
                      }),
                      MP_STATUS_INVALID_SHAPE);
            auto all = mp::Tensor::create(context, MP_DTYPE_FP32, {2});
            comm.all_gather(part, std::vector<std::int64_t>{1, 1}, all);
            EXPECT_EQ(all.to_vector<float>(), sum.to_vector<float>());
            std::array<std::uint32_t, 1> largest{static_cast<std::uint32_t>(rank)};
            comm.max(largest);
            EXPECT_EQ(largest[0], 1u);
            std::array<double, 1> word{rank == 1 ? 0.5 : 0.0};
            comm.broadcast(word, 1);
            EXPECT_EQ(word[0], 0.5);
            auto barrier = comm.begin_barrier();
            barrier.wait();
            EXPECT_TRUE(barrier.finished());
            EXPECT_EQ(comm.split(0, -rank).rank(), 1 - rank);
            EXPECT_GT(comm.traffic().total_bytes, 0);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_GT(mp::Comm::wire_bytes(128, MP_DTYPE_FP8_E4M3), 128);
}

TEST(Cpp, QueuesAndEventsOfAHost) {
    const auto context = mp::Context::create();
    auto queue = mp::Queue::create(context);
    auto event = mp::Event::create(context);
    auto tensor = mp::Tensor::create(context, MP_DTYPE_FP32, {4});
    tensor.zero(queue);
    event.record(queue);
    queue.wait(event);
    event.sync();
    EXPECT_TRUE(event.reached());
    queue.sync();
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::Queue::wrap(context, &context)); }),
              MP_STATUS_UNSUPPORTED);
    EXPECT_NE(context.describe().find("\"host\""), std::string::npos);
    EXPECT_GE(context.num_threads(), 1);
    EXPECT_EQ(mp::Context::device_name(MP_DEVICE_HOST), "host");
    EXPECT_EQ(mp::version(), static_cast<std::uint32_t>(MP_VERSION));
}

TEST(Cpp, HandlesMoveAndAMovedOneIsRefused) {
    const auto context = mp::Context::create();
    auto a = mp::Tensor::create(context, MP_DTYPE_FP32, {4});
    mp::Tensor b = std::move(a);
    EXPECT_FALSE(a); // NOLINT(bugprone-use-after-move): what is left behind is empty, and refused
    EXPECT_EQ(status_of([&] { a.zero(); }), MP_STATUS_NULL_ARGUMENT);
    b = mp::Tensor();
    EXPECT_FALSE(b);
    mp_tensor* raw = mp::Tensor::create(context, MP_DTYPE_FP32, {4}).release();
    EXPECT_EQ(mp::Tensor(raw).desc().shape[0], 4);
    EXPECT_EQ(status_of([&] { static_cast<void>(mp::Tensor(raw).desc()); }),
              MP_STATUS_INVALID_HANDLE)
        << "destroyed by the line above";
}

TEST(Cpp, DlpackGoesThroughWithoutACopy) {
    const auto context = mp::Context::create();
    auto tensor = mp::Tensor::from(context, ramp(6), {2, 3});
    auto back = mp::Tensor::from_dlpack(context, tensor.to_dlpack());
    EXPECT_EQ(back.data(), tensor.data());
    EXPECT_EQ(back.desc().ndim, 2);
}
