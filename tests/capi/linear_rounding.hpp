// SPDX-License-Identifier: Apache-2.0
// What the tests of stochastic rounding in layers share (linear_rounding*.cpp): a layer, its passes, and the quantizer alone.
#pragma once

#include "../hash.hpp"
#include "layers.hpp"

namespace mp_test::rounding {

inline constexpr int64_t kRows = 32;
inline constexpr int64_t kIn = 96;
inline constexpr int64_t kOut = 160;
inline constexpr const char* kOperandNames[] = {"input", "weight", "grad_output"};

using Bytes = std::vector<unsigned char>;

// A preset with all operands rounded stochastically, or to nearest.
inline std::string with_rounding(const std::string& preset, const char* how = "stochastic") {
    std::string text = R"({"recipe": ")" + preset + "\"";
    for (const char* operand : kOperandNames) {
        text += std::string(", \"gemm.") + operand + ".rounding\": \"" + how + "\"";
    }
    // So that delayed scaling has the scales of any quantizer.
    return text + (preset == "fp8_delayed" ? R"(, "gemm.warm_up": 100})" : "}");
}

// As the documents say (docs/numerics.md).
inline uint64_t uid_of(const std::string& layer, int32_t operand) {
    const std::string name = layer + "." + kOperandNames[operand];
    mp::test::Fnv1a hash;
    hash.add_bytes(name.data(), name.size());
    return hash.value();
}

struct Results {
    Bytes y, dx, dw;
    bool operator==(const Results&) const = default;
};

struct Layer {
    mp_context* context;
    Recipe recipe;
    Tensor w;
    Linear linear;

    Layer(mp_context* owner, const std::string& text, const char* name, uint32_t flags = 0)
        : context(owner), recipe(recipe_of(owner, text)),
          w(make_tensor(owner, MP_DTYPE_FP32, {kOut, kIn}, numbers(kOut * kIn, 3))) {
        mp_linear_desc desc = linear_desc(kIn, kOut, flags);
        desc.name = name;
        linear = make_linear(owner, recipe, desc, w);
    }
    // The same numbers in every micro-batch, so that nothing but bits differs.
    [[nodiscard]] Tensor x() const {
        return make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, numbers(kRows * kIn, 1));
    }
    [[nodiscard]] Tensor dy() const {
        return make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, numbers(kRows * kOut, 2));
    }
    [[nodiscard]] Tensor empty(int64_t rows, int64_t columns) const {
        return make_tensor(context, MP_DTYPE_FP32, {rows, columns});
    }
    [[nodiscard]] Results pass() const {
        const Tensor y = empty(kRows, kOut), dx = empty(kRows, kIn), dw = empty(kOut, kIn);
        EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x(), y)));
        EXPECT_TRUE(done(mp_linear_backward(linear, nullptr, dy(), dx, dw, nullptr, 0)));
        return {bytes_of(y), bytes_of(dx), bytes_of(dw)};
    }
    void evaluate() const {
        const Tensor y = empty(kRows, kOut);
        EXPECT_TRUE(succeeded(mp_linear_forward(linear, nullptr, x(), y)));
        EXPECT_TRUE(succeeded(mp_linear_forward_saved(linear, nullptr, x(), y, nullptr, 0)));
    }
    void end_step() const {
        mp_linear* const one = linear;
        EXPECT_TRUE(succeeded(mp_linear_end_step(&one, 1, nullptr, nullptr)));
    }
    [[nodiscard]] Tensor source(int32_t operand) const {
        return operand == MP_OPERAND_INPUT ? x()
               : operand == MP_OPERAND_GRAD_OUTPUT
                   ? dy()
                   : make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, numbers(kOut * kIn, 3));
    }
    // Codes that nobody has written, in the format of the product; none where it takes no codes.
    [[nodiscard]] Tensor codes(int32_t product, int32_t operand,
                               const std::vector<int64_t>& shape) const {
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        int32_t dtype = 0;
        EXPECT_TRUE(
            succeeded(mp_linear_get_operand_format(linear, product, operand, &dtype, &quant)));
        return quant.scaling == 0 ? Tensor() : make_quantized(context, dtype, shape, &quant);
    }
    // By the layer.
    [[nodiscard]] Bytes quantized(int32_t product, int32_t operand, mp_tensor* from) const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_tensor_get_desc(from, &desc)));
        const Tensor to = codes(product, operand, {desc.shape[0], desc.shape[1]});
        EXPECT_TRUE(succeeded(mp_linear_quantize(linear, nullptr, product, operand, from, to)));
        return bytes_of(to);
    }
    [[nodiscard]] Bytes quantized(int32_t product, int32_t operand) const {
        return quantized(product, operand, source(operand));
    }
};

// The quantizer alone, given the documented key.
inline Tensor by_key(const Layer& layer, const char* name, int32_t product, int32_t operand,
                     uint64_t seed, uint64_t step, int32_t microbatch) {
    Tensor from = layer.source(operand);
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(from, &desc)));
    Tensor to = layer.codes(product, operand, {desc.shape[0], desc.shape[1]});
    if (to == nullptr) {
        return from;
    }
    mp_quantize_args args = MP_QUANTIZE_ARGS_INIT;
    args.rounding = MP_ROUND_STOCHASTIC;
    args.seed = seed;
    args.uid = uid_of(name, operand);
    args.step = step;
    args.microbatch = operand == MP_OPERAND_WEIGHT ? 0 : microbatch;
    EXPECT_TRUE(succeeded(mp_tensor_quantize(from, nullptr, to, nullptr, &args, nullptr)));
    return to;
}

} // namespace mp_test::rounding
