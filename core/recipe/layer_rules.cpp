// SPDX-License-Identifier: Apache-2.0
#include "recipe/layer_rules.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "recipe/keys.hpp"
#include "status/status.hpp"

namespace mp::recipe {
namespace {

// Whether a byte is not the first of a character.
constexpr bool is_inside(char byte) noexcept {
    return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

// Whether a name fits a pattern: * stands for any characters, ? for one, of UTF-8.
bool fits_pattern(std::string_view pattern, std::string_view name) noexcept {
    // Where a star was, and the part of the name that it stands for: it takes one more character at each failure.
    std::size_t star = std::string_view::npos;
    std::size_t taken = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < name.size();) {
        if (at < pattern.size() && pattern[at] == '*') {
            star = at++;
            taken = i;
        } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[i])) {
            for (++i; pattern[at] == '?' && i < name.size() && is_inside(name[i]);) {
                ++i;
            }
            ++at;
        } else if (star != std::string_view::npos) {
            at = star + 1;
            i = ++taken;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

std::string_view trimmed(std::string_view text) noexcept {
    const std::size_t begin = text.find_first_not_of(' ');
    return begin == std::string_view::npos
               ? std::string_view()
               : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// The parts between the separators, without the spaces around them.
std::vector<std::string> parts_of(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.emplace_back(trimmed(text.substr(begin, end - begin)));
        begin = end + 1;
    }
    return parts;
}

// The first of the patterns that the name fits; empty where there is none.
std::string fitting(const LayerRule& rule, const std::string& name) {
    for (const std::string& pattern : rule.patterns) {
        if (!name.empty() && fits_pattern(pattern, name)) {
            return pattern;
        }
    }
    return {};
}

// What rules may set: what nothing but a layer reads, and what a parameter is kept or gathered in.
using KeyKind = bool (*)(std::string_view name) noexcept;
bool is_layer_key(std::string_view name) noexcept {
    return name.starts_with("gemm.") || name == "fp8.format";
}
bool is_parameter_key(std::string_view name) noexcept {
    return name == "master.dtype" || name == "weight.gather.dtype" ||
           (name.starts_with("optimizer.") && name.ends_with(".dtype"));
}

void set_by_text(Recipe& recipe, const Key& key, const std::string& text) {
    if (key.type == KeyType::string) {
        set_key(recipe, key, text);
        return;
    }
    double number = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
        fail(Code::invalid_argument, "recipe key '%s' is '%.64s'; it must be a number in %s",
             key.name, text.c_str(), key.allowed);
    }
    const bool is_integer = text.find_first_not_of("0123456789") == std::string::npos;
    set_key(recipe, key, number, is_integer ? KeyType::integer : KeyType::floating);
}

void set_values(Recipe& recipe, const LayerRule& rule, KeyKind is_wanted) {
    for (const auto& [name, text] : rule.values) {
        if (name != "recipe") {
            if (is_wanted(name)) {
                set_by_text(recipe, find_key(name), text);
            }
            continue;
        }
        if (is_wanted != is_layer_key) {
            continue;
        }
        const Recipe& preset = find_preset(text).recipe;
        for (const Key& key : recipe_keys()) {
            if (is_layer_key(key.name)) {
                set_by_text(recipe, key, key_text(preset, key));
            }
        }
    }
}

LayerRule parse_rule(std::string_view text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    LayerRule rule{parts_of(text.substr(0, colon), ','), {}};
    for (const std::string& pattern : rule.patterns) {
        if (pattern.empty() || pattern.find('=') != std::string::npos) {
            fail(Code::invalid_argument, "it must be patterns of names, then ':' and key=value");
        }
    }
    if (colon == text.size()) {
        rule.values.emplace_back("gemm.scaling", "none");
        return rule;
    }
    for (const std::string& part : parts_of(text.substr(colon + 1), ',')) {
        const std::size_t equals = std::min(part.find('='), part.size());
        const std::string name = current_name(std::string(trimmed(part.substr(0, equals))));
        if (equals == part.size()) {
            fail(Code::invalid_argument, "'%.64s' is not key=value", part.c_str());
        }
        if (name != "recipe" && !is_layer_key(find_key(name).name) && !is_parameter_key(name)) {
            fail(Code::invalid_argument,
                 "'%.64s' is the same for all layers and parameters; rules may set recipe, "
                 "fp8.format and gemm.*, and of parameters master.dtype, weight.gather.dtype and "
                 "optimizer.*.dtype",
                 name.c_str());
        }
        rule.values.emplace_back(name, trimmed(std::string_view(part).substr(equals + 1)));
    }
    // The values alone: what they are together is judged with the recipe that they are for.
    Recipe scratch;
    set_values(scratch, rule, is_layer_key);
    set_values(scratch, rule, is_parameter_key);
    return rule;
}

} // namespace

LayerRules::LayerRules(std::string text) : text_(std::move(text)) {
    if (trimmed(text_).empty()) {
        return;
    }
    std::vector<LayerRule> rules;
    for (const std::string& part : parts_of(text_, ';')) {
        try {
            rules.push_back(parse_rule(part));
        } catch (const Error& error) {
            fail(error.status().code(), "recipe key 'layers', rule '%.64s': %s", part.c_str(),
                 error.status().text());
        }
    }
    rules_ = std::make_shared<const std::vector<LayerRule>>(std::move(rules));
}

namespace {

// What the rules say of a name, by the keys of one kind.
Recipe resolved(const Recipe& recipe, const std::string& name, KeyKind is_wanted) {
    Recipe own = recipe;
    own.layers = {};
    for (const LayerRule& rule : recipe.layers.list()) {
        if (!fitting(rule, name).empty()) {
            set_values(own, rule, is_wanted);
        }
    }
    return own;
}

// `what`: a layer or a parameter.
void check_resolved(const Recipe& own, const Recipe& recipe, const char* what,
                    const std::string& name) {
    try {
        check_recipe(own);
    } catch (const Error& error) {
        const std::string patterns = fitting_patterns(recipe, name);
        if (patterns.empty()) {
            throw;
        }
        fail(error.status().code(), "%s '%s', by the rules '%s' of the recipe's layers: %s", what,
             name.c_str(), patterns.c_str(), error.status().text());
    }
}

} // namespace

Recipe for_layer(const Recipe& recipe, const std::string& name) {
    Recipe own = resolved(recipe, name, is_layer_key);
    // Ranks gather those weights as codes that can be: not this one, where it has no one scale.
    own.fp8.gather = own.fp8.gather && (recipe.layers.empty() || has_one_scale(own.fp8));
    for (const Operand operand : {Operand::input, Operand::weight, Operand::grad_output}) {
        // The whole recipe's rounding is of the layers that round.
        if (recipe.fp8.rounds_stochastically(operand) && !recipe.layers.empty() &&
            reason_for_no_rounding(own, operand) != nullptr) {
            own.fp8.rounding[static_cast<std::size_t>(operand)] = RoundingMode::nearest;
        }
    }
    check_resolved(own, recipe, "layer", name);
    return own;
}

Recipe for_parameter(const Recipe& recipe, const std::string& name) {
    Recipe own = resolved(recipe, name, is_parameter_key);
    for (StatePolicy& state : own.states) {
        if (state.format == FormatId::fp32) { // a recipe's roundings are those of the whole step
            state.rounding = RoundingMode::nearest;
        }
    }
    check_resolved(own, recipe, "parameter", name);
    return own;
}

std::string fitting_patterns(const Recipe& recipe, const std::string& name) {
    std::string all;
    for (const LayerRule& rule : recipe.layers.list()) {
        const std::string pattern = fitting(rule, name);
        all += (all.empty() || pattern.empty() ? "" : ",") + pattern;
    }
    return all;
}

} // namespace mp::recipe
