// SPDX-License-Identifier: Apache-2.0
// Recipes as JSON: a flat object of dotted keys, canonical on the way out.
#include <map>

#include "recipe/automatic.hpp"
#include "recipe/keys.hpp"
#include "status/status.hpp"
#include "system/json_reader.hpp"
#include "system/json_writer.hpp"

namespace mp::recipe {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

struct Value {
    const char* type = ""; // JSON's word for it
    std::string text;
    double number = 0.0;
    bool is_integer = false;

    [[nodiscard]] bool is_string() const { return std::string_view(type) == "string"; }
    [[nodiscard]] bool is_number() const { return std::string_view(type) == "number"; }
};

Value value_of(system::JsonReader& reader) {
    Value value;
    value.type = reader.type();
    if (value.is_string()) {
        value.text = reader.string();
    } else if (value.is_number()) {
        value.is_integer = reader.is_integer();
        value.number = reader.number();
    } else {
        reader.skip_value();
    }
    return value;
}

std::map<std::string, Value> parse(const char* text, std::size_t length) {
    if (length > kMaxBytes) {
        fail(Code::parse_error, "recipe: %zu bytes of JSON; at most %zu are read", length,
             kMaxBytes);
    }
    constexpr const char* kForm = R"(it must be an object like {"recipe": "bf16_mixed"}, )"
                                  "whose values are strings or numbers, not objects or arrays";
    system::JsonReader reader({text, length}, {"recipe", Code::parse_error, 1, kForm});
    if (!reader.take('{')) {
        reader.refuse("the JSON is %s; %s", reader.type(), kForm);
    }
    std::map<std::string, Value> values;
    if (reader.take('}')) {
        return values;
    }
    do {
        const std::string key = current_name(std::string(reader.key()));
        if (!values.emplace(key, value_of(reader)).second) {
            reader.refuse("key '%.64s' appears twice", key.c_str());
        }
    } while (reader.another('}'));
    return values;
}

void set_from_json(Recipe& recipe, const Key& key, const Value& value) {
    if (value.is_string()) {
        set_key(recipe, key, value.text);
    } else if (value.is_number()) {
        set_key(recipe, key, value.number, value.is_integer ? KeyType::integer : KeyType::floating);
    } else {
        fail(Code::invalid_argument, "recipe key '%s' is %s; it must be a string or a number (%s)",
             key.name, value.type, key.allowed);
    }
}

} // namespace

NamedRecipe recipe_from_json(const char* text, std::size_t length,
                             const DeviceCapability& capability) {
    const std::map<std::string, Value> values = parse(text, length);
    std::string name = "fp32";
    if (const auto base = values.find("recipe"); base != values.end()) {
        if (!base->second.is_string()) {
            fail(Code::invalid_argument,
                 "recipe: \"recipe\" is %s; it must be the name of a preset", base->second.type);
        }
        name = base->second.text;
    }
    const PresetChoice choice = resolve_preset(name, capability);
    NamedRecipe result{choice.preset->recipe, choice.preset->name, choice.reason};
    for (const auto& [key, value] : values) {
        if (key != "recipe") {
            set_from_json(result.recipe, find_key(key), value);
        }
    }
    check_recipe(result.recipe);
    return result;
}

std::string recipe_to_json(const Recipe& recipe, const std::string& name) {
    system::JsonWriter json(system::JsonForm::indented);
    json.begin('{');
    json.text("recipe", name);
    for (const Key& key : recipe_keys()) {
        const std::string value = key_text(recipe, key);
        json.key(key.name);
        if (key.type == KeyType::string) {
            json.text(value);
        } else {
            json.literal(value);
        }
    }
    json.end();
    return json.take() + "\n";
}

} // namespace mp::recipe
