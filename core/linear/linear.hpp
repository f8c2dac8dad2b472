// SPDX-License-Identifier: Apache-2.0
// Linear: y = x w^T + bias and its gradients, with operands in the forms that a recipe asks for. Keeps what the
// weight gradient needs, the scaling state of its operands, and a plan for each GEMM shape it has met.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "gemm/gemm.hpp"
#include "linear/operand.hpp"
#include "linear/scaling_state.hpp"
#include "recipe/recipe.hpp"
#include "tensor/tensor.hpp"

namespace mp::linear {

struct LinearOptions {
    int64_t in_features = 0;
    int64_t out_features = 0;
    bool inference = false;
    bool cache_weight = false;     // converted weights serve until end_step()
    bool is_first_or_last = false; // of the whole model
    bool with_stats = false;
};

// Where the weight gradients go; a null tensor is not wanted.
struct WeightGradients {
    Tensor* dw = nullptr;
    Tensor* dbias = nullptr;
    bool accumulate = false;
};

class Linear {
  public:
    Linear(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
           const LinearOptions& options, std::shared_ptr<Tensor> weight,
           std::shared_ptr<Tensor> bias);

    void forward(Stream& stream, const std::shared_ptr<Tensor>& x, Tensor& y);
    // dx null: only the weight's gradients; gradients.dw null: only dx.
    void backward(Stream& stream, const Tensor& dy, Tensor* dx, const WeightGradients& gradients);
    // The weight has changed, or is about to; delayed scales move on.
    void end_step(Stream& stream);

    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] const recipe::Recipe& recipe() const noexcept { return recipe_; }
    [[nodiscard]] const LinearOptions& options() const noexcept { return options_; }
    void collect_stats(bool on) noexcept { options_.with_stats = on; }
    [[nodiscard]] const ScalingState& scaling() const noexcept { return scaling_; }
    // What scaling().save() returned. Weights converted before have the scales and amaxes of another state.
    void load_scaling(Stream& stream, const unsigned char* data, std::size_t size);
    [[nodiscard]] bool is_fp8() const noexcept { return high_precision_reason_.empty(); }
    // The form of an operand in the product that quantizes it first.
    [[nodiscard]] MatrixForm form_of(recipe::Operand operand) const noexcept;
    [[nodiscard]] std::string describe() const;

  private:
    using PlanKey = std::tuple<recipe::GemmRole, int64_t, DType,
                               bool>; // role, rows, dtype of the result, accumulate
    struct RoleForms {
        MatrixForm a;
        MatrixForm b;
    };

    void choose_forms();
    [[nodiscard]] const RoleForms& forms(recipe::GemmRole role) const noexcept {
        return forms_[static_cast<std::size_t>(role)];
    }
    [[nodiscard]] quant::Tracking track(recipe::Operand operand) const noexcept {
        return scaling_.tracking(operand, options_.with_stats);
    }
    [[nodiscard]] int64_t rows_of(const Tensor& tensor, int64_t columns, const char* name) const;
    gemm::GemmPlan& plan(recipe::GemmRole role, int64_t rows, DType result, bool accumulate);
    void forget_old_plans();
    void check_gradients(const Tensor& dy, int64_t rows, const WeightGradients& gradients) const;

    [[nodiscard]] bool keeps_weight(const MatrixForm& form) const noexcept;
    OperandView weight_view(Stream& stream, recipe::GemmRole role,
                            std::optional<ScratchOperand>& scratch);
    void forget_weight_copies() noexcept;
    void keep_input(Stream& stream, const std::shared_ptr<Tensor>& x);
    [[nodiscard]] OperandView kept_input() const noexcept;
    void weight_gradient(Stream& stream, const Tensor& dy, const OperandView& dy_view,
                         const WeightGradients& gradients);
    gemm::GemmPlan& weight_gradient_plan(const Tensor& dw, bool accumulate);
    void weight_gradient_product(Stream& stream, const OperandView& dy, Tensor& dw,
                                 bool accumulate);

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;
    LinearOptions options_;
    std::shared_ptr<Tensor> weight_;
    std::shared_ptr<Tensor> bias_;
    std::string high_precision_reason_; // empty: fp8 where the recipe says so
    std::array<RoleForms, 3> forms_;    // by GemmRole
    ScalingState scaling_;

    // Converted weights, by the role that made them; a role with the form of an earlier one has none.
    struct WeightCopy {
        OperandMemory memory;
        bool is_valid = false;
    };
    std::array<WeightCopy, 2> weight_copies_; // fprop, dgrad
    uint64_t copied_version_ = 0;

    // The input of the last forward in the form of the weight gradient: the caller's own tensor or a copy.
    std::shared_ptr<Tensor> borrowed_input_;
    OperandMemory kept_;
    int64_t kept_rows_ = -1;

    std::map<PlanKey, gemm::GemmPlan> plans_;
};

} // namespace mp::linear
