// SPDX-License-Identifier: Apache-2.0
// Values of keys, by their names: checked, set, and as text.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "recipe/keys.hpp"
#include "recipe/nearest.hpp"
#include "status/status.hpp"
#include "system/json_writer.hpp"

namespace mp::recipe {

namespace {

constexpr std::size_t kMostRuleBytes = 4096;

// Throws where no rules can be read from it.
void check_rules(const std::string& value) {
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (value.size() > kMostRuleBytes) {
        fail(Code::invalid_argument, "recipe key 'layers' has %zu bytes; at most %zu are read",
             value.size(), kMostRuleBytes);
    }
    if (!system::is_utf8(value) || std::any_of(value.begin(), value.end(), is_control)) {
        fail(Code::invalid_argument, "recipe key 'layers' is not UTF-8 of one line without tabs");
    }
}

// Whether `value` is one of "a|b|c".
bool is_allowed(const char* allowed, const std::string& value) {
    const std::string list = std::string("|") + allowed + "|";
    return value.find('|') == std::string::npos && !value.empty() &&
           list.find("|" + value + "|") != std::string::npos;
}

const char* type_name(KeyType type) {
    switch (type) {
    case KeyType::string:
        return "a string";
    case KeyType::floating:
        return "a number";
    case KeyType::integer:
        return "an integer";
    }
    return "?";
}

// What keys were called that are not about fp8 alone. Recipes in checkpoints have these names.
struct Synonym {
    const char* before;
    const char* now;
};
constexpr Synonym kSynonyms[] = {
    {"fp8.scaling", "gemm.scaling"},
    {"fp8.scale_rule", "gemm.scale_rule"},
    {"fp8.power_of_two_scale", "gemm.power_of_two_scale"},
    {"fp8.amax_epsilon", "gemm.amax_epsilon"},
    {"fp8.margin", "gemm.margin"},
    {"fp8.interval", "gemm.interval"},
    {"fp8.amax_history_len", "gemm.amax_history_len"},
    {"fp8.amax_compute_algo", "gemm.amax_compute_algo"},
    {"fp8.warm_up", "gemm.warm_up"},
    {"fp8.reduce_amax", "gemm.reduce_amax"},
    {"fp8.fast_accumulation", "gemm.fast_accumulation"},
    {"fp8.weight_copy", "gemm.weight_copy"},
    {"fp8.filter.multiple_of", "gemm.filter.multiple_of"},
    {"fp8.filter.first_last", "gemm.filter.first_last"},
    {"fp8.filter.size", "gemm.filter.size"},
    {"fp8.filter.names", "layers"},
    {"gemm.filter.names", "layers"}, // patterns alone
    {"fp8.fprop", "gemm.fprop.quantized"},
    {"fp8.dgrad", "gemm.dgrad.quantized"},
    {"fp8.wgrad", "gemm.wgrad.quantized"},
    {"fp8.all_gather", "weight.gather.codes"},
};

} // namespace

std::string current_name(const std::string& name) {
    for (const Synonym& known : kSynonyms) {
        if (name == known.before) {
            return known.now;
        }
    }
    return name;
}

const Key& find_key(const std::string& called) {
    const std::string name = current_name(called);
    std::vector<std::string> names;
    for (const Key& key : recipe_keys()) {
        if (name == key.name) {
            return key;
        }
        names.emplace_back(key.name);
    }
    fail(Code::unknown_name, "recipe has no key '%.64s'; nearest: %s", name.c_str(),
         nearest_names(name, names).c_str());
}

void set_key(Recipe& recipe, const Key& key, const std::string& value) {
    if (key.type != KeyType::string) {
        fail(Code::invalid_argument, "recipe key '%s' holds %s (%s), not the string \"%.64s\"",
             key.name, type_name(key.type), key.allowed, value.c_str());
    }
    if (key.allowed == kLayerRules) {
        check_rules(value);
    } else if (!is_allowed(key.allowed, value)) {
        fail(Code::invalid_argument, "recipe key '%s' is \"%.64s\"; it must be one of %s", key.name,
             value.c_str(), key.allowed);
    }
    key.set_string(recipe, value);
}

void set_key(Recipe& recipe, const Key& key, double value, KeyType type) {
    const bool integral = key.type == KeyType::integer;
    if (key.type == KeyType::string || (integral && type != KeyType::integer)) {
        fail(Code::invalid_argument, "recipe key '%s' holds %s (%s), not the number %g", key.name,
             type_name(key.type), key.allowed, value);
    }
    if (!(value >= key.minimum && value <= key.maximum)) {
        fail(Code::invalid_argument, "recipe key '%s' is %g; it must be in %s", key.name, value,
             key.allowed);
    }
    key.set_number(recipe, value);
}

std::string key_text(const Recipe& recipe, const Key& key) {
    if (key.type == KeyType::string) {
        return key.get_string(recipe);
    }
    std::array<char, 32> text{};
    const double value = key.get_number(recipe);
    const auto end =
        key.type == KeyType::integer
            ? std::to_chars(text.data(), text.data() + text.size(), static_cast<int64_t>(value))
            : std::to_chars(text.data(), text.data() + text.size(),
                            value); // shortest that reads back
    return {text.data(), end.ptr};
}

std::string recipe_title(const Recipe& recipe) {
    std::string best;
    std::size_t fewest = recipe_keys().size() + 1;
    for (const Preset& preset : presets()) {
        std::string title = preset.name;
        std::size_t differing = 0;
        for (const Key& key : recipe_keys()) {
            const std::string value = key_text(recipe, key);
            if (value != key_text(preset.recipe, key)) {
                title.append(", ").append(key.name).append(" ").append(value);
                ++differing;
            }
        }
        if (differing < fewest) {
            fewest = differing;
            best = std::move(title);
        }
    }
    return best;
}

} // namespace mp::recipe
