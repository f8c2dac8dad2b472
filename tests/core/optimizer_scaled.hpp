// SPDX-License-Identifier: Apache-2.0
// Optimizers with states of every format, on the backend that is the test's parameter.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core_context.hpp"
#include "numerics/codec.hpp"
#include "optim/optimizer.hpp"
#include "quant/quantize.hpp"

namespace mp::test {

// The storage of MS-AMP's three levels.
inline recipe::Recipe level(int32_t number) {
    recipe::Recipe recipe;
    recipe.weight = number == 3 ? FormatId::e4m3_scaled : FormatId::fp16_scaled;
    recipe.master = number == 3 ? FormatId::fp16_scaled : FormatId::none;
    recipe.grad = FormatId::e4m3_scaled;
    recipe.state(numerics::StateId::exp_avg).format =
        number == 1 ? FormatId::fp32 : FormatId::e4m3_scaled;
    recipe.state(numerics::StateId::exp_avg_sq).format =
        number == 1 ? FormatId::fp32 : FormatId::fp16_scaled;
    return recipe;
}

inline Shape matrix(int64_t rows, int64_t columns) { return {{rows, columns}, 2}; }

class ScaledOptimizer : public ::testing::TestWithParam<const char*> {
  protected:
    [[nodiscard]] std::shared_ptr<Tensor> make(DType dtype, const Shape& shape) const {
        return std::make_shared<Tensor>(context_, stream(), dtype, shape);
    }
    [[nodiscard]] std::shared_ptr<Tensor> make(FormatId format, const Shape& shape) const {
        if (!is_scaled(format)) {
            return make(dtype_of(format), shape);
        }
        const DType codes = dtype_of(format);
        const Format form = {codes, kTensorScale,
                             numerics::scale_policy(numerics::ScaleRule::msamp, codes)};
        return std::make_shared<Tensor>(context_, stream(), form, shape);
    }
    [[nodiscard]] std::shared_ptr<Tensor> wave(const Shape& shape, float size) const {
        auto tensor = make(DType::fp32, shape);
        auto* data = static_cast<float*>(tensor->data());
        for (int64_t i = 0; i < tensor->count(); ++i) {
            data[i] = size * std::sin(0.37F * static_cast<float>(i + 1));
        }
        return tensor;
    }
    // Adds a parameter of the recipe's weight format with the gradient `size` * wave.
    void add(optim::Optimizer& optimizer, const std::string& name, FormatId format,
             const Shape& shape) const {
        optim::NewParameter p;
        p.name = name;
        p.param = make(format, shape);
        p.init_fp32 = wave(shape, 0.5F);
        optimizer.add_parameter(stream(), 0, p);
    }
    void set_grad(const optim::Optimizer& optimizer, int32_t index, float size) const {
        const auto grad = optimizer.parameters().state(index, "grad");
        const auto values = wave(grad->shape(), size);
        if (grad->scales() != nullptr) {
            quant::quantize_tensor(stream(), *values, *grad, nullptr);
        } else {
            cast_tensor(stream(), values->ref(), grad->ref());
        }
    }
    [[nodiscard]] static std::vector<float> values(const Tensor& tensor) {
        const auto* scales = tensor.scales();
        const float scale =
            scales == nullptr ? 1.0F : *static_cast<const float*>(scales->scale_inv->data());
        std::vector<float> list;
        for (int64_t i = 0; i < tensor.count(); ++i) {
            list.push_back(numerics::load_as_float(tensor.dtype(), tensor.data(), i) * scale);
        }
        return list;
    }
    [[nodiscard]] Stream& stream() const { return context_->stream(); }
    [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

  private:
    std::shared_ptr<Context> context_ = make_context(GetParam(), 2);
};

} // namespace mp::test
