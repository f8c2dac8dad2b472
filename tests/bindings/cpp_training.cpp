// SPDX-License-Identifier: Apache-2.0
// mixedprec.hpp with exceptions: layers, optimizers, scalers and checkpoints, and who keeps what alive.
#include "cpp.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

TEST(Cpp, LayersByTensorsBySavedHandlesAndOnPlainMemoryAgree) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp8_current");
    const auto w = ramp(32 * 16), x = ramp(16 * 16), dy = ramp(16 * 32);
    auto weight = recipe.weight(context, {32, 16}, w);
    auto one = mp::Linear::create(context, recipe, 16, 32, weight);
    auto tx = mp::Tensor::from(context, x, {16, 16}), tdy = mp::Tensor::from(context, dy, {16, 32});
    auto y = zeros(context, {16, 32}), dx = zeros(context, {16, 16});
    auto dw = zeros(context, {32, 16});
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
    EXPECT_EQ(status_of([&] { return mp::Linear::over(context, recipe, 16, 31, w); }),
              MP_STATUS_INVALID_SHAPE);

    auto saved = one.make_saved(), other = one.make_saved();
    auto y2 = zeros(context, {16, 32}), dw2 = zeros(context, {32, 16});
    one.forward(tx, y2, saved);
    one.forward(y2.view(0, {16, 16}), zeros(context, {16, 32}), other);
    one.backward(saved, tdy, dx, dw2);
    EXPECT_EQ(dw2.to_vector<float>(), pdw);
    EXPECT_GT(one.saved_bytes(16), 0u);
    EXPECT_EQ(one.operand_format(MP_PRODUCT_FPROP, MP_OPERAND_INPUT).dtype, MP_DTYPE_FP8_E4M3);
    EXPECT_NE(one.describe().find("fp8"), std::string::npos);
    auto filtered = recipe.clone();
    filtered.set(MP_RECIPE_LAYERS, "lm_*");
    EXPECT_EQ(filtered.for_layer("lm_head").get_string(MP_RECIPE_GEMM_SCALING), "none");
    EXPECT_NE(filtered.for_layer("h0").get_string(MP_RECIPE_GEMM_SCALING), "none");
    EXPECT_NE(filtered.for_param("lm_head").get_string(MP_RECIPE_GEMM_SCALING), "none");
    const auto head = mp::Linear::create(context, filtered, 16, 32, weight, nullptr, 0, "lm_head");
    EXPECT_EQ(head.operand_format(MP_PRODUCT_FPROP, MP_OPERAND_INPUT).dtype, MP_DTYPE_BF16);
}

TEST(Cpp, Adapters) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp32");
    const auto weight = mp::Tensor::from(context, ramp(6), {2, 3});
    auto layer = mp::Linear::create(context, recipe, 3, 2, weight, nullptr, MP_LINEAR_FROZEN, "l");
    const auto a = mp::Tensor::from(context, ramp(3), {1, 3}),
               b = mp::Tensor::from(context, ramp(2), {2, 1}),
               x = mp::Tensor::from(context, ramp(3), {1, 3});
    auto da = zeros(context, {1, 3}), db = zeros(context, {2, 1}), y = zeros(context, {1, 2});
    mp::AdapterOptions options;
    options.alpha = 2;
    auto adapter = mp::Adapter::create(layer, recipe, a, b, options);
    adapter.set_grads(da, db);
    layer.forward(x, y);
    const auto adapted = y.to_vector<float>();
    layer.backward(y, nullptr, nullptr);
    EXPECT_NE(db.to_vector<float>(), std::vector<float>(2));
    adapter.set_active(false);
    EXPECT_FALSE(adapter.is_active());
    layer.forward(x, y);
    EXPECT_NE(y.to_vector<float>(), adapted);
    EXPECT_EQ(adapter.options().rank, 1);
    EXPECT_NE(adapter.layers().a.describe().find("[1, 3]"), std::string::npos);
    adapter.set_active(true);
    auto magnitude = zeros(context, {2}), merged = zeros(context, {2, 3});
    adapter.set_magnitude(magnitude);
    adapter.init_magnitude();
    mp::MergeReport report;
    mp::merge_adapters(layer, merged, 0, 0, &report);
    EXPECT_EQ(report.elements, 6);
    const std::vector<float> pa = ramp(3), pb = ramp(2);
    mp::AdapterOptions plain;
    plain.rank = 1;
    plain.name = "plain";
    EXPECT_TRUE(mp::Adapter::over(layer, recipe, plain, pa, pb).is_active());
    plain.rank = 2;
    EXPECT_EQ(status_of([&] { return mp::Adapter::over(layer, recipe, plain, pa, pb); }),
              MP_STATUS_INVALID_SHAPE);
}

TEST(Cpp, AMonitorEndsWithItsLayerAndItsExceptionsAreCaught) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp8_delayed");
    auto weight = recipe.weight(context, {16, 16}, ramp(256));
    auto optimizer = optimizer_of(context, recipe);
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
    auto y = zeros(context, {16, 16});
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
        auto made =
            optimizer_of(context, mp::Recipe::create(context, "fp32"), MP_OPTIMIZER_CHECK_FINITE);
        made.add_param("p", zeros(context, {4}));
        return made;
    }();
    const int before = *lines;
    optimizer.grad(0).write(std::vector<float>{0.0f, INFINITY, 0.0f, 0.0f});
    optimizer.step();
    EXPECT_EQ(optimizer.stats().found_inf, 1u);
    EXPECT_GT(*lines, before) << "a skipped step is told of";
    const std::int32_t unused[] = {0};
    optimizer.mark_unused(unused);
    optimizer.step();
    EXPECT_EQ(optimizer.stats().found_inf, 0u);
    optimizer.set_frozen(unused);
    EXPECT_TRUE(optimizer.frozen(0));
    optimizer.set_frozen(unused, false);
    EXPECT_EQ(optimizer.grad(0).to_vector<float>(), std::vector<float>(4));
    const auto context = mp::Context::create();
    auto grown = optimizer_of(context, mp::Recipe::create(context, "fp32"));
    auto a = zeros(context, {4}), b = zeros(context, {2});
    EXPECT_EQ(grown.add_params(0, {{"a", a}, {"b", b, {nullptr, nullptr, MP_PARAM_FROZEN}}}), 0);
    EXPECT_TRUE(!grown.frozen(0) && grown.frozen(1));
}

namespace {

// One parameter with all that a training has beside it.
struct Training {
    Training(const mp::Context& context, const mp::Recipe& recipe)
        : scaler(mp::Scaler::create(context, recipe)),
          optimizer(mp::Optimizer::create(context, recipe)),
          checkpoint(mp::Checkpoint::create(context, nullptr, 2,
                                            [this](std::int64_t, std::int64_t) { ++progress; })) {
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

} // namespace

TEST(Cpp, OptimizersScalersAndCheckpointsGoOnWhereTheyStopped) {
    const Folder folder;
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp16_mixed");
    Training first(context, recipe);
    first.step(1.0f), first.step(INFINITY), first.step(0.5f);
    EXPECT_EQ(first.optimizer.stats().skipped_steps, 1);
    first.checkpoint.save(folder.path.string(), 3, MP_SAVE_BACKGROUND);
    first.checkpoint.wait();
    EXPECT_TRUE(first.checkpoint.finished());
    EXPECT_GT(first.progress, 0);
    first.step(1.0f);

    Training second(context, recipe);
    EXPECT_EQ(mp::Checkpoint::inspect(folder.path.string()).step, 3);
    EXPECT_EQ(second.checkpoint.load(folder.path.string()).tensor_count,
              mp::Checkpoint::inspect(folder.path.string()).tensor_count);
    EXPECT_EQ(second.data, 3);
    second.step(1.0f);
    EXPECT_EQ(second.scaler.scale(), first.scaler.scale());
    EXPECT_EQ(second.scaler.state().overflow_steps, 1);
    auto a = zeros(context, {8, 8}), b = zeros(context, {8, 8});
    for (const char* state : {"fp32_param", "exp_avg", "exp_avg_sq"}) {
        first.optimizer.read_state(0, state, a);
        second.optimizer.read_state(0, state, b);
        EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>()) << state;
    }
    EXPECT_EQ(first.optimizer.group(0).lr, 0.5);
    EXPECT_EQ(first.optimizer.param_name(0), "w");
    EXPECT_EQ(first.optimizer.memory().parameter_count, 64);
    EXPECT_EQ(first.optimizer.offload_traffic().steps, 0);
    EXPECT_NE(mp::Checkpoint::describe(folder.path.string()).find("step"), std::string::npos);
    first.checkpoint.export_weights((folder.path / "w.safetensors").string());
    EXPECT_EQ(status_of([&] {
                  first.checkpoint.export_weights((folder.path / "w.safetensors").string());
              }),
              MP_STATUS_IO_ERROR);
}

TEST(Cpp, FirstValuesByRulesAndByAFunction) {
    const mp::Context context = mp::Context::create();
    const mp::Recipe recipe = mp::Recipe::create(context, "fp32");
    mp::Optimizer optimizer = mp::Optimizer::create(context, recipe);
    (void)optimizer.add_group();
    const mp::Tensor w = mp::Tensor::deferred(context, MP_DTYPE_FP32, {10});
    (void)optimizer.add_param("w", w);
    EXPECT_THROW(optimizer.step(), mp::Error); // it has no values
    mp_param_init init = MP_PARAM_INIT_INIT;
    init.kind = MP_INIT_NORMAL;
    init.b = 1.0;
    optimizer.init_params(1, mp::span<const mp_param_init>(&init, 1));
    std::vector<float> values(10);
    w.read(values);
    EXPECT_EQ(values[0], -0x1.a835f2p-4F);
    EXPECT_EQ(values[9], -0x1.79ccf8p-1F);
    const std::int32_t indices[] = {0};
    optimizer.fill_params(indices, [](int, std::int64_t first, mp::span<float> to) -> mp_status {
        for (std::size_t i = 0; i < to.size(); ++i)
            to.data()[i] = static_cast<float>(first) + static_cast<float>(i);
        return MP_STATUS_OK;
    });
    w.read(values);
    EXPECT_EQ(values[9], 9.0F);
    const auto throws = [](int, std::int64_t, mp::span<float>) -> mp_status {
        throw std::runtime_error("lost");
    };
    EXPECT_THROW(optimizer.fill_params(indices, throws), mp::Error);
    std::vector<float> memory(10, 7.0F); // named in advance
    mp_tensor_desc desc = w.desc();
    desc.flags = MP_TENSOR_DEFERRED;
    const mp::Tensor later = mp::Tensor::wrap_pointer(context, memory.data(), desc);
    EXPECT_EQ(status_of([&] { return later.data(); }), MP_STATUS_BAD_STATE);
    (void)optimizer.add_param("later", later);
    EXPECT_EQ(later.data(), memory.data());
    EXPECT_EQ(memory[3], 0.0F);
}

TEST(Cpp, ScalersByPreset) {
    const auto context = mp::Context::create();
    EXPECT_EQ(status_of([&] { return mp::Scaler::preset("torhc"); }), MP_STATUS_UNKNOWN_NAME);
    EXPECT_EQ(mp::Scaler::create(context, mp::Scaler::preset("megatron")).scale(), 4294967296.0);
}

TEST(Cpp, AGuardAndAHistoryWatchTheSteps) {
    const Folder folder;
    std::filesystem::create_directory(folder.path);
    const std::string path = (folder.path / "steps.json").string();
    const auto context = mp::Context::create();
    auto optimizer =
        optimizer_of(context, mp::Recipe::create(context, "fp32"), MP_OPTIMIZER_CHECK_FINITE);
    const int index = optimizer.add_param("w", zeros(context, {4}));
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
    EXPECT_EQ(status_of([&] { return optimizer.record(5); }), MP_STATUS_INVALID_ARGUMENT);
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
