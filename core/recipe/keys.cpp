// SPDX-License-Identifier: Apache-2.0
#include "recipe/keys.hpp"

#include <array>
#include <type_traits>
#include <utility>

namespace mp::recipe {
namespace {

// The names of an enumeration's values, in order.
template <typename Enum> struct Names;
template <> struct Names<Fp8Scaling> {
    static constexpr std::array kList = {"none",          "delayed", "tensorwise", "rowwise",
                                         "rowwise_gw_hp", "block",   "mx"};
};
template <> struct Names<Fp8Format> {
    static constexpr std::array kList = {"e4m3", "hybrid", "e5m2"};
};
template <> struct Names<WeightCopy> { static constexpr std::array kList = {"keep", "recompute"}; };
template <> struct Names<SizeFilter> { static constexpr std::array kList = {"none", "auto"}; };
template <> struct Names<numerics::AmaxAlgo> {
    static constexpr std::array kList = {"max", "most_recent"};
};
template <> struct Names<numerics::ScaleRule> {
    static constexpr std::array kList = {"current",  "float64", "msamp",   "deepseek", "mx_rceil",
                                         "mx_floor", "mx_ceil", "mx_even", "nvfp4"};
};
template <> struct Names<RoundingMode> {
    static constexpr std::array kList = {"nearest", "stochastic", "nearest_away"};
};
template <> struct Names<ReduceScale> {
    static constexpr std::array kList = {"shared", "block", "mx"};
};
template <> struct Names<bool> { static constexpr std::array kList = {"off", "on"}; };

template <typename Enum> const char* name_of(Enum value) {
    return Names<Enum>::kList[static_cast<std::size_t>(value)];
}

// `value` has been checked against the key's list.
template <typename Enum> void set_by_name(Enum& member, const std::string& value) {
    for (std::size_t i = 0; i < Names<Enum>::kList.size(); ++i) {
        if (value == Names<Enum>::kList[i]) {
            member = static_cast<Enum>(i);
        }
    }
}

template <DType Recipe::*Member> const char* get_dtype(const Recipe& recipe) {
    return dtype_name(recipe.*Member);
}

template <DType Recipe::*Member> void set_dtype(Recipe& recipe, const std::string& value) {
    recipe.*Member = value == "none" ? DType::none : parse_dtype(value);
}

template <DType Recipe::*Member>
constexpr Key dtype_key(const char* name, const char* allowed, const char* text) {
    return {name, KeyType::string, allowed, text, get_dtype<Member>, set_dtype<Member>};
}

template <FormatId Recipe::*Member>
constexpr Key format_key(const char* name, const char* allowed, const char* text) {
    return {name,
            KeyType::string,
            allowed,
            text,
            [](const Recipe& recipe) { return format_name(recipe.*Member); },
            [](Recipe& recipe, const std::string& value) {
                recipe.*Member = parse_format(value); // "none" too
            }};
}

template <numerics::StateId kState>
constexpr Key state_format_key(const char* name, const char* allowed, const char* text) {
    return {name,
            KeyType::string,
            allowed,
            text,
            [](const Recipe& recipe) { return format_name(recipe.state(kState).format); },
            [](Recipe& recipe, const std::string& value) {
                recipe.state(kState).format = parse_format(value);
            }};
}

template <numerics::StateId kState>
constexpr Key state_rounding_key(const char* name, const char* allowed, const char* text) {
    return {name,
            KeyType::string,
            allowed,
            text,
            [](const Recipe& recipe) { return name_of(recipe.state(kState).rounding); },
            [](Recipe& recipe, const std::string& value) {
                set_by_name(recipe.state(kState).rounding, value);
            }};
}

// An enumeration of Recipe.
template <auto Recipe::*Member>
constexpr Key choice_key(const char* name, const char* allowed, const char* text) {
    return {name,
            KeyType::string,
            allowed,
            text,
            [](const Recipe& recipe) { return name_of(recipe.*Member); },
            [](Recipe& recipe, const std::string& value) { set_by_name(recipe.*Member, value); }};
}

template <double numerics::LossScaleRule::*Member>
constexpr Key rule_float(const char* name, const char* allowed, const char* text, double minimum,
                         double maximum) {
    return {name,
            KeyType::floating,
            allowed,
            text,
            nullptr,
            nullptr,
            [](const Recipe& recipe) { return recipe.scaler.rule.*Member; },
            [](Recipe& recipe, double value) { recipe.scaler.rule.*Member = value; },
            minimum,
            maximum};
}

template <int32_t numerics::LossScaleRule::*Member>
constexpr Key rule_int(const char* name, const char* allowed, const char* text, double minimum,
                       double maximum) {
    return {name,
            KeyType::integer,
            allowed,
            text,
            nullptr,
            nullptr,
            [](const Recipe& recipe) { return static_cast<double>(recipe.scaler.rule.*Member); },
            [](Recipe& recipe, double value) {
                recipe.scaler.rule.*Member = static_cast<int32_t>(value);
            },
            minimum,
            maximum};
}

template <int64_t Recipe::*Member>
constexpr Key count_key(const char* name, const char* allowed, const char* text, double maximum) {
    return {name,
            KeyType::integer,
            allowed,
            text,
            nullptr,
            nullptr,
            [](const Recipe& recipe) { return static_cast<double>(recipe.*Member); },
            [](Recipe& recipe, double value) { recipe.*Member = static_cast<int64_t>(value); },
            0,
            maximum};
}

// An enumeration of Fp8Policy: its values' names, in order.
template <auto Fp8Policy::*Member>
constexpr Key fp8_choice(const char* name, const char* allowed, const char* text) {
    return {
        name,
        KeyType::string,
        allowed,
        text,
        [](const Recipe& recipe) { return name_of(recipe.fp8.*Member); },
        [](Recipe& recipe, const std::string& value) { set_by_name(recipe.fp8.*Member, value); }};
}

template <Operand kOperand>
constexpr Key operand_rounding_key(const char* name, const char* allowed, const char* text) {
    constexpr auto kPlace = static_cast<std::size_t>(kOperand);
    return {name,
            KeyType::string,
            allowed,
            text,
            [](const Recipe& recipe) { return name_of(recipe.fp8.rounding[kPlace]); },
            [](Recipe& recipe, const std::string& value) {
                set_by_name(recipe.fp8.rounding[kPlace], value);
            }};
}

template <auto Fp8Policy::*Member>
constexpr Key fp8_number(const char* name, KeyType type, const char* allowed, const char* text,
                         double minimum, double maximum) {
    using Value = std::remove_reference_t<decltype(std::declval<Fp8Policy&>().*Member)>;
    return {name,
            type,
            allowed,
            text,
            nullptr,
            nullptr,
            [](const Recipe& recipe) { return static_cast<double>(recipe.fp8.*Member); },
            [](Recipe& recipe, double value) { recipe.fp8.*Member = static_cast<Value>(value); },
            minimum,
            maximum};
}

constexpr const char* kGemmTypes = "fp32|fp16|bf16";
constexpr const char* kFloatTypes = "fp32|fp16|bf16";
constexpr const char* kReduceTypes = "fp32|fp16|bf16|fp8_e4m3|fp8_e5m2";
constexpr const char* kRoundings = "nearest|stochastic";
// The formats of dtype/formats.def that an array of this role may have, as "one|other".
struct FormatNames {
    char text[256] = {};
};
constexpr FormatNames names_for(FormatRoles role, const char* first = "") {
    FormatNames names;
    std::size_t end = 0;
    const auto add = [&](const char* name) {
        if (end > 0 && *name != 0) {
            names.text[end++] = '|';
        }
        for (; *name != 0; ++name) {
            names.text[end++] = *name; // beyond the end it would be no constant
        }
    };
    add(first);
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    if (((roles)&role) != 0 && FormatId::id != FormatId::bf16_scaled) { /* nobody makes those */   \
        add(name);                                                                                 \
    }
#include "dtype/formats.def"
    return names;
}
constexpr FormatNames kWeightFormats = names_for(kForParam);
constexpr FormatNames kMasterFormats = names_for(kForMaster, "none");
constexpr FormatNames kGradFormats = names_for(kForGrad);
constexpr FormatNames kStateFormats = names_for(kForState);
constexpr FormatNames kCompensationFormats = names_for(kForCompensation, "none");
constexpr double kMaxScale = 3.4e38;

const char* scaler_kind_name(const Recipe& recipe) {
    switch (recipe.scaler.kind) {
    case ScalerKind::dynamic:
        return "dynamic";
    case ScalerKind::fixed:
        return "static";
    case ScalerKind::none:
        break;
    }
    return "none";
}

void set_scaler_kind(Recipe& recipe, const std::string& value) {
    recipe.scaler.kind = ScalerKind::none;
    if (value == "dynamic") {
        recipe.scaler.kind = ScalerKind::dynamic;
    } else if (value == "static") {
        recipe.scaler.kind = ScalerKind::fixed;
    }
    recipe.scaler.rule.is_dynamic = value == "dynamic" ? 1 : 0;
}

const std::array kKeys = {
    dtype_key<&Recipe::fprop>("gemm.fprop.dtype", kGemmTypes,
                              "operands of x*w are rounded to this"),
    dtype_key<&Recipe::dgrad>("gemm.dgrad.dtype", kGemmTypes,
                              "operands of dy*w are rounded to this"),
    dtype_key<&Recipe::wgrad>("gemm.wgrad.dtype", kGemmTypes,
                              "operands of dy*x are rounded to this"),
    format_key<&Recipe::weight>("weight.dtype", kWeightFormats.text,
                                "the model's own copy of a weight"),
    format_key<&Recipe::master>("master.dtype", kMasterFormats.text,
                                "extra copy that the optimizer updates"),
    format_key<&Recipe::grad>("grad.dtype", kGradFormats.text,
                              "main gradients, which backward accumulates into"),
    dtype_key<&Recipe::grad_reduce>("grad.reduce.dtype", kReduceTypes,
                                    "gradients on the wire when sharded"),
    choice_key<&Recipe::grad_reduce_scale>("grad.reduce.scale", "shared|block|mx",
                                           "scales of fp8 gradients on the wire"),
    dtype_key<&Recipe::weight_gather>("weight.gather.dtype", kFloatTypes,
                                      "weights on the wire when sharded"),
#define X(number, id, is_signed, what)                                                             \
    state_format_key<numerics::StateId::id>("optimizer." #id ".dtype", kStateFormats.text, what),
#include "numerics/rules/states.def"
#undef X
    format_key<&Recipe::compensation>("optimizer.compensation.dtype", kCompensationFormats.text,
                                      "Kahan compensation"),
    count_key<&Recipe::block_min_elements>(
        "optimizer.block_min_elements", "0..1000000000000",
        "smaller tensors keep moments and compensations in fp32 instead of blocks", 1e12),
    choice_key<&Recipe::weight_rounding>("optimizer.weight.rounding",
                                         "nearest|stochastic|nearest_away",
                                         "rounding of updated weights"),
#define X(number, id, is_signed, what)                                                             \
    state_rounding_key<numerics::StateId::id>("optimizer." #id ".rounding", kRoundings,            \
                                              "rounding of " what "s"),
#include "numerics/rules/states.def"
#undef X
    fp8_choice<&Fp8Policy::scaling>("gemm.scaling",
                                    "none|delayed|tensorwise|rowwise|rowwise_gw_hp|block|mx",
                                    "how the operands of fp8 products are scaled"),
    fp8_choice<&Fp8Policy::format>("fp8.format", "e4m3|hybrid|e5m2",
                                   "code type; hybrid: e4m3, and e5m2 for gradients"),
    fp8_choice<&Fp8Policy::fprop>("gemm.fprop.quantized", "on|off", "off: x*w in gemm.fprop.dtype"),
    fp8_choice<&Fp8Policy::dgrad>("gemm.dgrad.quantized", "on|off",
                                  "off: dy*w in gemm.dgrad.dtype"),
    fp8_choice<&Fp8Policy::wgrad>("gemm.wgrad.quantized", "on|off",
                                  "off: dy*x in gemm.wgrad.dtype"),
    operand_rounding_key<Operand::input>("gemm.input.rounding", kRoundings,
                                         "rounding of codes of x"),
    operand_rounding_key<Operand::weight>("gemm.weight.rounding", kRoundings,
                                          "rounding of codes of w"),
    operand_rounding_key<Operand::grad_output>("gemm.grad_output.rounding", kRoundings,
                                               "rounding of codes of dy"),
    fp8_choice<&Fp8Policy::rule>("gemm.scale_rule",
                                 "current|float64|msamp|deepseek|mx_rceil|mx_floor|mx_ceil|mx_even",
                                 "from an amax to a scale"),
    fp8_choice<&Fp8Policy::power_of_two>("gemm.power_of_two_scale", "on|off",
                                         "scales are powers of two"),
    fp8_number<&Fp8Policy::amax_epsilon>("gemm.amax_epsilon", KeyType::floating, "0..1e30",
                                         "an amax below this counts as this", 0.0, 1e30),
    fp8_number<&Fp8Policy::margin>("gemm.margin", KeyType::integer, "0..20",
                                   "scales leave 2^margin of room", 0, 20),
    fp8_number<&Fp8Policy::interval>("gemm.interval", KeyType::integer, "1..1000000",
                                     "delayed: steps between changes of a scale", 1, 1e6),
    fp8_number<&Fp8Policy::amax_history_len>("gemm.amax_history_len", KeyType::integer, "1..65536",
                                             "delayed: steps that are remembered", 1, 65536),
    fp8_choice<&Fp8Policy::amax_algo>("gemm.amax_compute_algo", "max|most_recent",
                                      "delayed: the amax of the history that counts"),
    fp8_number<&Fp8Policy::warm_up>("gemm.warm_up", KeyType::integer, "0..65536",
                                    "delayed: first steps that use a tensor's own amax", 0, 65536),
    fp8_choice<&Fp8Policy::reduce_amax>("gemm.reduce_amax", "on|off",
                                        "amaxes are the maximum over ranks"),
    fp8_choice<&Fp8Policy::fast_accumulation>(
        "gemm.fast_accumulation", "on|off",
        "the forward product may be summed in less than fp32 by a GPU"),
    fp8_choice<&Fp8Policy::gather>("weight.gather.codes", "on|off",
                                   "sharding gathers weights as codes and scales"),
    fp8_choice<&Fp8Policy::weight_copy>("gemm.weight_copy", "keep|recompute",
                                        "codes of a weight between forward and backward"),
    fp8_number<&Fp8Policy::multiple_of>(
        "gemm.filter.multiple_of", KeyType::integer, "1..1024",
        "layers whose sizes are no multiples of this stay in high precision", 1, 1024),
    fp8_choice<&Fp8Policy::keep_first_and_last>(
        "gemm.filter.first_last", "on|off", "the first and the last layer stay in high precision"),
    fp8_choice<&Fp8Policy::size_filter>("gemm.filter.size", "none|auto",
                                        "layers too small to gain on a GPU stay in high precision"),
    Key{"layers", KeyType::string, kLayerRules,
        "products of layers, and what parameters are kept in, whose names fit these patterns",
        [](const Recipe& recipe) { return recipe.layers.text().c_str(); },
        [](Recipe& recipe, const std::string& value) { recipe.layers = LayerRules(value); }},
    Key{"scaler.kind", KeyType::string, "none|static|dynamic", "loss scaling", scaler_kind_name,
        set_scaler_kind},
    Key{"scaler.init_scale", KeyType::floating, "1e-30..3.4e38", "first loss scale", nullptr,
        nullptr, [](const Recipe& recipe) { return recipe.scaler.init_scale; },
        [](Recipe& recipe, double value) { recipe.scaler.init_scale = value; }, 1e-30, kMaxScale},
    rule_float<&numerics::LossScaleRule::growth_factor>(
        "scaler.growth_factor", "1.0000001..1e6", "scale *= this when it grows", 1.0000001, 1e6),
    rule_float<&numerics::LossScaleRule::backoff_factor>("scaler.backoff_factor", "1e-6..0.9999999",
                                                         "scale *= this after an overflow", 1e-6,
                                                         0.9999999),
    rule_int<&numerics::LossScaleRule::growth_interval>("scaler.growth_interval", "1..2000000000",
                                                        "good steps before growth", 1, 2e9),
    rule_int<&numerics::LossScaleRule::hysteresis>("scaler.hysteresis", "1..1000000",
                                                   "overflows that are forgiven, plus 1", 1, 1e6),
    Key{"scaler.hysteresis_refill", KeyType::string, "growth|good_step",
        "when hysteresis is refilled",
        [](const Recipe& recipe) {
            return recipe.scaler.rule.refill_on_good_step != 0 ? "good_step" : "growth";
        },
        [](Recipe& recipe, const std::string& value) {
            recipe.scaler.rule.refill_on_good_step = value == "good_step" ? 1 : 0;
        }},
    rule_float<&numerics::LossScaleRule::min_scale>("scaler.min_scale", "0..3.4e38",
                                                    "0: no minimum", 0, kMaxScale),
    rule_float<&numerics::LossScaleRule::max_scale>("scaler.max_scale", "0..3.4e38",
                                                    "0: only kept finite", 0, kMaxScale),
    Key{"scaler.at_min", KeyType::string, "clamp|error", "an overflow at the minimum",
        [](const Recipe& recipe) {
            return recipe.scaler.rule.error_at_min != 0 ? "error" : "clamp";
        },
        [](Recipe& recipe, const std::string& value) {
            recipe.scaler.rule.error_at_min = value == "error" ? 1 : 0;
        }},
    rule_int<&numerics::LossScaleRule::count_offset>(
        "scaler.count_offset", "0..1", "good steps after an overflow that do not count", 0, 1),
};

} // namespace

std::span<const Key> recipe_keys() { return kKeys; }

} // namespace mp::recipe
