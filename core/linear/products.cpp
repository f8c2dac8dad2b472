// SPDX-License-Identifier: Apache-2.0
#include "linear/products.hpp"

namespace mp::linear {
namespace {

bool has_power_of_two_scales(const Format& format) {
    return format.policy.power_of_two || format.grid.dtype == DType::e8m0 ||
           format.policy.rule == numerics::ScaleRule::msamp;
}

} // namespace

GemmDesc Products::desc_of(const Key& key) const {
    const auto& [role, rows, result, accumulate, has_bias] = key;
    GemmDesc d{};
    d.dtype_d = result;
    d.alpha = sizes_.scale;
    d.beta = accumulate ? 1.0F : 0.0F;
    switch (role) {
    case recipe::GemmRole::fprop: // y [rows, out] = x [rows, in] * w [out, in]^T + bias
        d.m = rows, d.n = sizes_.out_features, d.k = sizes_.in_features;
        d.trans_b = true;
        d.dtype_bias = has_bias ? sizes_.bias : DType::none;
        d.fast_accumulation = policy_->recipe().fp8.fast_accumulation;
        break;
    case recipe::GemmRole::dgrad: // dx [rows, in] = dy [rows, out] * w [out, in]
        d.m = rows, d.n = sizes_.in_features, d.k = sizes_.out_features;
        break;
    case recipe::GemmRole::wgrad: // dw [out, in] = dy [rows, out]^T * x [rows, in]
        d.m = sizes_.out_features, d.n = sizes_.in_features, d.k = rows;
        d.trans_a = true;
        break;
    }
    const Format& a = policy_->a(role);
    const Format& b = policy_->b(role);
    d.dtype_a = a.dtype;
    d.dtype_b = b.dtype;
    d.scale_a = a.grid;
    d.scale_b = b.grid;
    d.power_of_two_scales = has_power_of_two_scales(a) && has_power_of_two_scales(b);
    return d;
}

gemm::GemmPlan& Products::plan(recipe::GemmRole role, int64_t rows, DType result, bool accumulate,
                               bool has_bias) {
    const Key key(role, rows, result, accumulate, has_bias);
    if (const auto found = plans_.find(key); found != plans_.end()) {
        return found->second;
    }
    gemm::GemmPlan& made = plans_.emplace(key, gemm::GemmPlan(device_, desc_of(key))).first->second;
    context_->log(LogLevel::debug, [&] {
        return std::string("linear: ") + recipe::role_name(role) + " with " + std::to_string(rows) +
               " rows: " + made.describe();
    });
    return made;
}

void Products::forget_old() {
    constexpr std::size_t kMaxPlans = 64;
    if (plans_.size() > kMaxPlans) {
        plans_.clear();
    }
}

std::string Products::describe() const {
    std::string text;
    for (const auto& [key, plan] : plans_) {
        text += std::string("; ") + recipe::role_name(std::get<recipe::GemmRole>(key)) + " with " +
                std::to_string(std::get<int64_t>(key)) + " rows: " + plan.describe();
    }
    return text;
}

} // namespace mp::linear
