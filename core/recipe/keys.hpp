// SPDX-License-Identifier: Apache-2.0
// The one table of recipe keys: name, type, bounds, meaning, and where in Recipe the value lives.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "recipe/recipe.hpp"

namespace mp::recipe {

// The numbers of MP_RECIPE_TYPE_*.
enum class KeyType : int32_t { string = 1, floating = 2, integer = 3 };

struct Key {
    const char* name;
    KeyType type;
    const char* allowed; // strings "a|b|c", numbers "min..max"
    const char* text;
    // Set and get by type; the two of the other types are null.
    const char* (*get_string)(const Recipe&) = nullptr;
    void (*set_string)(Recipe&, const std::string&) = nullptr; // after the check against `allowed`
    double (*get_number)(const Recipe&) = nullptr; // integers too: they are all below 2^31
    void (*set_number)(Recipe&, double) = nullptr;
    double minimum = 0.0;
    double maximum = 0.0;
};

// `allowed` of the key that holds rules for layers. Compared by address.
inline constexpr char kLayerRules[] =
    "patterns of names: key=value, ...; such as lm_head*,h0.?: recipe=bf16_mixed";

std::span<const Key> recipe_keys();
// The name of a key that has had another one; any other text as it is.
std::string current_name(const std::string& name);
// By either name. Throws unknown_name with the nearest keys.
const Key& find_key(const std::string& called);
// Throw invalid_argument when type or value do not fit the key.
void set_key(Recipe& recipe, const Key& key, const std::string& value);
void set_key(Recipe& recipe, const Key& key, double value, KeyType type);
// The value as canonical text: a string as it is, an integer without a point, a float in shortest form.
std::string key_text(const Recipe& recipe, const Key& key);

} // namespace mp::recipe
