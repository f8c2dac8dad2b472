// SPDX-License-Identifier: Apache-2.0
// Fp8Policy: the part of a recipe that says which products are fp8, and how their operands are scaled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "numerics/delayed_scaling.hpp"
#include "recipe/rounding_mode.hpp"
#include "tensor/format.hpp"

namespace mp::recipe {

enum class Fp8Scaling : int32_t {
    none,          // no fp8 product
    delayed,       // one scale from earlier steps' amaxes (Transformer Engine, MS-AMP)
    tensorwise,    // one scale from this tensor's amax
    rowwise,       // a scale for each row along the contracted dimension (torchao)
    rowwise_gw_hp, // the same with the weight gradient in high precision
    block,         // 1x128 activations and gradients, 128x128 weights (DeepSeek-V3)
    mx,            // e8m0 scales of 32 elements (OCP microscaling)
};
enum class Fp8Format : int32_t { e4m3, hybrid, e5m2 };
enum class WeightCopy : int32_t { keep, recompute };
enum class SizeFilter : int32_t { none, automatic };

enum class GemmRole : int32_t { fprop, dgrad, wgrad };
enum class Operand : int32_t { input, weight, grad_output }; // x, w, dy
inline constexpr std::size_t kOperands = 3;

struct Fp8Policy {
    Fp8Scaling scaling = Fp8Scaling::none;
    Fp8Format format = Fp8Format::hybrid;
    // Products in fp8; the others stay in gemm.*.dtype (Transformer Engine: override_linear_precision).
    bool fprop = true;
    bool dgrad = true;
    bool wgrad = true;
    numerics::ScaleRule rule = numerics::ScaleRule::current;
    bool power_of_two = false;
    RoundingMode rounding[kOperands] = {}; // by Operand, of codes: nearest or stochastic
    double amax_epsilon = 0.0;
    int32_t margin = 0;
    int32_t interval = 1;
    int32_t amax_history_len = 1024;
    numerics::AmaxAlgo amax_algo = numerics::AmaxAlgo::max;
    int32_t warm_up = 1;
    bool reduce_amax = true;
    bool fast_accumulation = true; // of the forward product; the gradients' sums are always fp32
    bool gather = false;           // sharding gathers codes and scales
    WeightCopy weight_copy = WeightCopy::keep;
    int32_t multiple_of = 16; // layers with other dimensions stay in high precision
    bool keep_first_and_last = false;
    SizeFilter size_filter = SizeFilter::none;

    [[nodiscard]] bool is_used() const noexcept { return scaling != Fp8Scaling::none; }
    [[nodiscard]] bool rounds_stochastically(Operand operand) const noexcept {
        return rounding[static_cast<std::size_t>(operand)] == RoundingMode::stochastic;
    }
};

// What a product multiplies, in its order.
struct ProductOperands {
    Operand a;
    Operand b;
};
ProductOperands operands_of(GemmRole role) noexcept;

const char* role_name(GemmRole role) noexcept;
const char* operand_name(Operand operand) noexcept;

// Whether a weight is codes under one scale.
bool has_one_scale(const Fp8Policy& policy) noexcept;
// Whether this product is fp8 under the policy.
bool is_fp8(const Fp8Policy& policy, GemmRole role) noexcept;
// Whether any product takes the operand as codes.
bool has_codes(const Fp8Policy& policy, Operand operand) noexcept;
// The format of an operand of an fp8 product. Scales lie along the dimension that the product sums over.
Format operand_format(const Fp8Policy& policy, GemmRole role, Operand operand) noexcept;
// The rule of the scales that follow from earlier steps.
numerics::DelayedRule delayed_rule(const Fp8Policy& policy, Operand operand) noexcept;
// Why a layer of these sizes stays in high precision; empty if it does not.
std::string reason_for_high_precision(const Fp8Policy& policy, int64_t in_features,
                                      int64_t out_features, bool is_first_or_last);

} // namespace mp::recipe
