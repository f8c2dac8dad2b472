// SPDX-License-Identifier: Apache-2.0
// Every key of a recipe does something: the same small training under two values of it differs in the part that the key is
// about, and, where a key is about one product alone, in no other part of a layer.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <thread>

#include "layers.hpp"
#include "memory.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

using Text = std::string;

// What is compared. The first three are those of a layer whose sizes are multiples of 32; `odd` and `last` are forwards of one
// with multiples of 8 only, and of one made with MP_LINEAR_FIRST_OR_LAST, which is called "last".
struct Seen {
    std::map<Text, std::vector<double>> parts;
    void add(const char* part, double value) { parts[part].push_back(value); }
    void add(const char* part, const std::vector<float>& values) {
        parts[part].insert(parts[part].end(), values.begin(), values.end());
    }
};

std::string get(const mp_recipe* recipe, const char* key) {
    const char* text = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, key, &text)));
    return text;
}

// Of numbers or codes.
std::vector<float> numbers_of(mp_context* context, mp_tensor* tensor) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    if (mp_tensor_get_quant_desc(tensor, &quant) < 0) {
        return values_of(context, tensor);
    }
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(tensor, &desc)));
    const Tensor wide = make_tensor(context, MP_DTYPE_FP32, {desc.shape[0], desc.shape[1]});
    EXPECT_TRUE(succeeded(mp_tensor_dequantize(tensor, nullptr, wide)));
    return values_of(context, wide);
}

// One layer over a weight, and what its passes give.
struct Layer {
    Tensor weight;
    Linear linear;
    Tensor x, y, dy, dx;
    int64_t rows, in, out;

    Layer(mp_context* context, mp_recipe* recipe, Tensor w, int64_t columns, int64_t height,
          uint32_t flags, const char* name)
        : weight(std::move(w)), rows(32), in(columns), out(height) {
        mp_linear_desc desc = linear_desc(in, out, flags);
        desc.name = name;
        linear = make_noted_linear(context, recipe, desc, weight);
        y = make_tensor(context, MP_DTYPE_FP32, {rows, out});
        dx = make_tensor(context, MP_DTYPE_FP32, {rows, in});
    }
    // Whole numbers are scaled by a factor that falls from step to step, so that windows of amaxes matter.
    void forward(mp_context* context, int64_t step, uint64_t seed) {
        const float factor = 3.0F / static_cast<float>(step * step + 1);
        x = make_tensor(context, MP_DTYPE_FP32, {rows, in},
                        numbers(static_cast<std::size_t>(rows * in), seed, factor));
        dy = make_tensor(context, MP_DTYPE_FP32, {rows, out},
                         numbers(static_cast<std::size_t>(rows * out), seed + 1, 0.01F * factor));
        EXPECT_TRUE(done(mp_linear_forward(linear, nullptr, x, y)));
    }
};

// One rank of two: three layers over three parameters, and a vector kept in fp32.
class Trained {
  public:
    Trained(int32_t rank, Seen& seen) : rank_(rank), seen_(seen) {}

    void make(mp_comm* comm, const Text& json) {
        context_ = make_counted_context(&memory_);
        mp_recipe* raw_recipe = nullptr;
        const mp_status made =
            mp_recipe_create_from_json(context_, json.c_str(), SIZE_MAX, &raw_recipe);
        ASSERT_GE(made, 0) << json << ": " << mp_last_error_message();
        recipe_ = Recipe(raw_recipe);
        mp_optimizer_desc optimizer_desc = MP_OPTIMIZER_DESC_INIT;
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.kind = MP_SHARD_GREEDY;
        mp_optimizer* raw_optimizer = nullptr;
        ASSERT_TRUE(done(mp_optimizer_create_sharded(context_, recipe_, &optimizer_desc, comm,
                                                     &sharding, &raw_optimizer)));
        optimizer_ = Optimizer(raw_optimizer);
        ASSERT_TRUE(done(mp_optimizer_add_group(optimizer_, nullptr, &group_)));
        for (int32_t i = 0; i < 3; ++i) {
            ASSERT_NO_FATAL_FAILURE(add_layer(i));
        }
        bias_ = make_tensor(context_, MP_DTYPE_FP32, {5000}, numbers(5000, 9));
        MP_OK(add_param(optimizer_, group_, "bias", bias_));
        MP_OK(mp_optimizer_shard(optimizer_, nullptr));
        std::vector<mp_linear*> all;
        for (const Layer& layer : layers_) {
            all.push_back(layer.linear);
        }
        MP_OK(mp_optimizer_set_linears(optimizer_, all.data(), 3));
    }

    void step(int64_t step) {
        for (int32_t i = 0; i < 3; ++i) {
            Layer& layer = layers_[static_cast<std::size_t>(i)];
            layer.forward(context_, step, 100 + static_cast<uint64_t>(10 * i + 1000 * rank_));
            const Tensor grad = state_of(optimizer_, i, "grad");
            MP_OK(mp_linear_backward(layer.linear, nullptr, layer.dy, layer.dx, grad, nullptr, 0));
            if (rank_ != 0) {
                continue;
            }
            seen_.add(kForward[i], values_of(context_, layer.y));
            if (i == 0) {
                seen_.add("dx", values_of(context_, layer.dx));
                seen_.add("dw", numbers_of(context_, grad));
            }
        }
        mp_comm_traffic before = MP_COMM_TRAFFIC_INIT, after = MP_COMM_TRAFFIC_INIT;
        MP_OK(mp_optimizer_get_traffic(optimizer_, &before));
        ASSERT_TRUE(done(mp_optimizer_step(optimizer_, nullptr, nullptr)));
        MP_OK(mp_optimizer_get_traffic(optimizer_, &after));
        if (rank_ == 0) {
            seen_.add("wire", static_cast<double>(after.total_bytes - before.total_bytes));
        }
    }

    void look() {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        MP_OK(mp_optimizer_get_memory(optimizer_, &report));
        if (rank_ == 0) {
            seen_.add("weights", static_cast<double>(report.weight_bytes));
            seen_.add("masters", static_cast<double>(report.master_bytes));
            seen_.add("gradients", static_cast<double>(report.grad_bytes));
            seen_.add("first", static_cast<double>(report.state_bytes[MP_STATE_EXP_AVG]));
            seen_.add("second", static_cast<double>(report.state_bytes[MP_STATE_EXP_AVG_SQ]));
            seen_.add("compensations", static_cast<double>(report.compensation_bytes));
            seen_.add("stepped", numbers_of(context_, layers_[0].weight));
            seen_.add("memory", static_cast<double>(memory_.live));
        }
    }

  private:
    // Names of the layers, and of what they give.
    static constexpr const char* kForward[] = {"y", "odd", "last"};

    void add_layer(int32_t i) {
        const struct {
            int64_t in, out;
            uint32_t flags;
        } sizes[] = {{96, 64, 0}, {24, 40, 0}, {64, 64, MP_LINEAR_FIRST_OR_LAST}};
        const auto& s = sizes[i];
        const int64_t shape[] = {s.out, s.in};
        const std::vector<float> values =
            numbers(static_cast<std::size_t>(s.out * s.in), 5 + static_cast<uint64_t>(i), 0.3F);
        const bool is_codes = i == 0 && get(recipe_, MP_RECIPE_WEIGHT_GATHER_CODES) == "on";
        mp_tensor* raw = nullptr;
        MP_OK((is_codes ? mp_recipe_create_weight_codes : mp_recipe_create_weight)(
            context_, recipe_, 2, shape, values.data(), &raw));
        Tensor weight(raw);
        kept_.push_back(make_tensor(context_, MP_DTYPE_FP32, {s.out, s.in}, values));
        const Text name = "w" + std::to_string(i);
        MP_OK(add_param(optimizer_, group_, name.c_str(), weight, nullptr, kept_.back()));
        layers_.emplace_back(context_, recipe_, std::move(weight), s.in, s.out, s.flags,
                             kForward[i]);
    }

    int32_t rank_;
    Seen& seen_;
    Counter memory_;
    Context context_;
    Recipe recipe_;
    Optimizer optimizer_;
    int32_t group_ = 0;
    std::vector<Layer> layers_;
    std::vector<Tensor> kept_;
    Tensor bias_;
};

void train(mp_comm* comm, int32_t rank, const Text& json, Seen& seen) {
    Trained trained(rank, seen);
    ASSERT_NO_FATAL_FAILURE(trained.make(comm, json));
    for (int64_t step = 0; step < 5; ++step) {
        ASSERT_NO_FATAL_FAILURE(trained.step(step));
    }
    trained.look();
}

// What a loss scale does over steps of which some overflow.
void scale(const Text& json, Seen& seen) {
    const Context context = make_context(1);
    mp_recipe* raw_recipe = nullptr;
    ASSERT_GE(mp_recipe_create_from_json(context, json.c_str(), SIZE_MAX, &raw_recipe), 0)
        << mp_last_error_message();
    const Recipe recipe(raw_recipe);
    mp_scaler* raw = nullptr;
    MP_OK(mp_scaler_create_from_recipe(context, recipe, &raw));
    const Scaler scaler(raw);
    for (const char event : Text("....xx.x...x.....xxxxxx......")) {
        const float grad = event == 'x' ? INFINITY : 1.0F;
        const void* grads[] = {&grad};
        const int32_t dtype = MP_DTYPE_FP32;
        const int64_t one = 1;
        MP_OK(mp_scaler_check_pointers(scaler, nullptr, 1, grads, &dtype, &one));
        MP_OK(mp_scaler_update(scaler, nullptr));
        double now = 0;
        MP_OK(mp_scaler_get_scale(scaler, nullptr, &now));
        seen.add("scale", now);
        mp_scaler_state state = MP_SCALER_STATE_INIT;
        seen.add("at_min", mp_scaler_get_state(scaler, nullptr, &state));
    }
}

Seen seen_under(const Text& json, bool is_scaler) {
    Seen seen;
    if (is_scaler) {
        scale(json, seen);
        return seen;
    }
    mp_comm* raw[2] = {};
    EXPECT_TRUE(succeeded(mp_comm_create_threads(nullptr, 2, raw)));
    std::vector<std::thread> ranks;
    for (int32_t rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank, comm = Comm(raw[rank])] { train(comm, rank, json, seen); });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    return seen;
}

struct Row {
    const char* key;
    const char* others; // of the recipe, as JSON without braces
    const char* one;    // two values, as JSON
    const char* other;
    const char* part;      // that differs
    const char* same = ""; // parts that do not, with spaces between
};

const Row kRows[] = {
    {"gemm.fprop.dtype", R"("recipe": "fp32")", R"("fp32")", R"("bf16")", "y", "dx dw"},
    {"gemm.dgrad.dtype", R"("recipe": "fp32")", R"("fp32")", R"("fp16")", "dx", "y dw"},
    {"gemm.wgrad.dtype", R"("recipe": "fp32")", R"("fp32")", R"("bf16")", "dw"},
    {"weight.dtype", R"("recipe": "bf16_mixed")", R"("fp32")", R"("bf16")", "weights"},
    {"master.dtype", R"("recipe": "bf16_mixed_dual")", R"("fp32")", R"("remainder16")", "masters",
     "weights first second"},
    {"grad.dtype", R"("recipe": "bf16_mixed_dual")", R"("fp32")", R"("bf16")", "gradients",
     "weights first second"},
    {"grad.reduce.dtype", R"("recipe": "fp16_mixed")", R"("fp32")", R"("fp16")", "wire", "weights"},
    {"grad.reduce.dtype", R"("recipe": "msamp_o2")", R"("fp32")", R"("fp8_e4m3")", "wire"},
    {"grad.reduce.scale", R"("recipe": "bf16_mixed", "grad.reduce.dtype": "fp8_e4m3")",
     R"("shared")", R"("block")", "wire"},
    {"grad.reduce.scale", R"("recipe": "bf16_mixed", "grad.reduce.dtype": "fp8_e4m3")", R"("mx")",
     R"("block")", "stepped"},
    {"weight.gather.dtype", R"("recipe": "bf16_mixed")", R"("fp32")", R"("bf16")", "wire"},
    {"optimizer.exp_avg.dtype", R"("recipe": "bf16_mixed")", R"("fp32")", R"("bf16")", "first",
     "second weights"},
    {"optimizer.exp_avg_sq.dtype", R"("recipe": "bf16_mixed")", R"("fp32")", R"("fp16")", "second",
     "first weights"},
    {"optimizer.compensation.dtype", R"("recipe": "bf16_pure")", R"("none")", R"("bf16")",
     "compensations", "first second weights"},
    {"optimizer.block_min_elements",
     R"("recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "int8_block256")", "4096", "1000000",
     "first", "second weights"},
    {"optimizer.weight.rounding", R"("recipe": "bf16_pure")", R"("nearest")", R"("stochastic")",
     "stepped"},
    {"optimizer.exp_avg.rounding", R"("recipe": "bf16_pure")", R"("nearest")", R"("stochastic")",
     "stepped"},
    {"optimizer.exp_avg_sq.rounding", R"("recipe": "bf16_pure")", R"("nearest")", R"("stochastic")",
     "stepped"},
    {"gemm.scaling", R"("recipe": "fp8_current")", R"("none")", R"("tensorwise")", "y"},
    {"fp8.format", R"("recipe": "fp8_current")", R"("hybrid")", R"("e4m3")", "dx"},
    // Transformer Engine's override_linear_precision.
    {"gemm.fprop.quantized", R"("recipe": "fp8_current")", R"("on")", R"("off")", "y"},
    {"gemm.dgrad.quantized", R"("recipe": "fp8_current")", R"("on")", R"("off")", "dx", "y dw"},
    {"gemm.wgrad.quantized", R"("recipe": "fp8_current")", R"("on")", R"("off")", "dw"},
    {"gemm.input.rounding", R"("recipe": "fp8_current")", R"("nearest")", R"("stochastic")", "y",
     "dx"},
    {"gemm.input.rounding", R"("recipe": "fp8_rowwise")", R"("nearest")", R"("stochastic")", "dw",
     "dx"},
    {"gemm.weight.rounding", R"("recipe": "fp8_current")", R"("nearest")", R"("stochastic")", "y",
     "dw"},
    {"gemm.weight.rounding", R"("recipe": "fp8_rowwise")", R"("nearest")", R"("stochastic")", "dx",
     "dw"},
    {"gemm.grad_output.rounding", R"("recipe": "fp8_current")", R"("nearest")", R"("stochastic")",
     "dx", "y"},
    {"gemm.grad_output.rounding", R"("recipe": "fp8_rowwise")", R"("nearest")", R"("stochastic")",
     "dw", "y"},
    {"gemm.scale_rule", R"("recipe": "fp8_current")", R"("current")", R"("msamp")", "y"},
    {"gemm.power_of_two_scale", R"("recipe": "fp8_current")", R"("off")", R"("on")", "y"},
    {"gemm.amax_epsilon", R"("recipe": "fp8_current")", "0", "1000", "y"},
    {"gemm.margin", R"("recipe": "fp8_delayed")", "0", "12", "y"},
    {"gemm.interval", R"("recipe": "fp8_delayed", "gemm.amax_history_len": 1)", "1", "3", "y"},
    {"gemm.amax_history_len", R"("recipe": "fp8_delayed")", "1", "1024", "y"},
    {"gemm.amax_compute_algo", R"("recipe": "fp8_delayed")", R"("max")", R"("most_recent")", "y"},
    {"gemm.warm_up", R"("recipe": "fp8_delayed")", "0", "3", "y"},
    {"gemm.reduce_amax", R"("recipe": "fp8_delayed")", R"("on")", R"("off")", "y"},
    {"weight.gather.codes", R"("recipe": "fp8_current")", R"("off")", R"("on")", "wire"},
    {"gemm.weight_copy", R"("recipe": "fp8_current")", R"("keep")", R"("recompute")", "memory",
     "y dx dw"},
    {"gemm.filter.multiple_of", R"("recipe": "fp8_current")", "16", "8", "odd"},
    {"gemm.filter.first_last", R"("recipe": "fp8_current")", R"("off")", R"("on")", "last"},
    {"gemm.filter.size", R"("recipe": "fp8_current")", R"("none")", R"("auto")", "y"},
    {"layers", R"("recipe": "fp8_current")", R"("h*,lm_")", R"("h*,l?st*")", "last"},
    {"scaler.kind", R"("recipe": "fp16_mixed")", R"("static")", R"("dynamic")", "scale"},
    {"scaler.init_scale", R"("recipe": "fp16_mixed")", "65536", "1024", "scale"},
    {"scaler.growth_factor", R"("recipe": "fp16_mixed", "scaler.growth_interval": 2)", "2", "4",
     "scale"},
    {"scaler.backoff_factor", R"("recipe": "fp16_mixed")", "0.5", "0.25", "scale"},
    {"scaler.growth_interval", R"("recipe": "fp16_mixed")", "2", "2000", "scale"},
    {"scaler.hysteresis", R"("recipe": "fp16_mixed")", "1", "2", "scale"},
    {"scaler.hysteresis_refill", R"("recipe": "fp16_mixed", "scaler.hysteresis": 2)", R"("growth")",
     R"("good_step")", "scale"},
    {"scaler.min_scale", R"("recipe": "fp16_mixed")", "0", "16384", "scale"},
    {"scaler.max_scale", R"("recipe": "fp16_mixed", "scaler.growth_interval": 2)", "0", "65536",
     "scale"},
    {"scaler.at_min", R"("recipe": "fp16_mixed", "scaler.min_scale": 16384)", R"("clamp")",
     R"("error")", "at_min"},
    {"scaler.count_offset", R"("recipe": "fp16_mixed", "scaler.growth_interval": 2)", "0", "1",
     "scale"},
};

} // namespace

class RecipeEffects : public ::testing::TestWithParam<Row> {};

TEST_P(RecipeEffects, TwoValuesDoDifferentThings) {
    const Row& row = GetParam();
    const bool is_scaler = Text(row.key).starts_with("scaler.");
    const auto json = [&](const char* value) {
        return "{" + Text(row.others) + ", \"" + row.key + "\": " + value + "}";
    };
    const Seen one = seen_under(json(row.one), is_scaler);
    const Seen other = seen_under(json(row.other), is_scaler);
    ASSERT_TRUE(one.parts.contains(row.part) && other.parts.contains(row.part)) << row.part;
    EXPECT_NE(one.parts.at(row.part), other.parts.at(row.part)) << row.part;
    Text names = row.same;
    while (!names.empty()) {
        const std::size_t end = std::min(names.find(' '), names.size());
        const Text name = names.substr(0, end);
        std::vector<double> a = one.parts.at(name);
        std::vector<double> b = other.parts.at(name);
        if (name == "y" || name == "dx" || name == "dw") { // before the weights part
            a.resize(a.size() / 5);
            b.resize(b.size() / 5);
        }
        EXPECT_EQ(a, b) << name << " has nothing to do with " << row.key;
        names.erase(0, end + 1);
    }
}

INSTANTIATE_TEST_SUITE_P(Keys, RecipeEffects, ::testing::ValuesIn(kRows), [](const auto& test) {
    Text name = std::to_string(test.index) + "_" + test.param.key;
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
});

TEST(RecipeEffectsTable, HasEveryKey) {
    // Read by the GPU's products alone (backends/cuda/fp8_plan.cpp): a host sums in fp32 always.
    std::set<Text> keys = {"gemm.fast_accumulation"};
    for (const Row& row : kRows) {
        keys.insert(row.key);
    }
    EXPECT_EQ(keys.size(), static_cast<std::size_t>(mp_recipe_key_count()));
    for (int32_t i = 0; i < mp_recipe_key_count(); ++i) {
        mp_recipe_key_desc key{};
        key.struct_size = sizeof key;
        MP_OK(mp_recipe_get_key_info(i, &key));
        EXPECT_TRUE(keys.contains(key.name)) << key.name << " shows no effect in any test";
    }
}
