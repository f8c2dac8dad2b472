// SPDX-License-Identifier: Apache-2.0
// Whole layers against code that is not ours (tests/fixtures/make_layers.py): Transformer Engine, torchao and DeepGEMM give
// the codes and scales of every operand, which must be ours to the bit. The three products are then sums over known codes.
// They must be those in double within the roundings of one fp32 sum, and as near to the oracle's own results.
//
// No difference is left to be allowed: recipes have the oracle's rule (gemm.scale_rule float64 for torchao, current for
// Transformer Engine's blocks) and its first step (gemm.warm_up 0). What would differ by design is not among the inputs:
// infinities and NaN; MX blocks whose amax is just above 1.75 * 2^k; amaxes so small that 448 / amax is infinite, for which
// Transformer Engine's references take the largest number of the input's type.
#include <array>
#include <cmath>
#include <map>

#include "fixture_arrays.hpp"
#include "layers.hpp"

using namespace mp_test;

namespace {

constexpr double kU = 0x1p-24;

struct OperandCodes {
    Array codes;
    Array scales; // none: the codes are the values

    [[nodiscard]] double at(int64_t row, int64_t column) const {
        const double code = codes.at(row, column);
        if (scales.dtype == MP_DTYPE_NONE) {
            return code;
        }
        return code * scales.at(block(row, codes.rows, scales.rows),
                                block(column, codes.columns, scales.columns));
    }

  private:
    static int64_t block(int64_t index, int64_t size, int64_t count) {
        if (count == 1 || count == size) {
            return count == 1 ? 0 : index;
        }
        return index / ((size + 31) / 32 == count ? 32 : 128);
    }
};

constexpr int kProducts = 3;
constexpr const char* kResults[kProducts] = {"y", "dx", "dw"}; // by MP_PRODUCT_*
constexpr const char* kInputs[MP_OPERAND_COUNT] = {"x", "w", "dy"};
constexpr std::array<int32_t, 2> kOperands[kProducts] = {
    {MP_OPERAND_INPUT, MP_OPERAND_WEIGHT},
    {MP_OPERAND_GRAD_OUTPUT, MP_OPERAND_WEIGHT},
    {MP_OPERAND_GRAD_OUTPUT, MP_OPERAND_INPUT}};

struct Step {
    std::map<std::string, Array> inputs;
    std::map<std::pair<int, int>, OperandCodes> operands; // by product and operand
    std::map<std::string, Array> sums;                    // every stride-th row
    int64_t stride = 1;
    std::map<std::string, Array> theirs;
};

struct LayerCase {
    std::string name, oracle, recipe;
    std::vector<Step> steps;
};

struct Nvfp4Case {
    std::string name;
    Array source, codes, scales;
};

Step read_step(const FixtureFile& file, const std::string& place) {
    Step step;
    step.stride = std::stoll(file.fact("stride"));
    for (const char* input : kInputs) {
        step.inputs[input] = array_in(file, place + input);
    }
    for (int product = 0; product < kProducts; ++product) {
        for (const int32_t operand : kOperands[product]) {
            const std::string at =
                place + std::to_string(product) + "/" + std::to_string(operand) + "/";
            OperandCodes& codes = step.operands[{product, operand}];
            codes.codes = array_in(file, at + "codes");
            if (file.has(at + "scales")) {
                codes.scales = array_in(file, at + "scales");
            }
        }
        const std::string result = kResults[product];
        step.sums[result] = array_in(file, place + "sum/" + result);
        if (file.has(place + "theirs/" + result)) {
            step.theirs[result] = array_in(file, place + "theirs/" + result);
        }
    }
    return step;
}

struct Fixture {
    std::vector<LayerCase> layers;
    std::vector<Nvfp4Case> nvfp4;

    Fixture() {
        const FixtureFile file("layers");
        for (const auto& [name, words] : file.facts("layer")) {
            const std::size_t space = words.find(' ');
            LayerCase layer{name, words.substr(0, space), words.substr(space + 1), {}};
            while (file.has(name + "/" + std::to_string(layer.steps.size()) + "/x")) {
                layer.steps.push_back(
                    read_step(file, name + "/" + std::to_string(layer.steps.size()) + "/"));
            }
            layers.push_back(layer);
        }
        for (const auto& [name, words] : file.facts("nvfp4")) {
            const std::string place = "nvfp4/" + name;
            nvfp4.push_back({name, array_in(file, place + "/source"),
                             array_in(file, place + "/codes"), array_in(file, place + "/scales")});
        }
    }
};

const Fixture& fixture() {
    static const Fixture instance;
    return instance;
}

Tensor tensor_of(mp_context* context, const Array& array) {
    Tensor tensor = make_tensor(context, array.dtype, {array.rows, array.columns});
    EXPECT_TRUE(
        succeeded(mp_tensor_write(tensor, nullptr, array.bytes.data(), array.bytes.size())));
    return tensor;
}

// Half a last place of a result, and half its smallest number.
double rounding(int32_t dtype, double value) {
    return dtype == MP_DTYPE_BF16 ? 0x1p-8 * std::abs(value) + 0x1p-134
                                  : kU * std::abs(value) + 0x1p-150;
}

// An element of a product in double, over the oracle's codes.
struct Sum {
    double value = 0.0;
    double magnitude = 0.0;
};

Sum sum_of(const OperandCodes& a, const OperandCodes& b, int product, int64_t row, int64_t column,
           int64_t depth) {
    Sum sum;
    for (int64_t k = 0; k < depth; ++k) {
        const double left = product == MP_PRODUCT_WGRAD ? a.at(k, row) : a.at(row, k);
        const double right = product == MP_PRODUCT_FPROP ? b.at(column, k) : b.at(k, column);
        sum.value += left * right;
        sum.magnitude += std::abs(left * right);
    }
    return sum;
}

// A product of k terms takes k - 1 additions. Products of codes are exact; three multiplications round where scales are no
// powers of two, of codes by their scales and of these, or of the scales and by them. So |error| <= (k + 2) u sum |a b|, to the
// first order, and k + 3 is enough for the rest (Higham, "Accuracy and stability of numerical algorithms", section 3.1).
double bound_of(const Sum& sum, int64_t depth) {
    return static_cast<double>(depth + 3) * kU * sum.magnitude;
}

struct LayerOracles : ::testing::Test {
    Context context = make_context();

    // What a product takes, against the oracle's.
    void compare_operand(mp_linear* linear, const Step& step, int product, int operand) {
        const OperandCodes& theirs = step.operands.at({product, operand});
        int32_t dtype = 0;
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        MP_OK(mp_linear_get_operand_format(linear, product, operand, &dtype, &quant));
        ASSERT_EQ(dtype, theirs.codes.dtype);
        if (theirs.scales.dtype == MP_DTYPE_NONE) {
            EXPECT_EQ(quant.scaling, 0);
            return;
        }
        const Tensor source = tensor_of(context, step.inputs.at(kInputs[operand]));
        const std::vector<int64_t> shape = {theirs.codes.rows, theirs.codes.columns};
        const Tensor codes = make_quantized(context, dtype, shape, &quant);
        MP_OK(mp_linear_quantize(linear, nullptr, product, operand, source, codes));
        int64_t rows = 0, columns = 0;
        MP_OK(mp_tensor_get_scale_grid(&quant, shape[0], shape[1], &rows, &columns, &dtype));
        EXPECT_EQ(dtype, theirs.scales.dtype);
        EXPECT_EQ(rows, theirs.scales.rows);
        EXPECT_EQ(columns, theirs.scales.columns);
        EXPECT_EQ(difference(bytes_of(scales_of(codes)), theirs.scales.bytes), "") << "scales";
        EXPECT_EQ(difference(bytes_of(codes), theirs.codes.bytes), "") << "codes";
    }

    // Ours and the oracle's against the sums in double.
    void compare_result(const Step& step, int product, mp_tensor* result, int32_t dtype) {
        const char* name = kResults[product];
        const OperandCodes& a = step.operands.at({product, kOperands[product][0]});
        const OperandCodes& b = step.operands.at({product, kOperands[product][1]});
        const int64_t depth = product == MP_PRODUCT_WGRAD ? a.codes.rows : a.codes.columns;
        const int64_t rows = product == MP_PRODUCT_WGRAD ? a.codes.columns : a.codes.rows;
        const int64_t columns = product == MP_PRODUCT_FPROP ? b.codes.rows : b.codes.columns;
        const std::vector<float> ours = values_of(context, result);
        ASSERT_EQ(ours.size(), static_cast<std::size_t>(rows * columns));
        const auto theirs = step.theirs.find(name);
        for (int64_t i = 0; i < rows * columns; ++i) {
            const int64_t row = i / columns, column = i % columns;
            const Sum sum = sum_of(a, b, product, row, column, depth);
            const double bound = bound_of(sum, depth);
            const auto got = static_cast<double>(ours[static_cast<std::size_t>(i)]);
            ASSERT_LE(std::abs(got - sum.value),
                      bound + rounding(dtype, std::abs(sum.value) + bound))
                << name << "[" << row << ", " << column << "]: " << got << ", not " << sum.value;
            used_ = sum.magnitude == 0.0 || dtype != MP_DTYPE_FP32
                        ? used_
                        : std::max(used_, std::abs(got - sum.value) / bound);
            if (row % step.stride == 0) { // by numpy, over codes decoded by ml_dtypes
                ASSERT_LE(std::abs(step.sums.at(name).at(row / step.stride, column) - sum.value),
                          static_cast<double>(depth) * 0x1p-53 * sum.magnitude)
                    << name << "[" << row << ", " << column << "]";
            }
            if (theirs != step.theirs.end()) {
                // torchao divides codes by the scale, where ours is its rounded reciprocal: two roundings more an operand.
                const Array& values = theirs->second;
                const double other = values.at(row, column);
                const double slack = bound + 4.0 * kU * sum.magnitude;
                ASSERT_LE(std::abs(got - other),
                          bound + rounding(dtype, std::abs(sum.value) + bound) + slack +
                              rounding(values.dtype, std::abs(sum.value) + slack))
                    << "their " << name << "[" << row << ", " << column << "]: " << other;
            }
        }
    }

    void compare_step(mp_linear* linear, const Step& step) {
        for (int product = 0; product < kProducts; ++product) {
            for (const int32_t operand : kOperands[product]) {
                SCOPED_TRACE(std::string(kInputs[operand]) + " of " + kResults[product]);
                compare_operand(linear, step, product, operand);
            }
        }
        const Array &x = step.inputs.at("x"), &w = step.inputs.at("w"), &dy = step.inputs.at("dy");
        const Tensor x_tensor = tensor_of(context, x), dy_tensor = tensor_of(context, dy);
        const Tensor y = make_tensor(context, x.dtype, {x.rows, w.rows});
        const Tensor dx = make_tensor(context, x.dtype, {x.rows, x.columns});
        const Tensor dw = make_tensor(context, MP_DTYPE_FP32, {w.rows, w.columns});
        MP_OK(mp_linear_forward(linear, nullptr, x_tensor, y));
        MP_OK(mp_linear_backward_data(linear, nullptr, dy_tensor, dx));
        MP_OK(mp_linear_backward_weight(linear, nullptr, dy_tensor, dw, nullptr, 0));
        compare_result(step, MP_PRODUCT_FPROP, y, x.dtype);
        compare_result(step, MP_PRODUCT_DGRAD, dx, x.dtype);
        compare_result(step, MP_PRODUCT_WGRAD, dw, MP_DTYPE_FP32);
    }

    void compare_layer(const LayerCase& layer) {
        const Recipe recipe = recipe_of(context, layer.recipe);
        const Array& first = layer.steps.at(0).inputs.at("w");
        const Tensor weight = tensor_of(context, first);
        const Linear linear =
            make_linear(context, recipe, linear_desc(first.columns, first.rows), weight);
        for (std::size_t i = 0; i < layer.steps.size() && !HasFailure(); ++i) {
            SCOPED_TRACE("step " + std::to_string(i + 1));
            const Array& w = layer.steps[i].inputs.at("w");
            MP_OK(mp_tensor_write(weight, nullptr, w.bytes.data(), w.bytes.size()));
            compare_step(linear, layer.steps[i]);
            mp_linear* const layers[] = {linear};
            MP_OK(mp_linear_end_step(layers, 1, nullptr, nullptr));
        }
    }

    double used_ = 0.0; // of the bound, at most, where a result is fp32
};

TEST_F(LayerOracles, CodesAreTheOraclesAndResultsTheirProducts) {
    for (const char* backend : kHostBackends) {
        context = make_context(0, backend);
        for (const LayerCase& layer : fixture().layers) {
            SCOPED_TRACE(layer.name + " " + backend);
            compare_layer(layer);
        }
    }
    RecordProperty("bound_used_percent", static_cast<int>(100.0 * used_));
}

// Every recipe is among the cases, and none lost its steps.
TEST_F(LayerOracles, AllAreThere) {
    std::map<std::string, int> steps;
    std::size_t theirs = 0;
    for (const LayerCase& layer : fixture().layers) {
        const std::size_t begin = layer.recipe.find(": \"") + 3;
        steps[layer.recipe.substr(begin, layer.recipe.find('"', begin) - begin)] +=
            static_cast<int>(layer.steps.size());
        for (const Step& step : layer.steps) {
            theirs += step.theirs.size();
        }
    }
    const std::map<std::string, int> expected = {{"fp8_current", 6},       {"fp8_rowwise", 3},
                                                 {"fp8_rowwise_gw_hp", 3}, {"mxfp8", 3},
                                                 {"fp8_block", 3},         {"fp8_delayed", 28}};
    EXPECT_EQ(steps, expected);
    EXPECT_EQ(theirs, 48U);
    EXPECT_EQ(fixture().nvfp4.size(), 6U);
}

// Transformer Engine's reference of the operands of NVFP4 products; the library has such tensors, and no recipe of them.
TEST_F(LayerOracles, Nvfp4CodesAreTransformerEngines) {
    for (const Nvfp4Case& c : fixture().nvfp4) {
        SCOPED_TRACE(c.name);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = MP_SCALING_NVFP4;
        const Tensor source = tensor_of(context, c.source);
        const Tensor codes =
            make_quantized(context, MP_DTYPE_FP4_E2M1, {c.source.rows, c.source.columns}, &quant);
        MP_OK(mp_tensor_quantize(source, nullptr, codes, nullptr, nullptr, nullptr));
        std::vector<unsigned char> bytes(c.codes.bytes.size());
        MP_OK(mp_tensor_read(codes, nullptr, bytes.data(), bytes.size()));
        EXPECT_EQ(difference(bytes_of(scales_of(codes)), c.scales.bytes), "") << "scales";
        EXPECT_EQ(difference(bytes, c.codes.bytes), "") << "codes";
    }
}

} // namespace
