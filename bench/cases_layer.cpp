// SPDX-License-Identifier: Apache-2.0
// A layer's three products and all that is rounded for them, forward and backward, against the same layer in bf16.
#include "report.hpp"

namespace mp_bench {
namespace {

struct LayerShape {
    int64_t rows, in, out;
};

class Layer {
  public:
    Layer(mp_context* context, const char* recipe, const LayerShape& s) {
        check(mp_recipe_create(context, recipe, &recipe_));
        const char* weight = nullptr;
        check(mp_recipe_get_string(recipe_, MP_RECIPE_WEIGHT_DTYPE, &weight));
        const int32_t dtype = weight[0] == 'b' ? MP_DTYPE_BF16 : MP_DTYPE_FP32;
        w_ = make_numbers(context, dtype, {s.out, s.in});
        x_ = make_numbers(context, MP_DTYPE_BF16, {s.rows, s.in});
        dy_ = make_numbers(context, MP_DTYPE_BF16, {s.rows, s.out});
        y_ = make_tensor(context, MP_DTYPE_BF16, {s.rows, s.out});
        dx_ = make_tensor(context, MP_DTYPE_BF16, {s.rows, s.in});
        dw_ = make_tensor(context, MP_DTYPE_FP32, {s.out, s.in});
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = s.in;
        desc.out_features = s.out;
        check(mp_linear_create(context, recipe_, &desc, w_, nullptr, &linear_));
    }
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;
    ~Layer() {
        mp_linear_destroy(linear_);
        for (mp_tensor* tensor : {w_, x_, y_, dy_, dx_, dw_}) {
            mp_tensor_destroy(tensor);
        }
        mp_recipe_destroy(recipe_);
    }

    void run() {
        check(mp_linear_forward(linear_, nullptr, x_, y_));
        check(mp_linear_backward(linear_, nullptr, dy_, dx_, dw_, nullptr, 0));
        check(mp_linear_end_step(&linear_, 1, nullptr, nullptr));
    }

  private:
    mp_recipe* recipe_ = nullptr;
    mp_linear* linear_ = nullptr;
    mp_tensor* w_ = nullptr;
    mp_tensor* x_ = nullptr;
    mp_tensor* y_ = nullptr;
    mp_tensor* dy_ = nullptr;
    mp_tensor* dx_ = nullptr;
    mp_tensor* dw_ = nullptr;
};

constexpr const char* kReference = "bf16_pure";
constexpr const char* kRecipes[] = {"fp32",        "bf16_mixed",  "fp8_delayed",
                                    "fp8_current", "fp8_rowwise", "fp8_rowwise_gw_hp",
                                    "fp8_block",   "mxfp8"};

std::vector<LayerShape> shapes(const Options& options) {
    if (options.brief) {
        return {{64, 96, 64}};
    }
    if (options.device == MP_DEVICE_HOST) {
        return {{2048, 384, 1536}, {2048, 1024, 1024}};
    }
    return {{1024, 2048, 1024}, {4096, 8192, 16384}, {8192, 8192, 8192}};
}

} // namespace

std::vector<Row> layer_rows(mp_context* context, const Options& options) {
    std::vector<Row> rows;
    for (const LayerShape& s : shapes(options)) {
        for (const char* recipe : kRecipes) {
            const std::string name = std::string("layer ") + recipe + " " + std::to_string(s.rows) +
                                     " rows, " + std::to_string(s.in) + " to " +
                                     std::to_string(s.out);
            if (!is_wanted(options, name)) {
                continue;
            }
            add_row(rows, name, [&]() -> Row {
                Layer ours(context, recipe, s);
                Layer reference(context, kReference, s);
                const double operations = 6.0 * static_cast<double>(s.rows) *
                                          static_cast<double>(s.in) * static_cast<double>(s.out);
                const Comparison times = compare(
                    {std::string("layer ") + kReference, [&] { reference.run(); }},
                    [&] { ours.run(); }, options.turns);
                return {name, times, operations, "GFLOP/s"};
            });
        }
    }
    return rows;
}

} // namespace mp_bench
