// SPDX-License-Identifier: Apache-2.0
// Linear: y = x w^T + bias and its gradients, with operands rounded to a recipe's GEMM dtypes. Keeps what the
// weight gradient needs, and a plan for each GEMM shape it has met.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "gemm/gemm.hpp"
#include "recipe/recipe.hpp"
#include "tensor/tensor.hpp"

namespace mp {

struct LinearOptions {
    int64_t in_features = 0;
    int64_t out_features = 0;
    bool inference = false;
};

// Where the weight gradients go; a null tensor is not wanted.
struct WeightGradients {
    Tensor* dw = nullptr;
    Tensor* dbias = nullptr;
    bool accumulate = false;
};

class Linear {
  public:
    Linear(std::shared_ptr<Context> context, const Recipe& recipe, const LinearOptions& options,
           std::shared_ptr<Tensor> weight, std::shared_ptr<Tensor> bias);

    void forward(Stream& stream, const std::shared_ptr<Tensor>& x, Tensor& y);
    // dx null: only the weight's gradients; gradients.dw null: only dx.
    void backward(Stream& stream, const Tensor& dy, Tensor* dx, const WeightGradients& gradients);

    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] std::string describe() const;

  private:
    enum class Role : int32_t { fprop, dgrad, wgrad };
    using PlanKey =
        std::tuple<Role, int64_t, DType, bool>; // role, rows, dtype of the result, accumulate

    // A tensor's data in the dtype a GEMM wants: itself, or a rounded copy in scratch.
    class Operand;

    [[nodiscard]] int64_t rows_of(const Tensor& tensor, int64_t columns, const char* name) const;
    GemmPlan& plan(Role role, int64_t rows, DType result, bool accumulate);
    void forget_old_plans();
    void keep_input(Stream& stream, const std::shared_ptr<Tensor>& x);
    void check_gradients(const Tensor& dy, int64_t rows, const WeightGradients& gradients) const;
    void weight_gradient(Stream& stream, const Tensor& dy, const void* dy_rounded,
                         const WeightGradients& gradients);

    std::shared_ptr<Context> context_;
    Recipe recipe_;
    LinearOptions options_;
    std::shared_ptr<Tensor> weight_;
    std::shared_ptr<Tensor> bias_;

    // The input of the last forward in the wgrad dtype: the caller's own tensor or a copy in kept_.
    std::shared_ptr<Tensor> borrowed_input_;
    Buffer kept_;
    int64_t kept_rows_ = -1;

    std::map<PlanKey, GemmPlan> plans_;
};

} // namespace mp
