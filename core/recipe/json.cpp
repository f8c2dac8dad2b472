// SPDX-License-Identifier: Apache-2.0
// Recipes as JSON: a flat object of dotted keys, canonical on the way out.
#include <nlohmann/json.hpp>
#include <set>

#include "recipe/automatic.hpp"
#include "recipe/keys.hpp"
#include "status/status.hpp"

namespace mp {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

// The parser keeps the last of two equal keys silently, so they are counted as they come. A recipe is flat:
// anything nested is refused before it can grow deep.
class FlatObject {
  public:
    bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start ||
            event == Json::parse_event_t::array_start) {
            if (depth > 0) {
                fail(Code::parse_error,
                     "recipe: values must be strings or numbers, not objects or arrays");
            }
        }
        if (event == Json::parse_event_t::key && !seen_.insert(parsed.get<std::string>()).second) {
            fail(Code::parse_error, "recipe: key '%.64s' appears twice",
                 parsed.get<std::string>().c_str());
        }
        return true;
    }

  private:
    std::set<std::string> seen_;
};

Json parse(const char* text, std::size_t length) {
    if (length > kMaxBytes) {
        fail(Code::parse_error, "recipe: %zu bytes of JSON; at most %zu are read", length,
             kMaxBytes);
    }
    Json json;
    try {
        json = Json::parse(
            text, text + length,
            [object = FlatObject()](int depth, Json::parse_event_t event, Json& parsed) mutable {
                return object(depth, event, parsed);
            });
    } catch (const Json::exception& error) {
        fail(Code::parse_error, "recipe: %s", error.what());
    }
    if (!json.is_object()) {
        fail(Code::parse_error,
             "recipe: the JSON is %s; it must be an object like {\"recipe\": \"bf16_mixed\"}",
             json.type_name());
    }
    return json;
}

void set_from_json(Recipe& recipe, const Key& key, const Json& value) {
    if (value.is_string()) {
        set_key(recipe, key, value.get<std::string>());
    } else if (value.is_number()) {
        set_key(recipe, key, value.get<double>(),
                value.is_number_integer() ? KeyType::integer : KeyType::floating);
    } else {
        fail(Code::invalid_argument, "recipe key '%s' is %s; it must be a string or a number (%s)",
             key.name, value.type_name(), key.allowed);
    }
}

} // namespace

NamedRecipe recipe_from_json(const char* text, std::size_t length,
                             const DeviceCapability& capability) {
    const Json json = parse(text, length);
    std::string name = "fp32";
    if (const auto base = json.find("recipe"); base != json.end()) {
        if (!base->is_string()) {
            fail(Code::invalid_argument,
                 "recipe: \"recipe\" is %s; it must be the name of a preset", base->type_name());
        }
        name = base->get<std::string>();
    }
    const PresetChoice choice = resolve_preset(name, capability);
    NamedRecipe result{choice.preset->recipe, choice.preset->name, choice.reason};
    for (const auto& [key, value] : json.items()) {
        if (key != "recipe") {
            set_from_json(result.recipe, find_key(key), value);
        }
    }
    check_recipe(result.recipe);
    return result;
}

std::string recipe_to_json(const Recipe& recipe, const std::string& name) {
    std::string text = "{\n  \"recipe\": \"" + name + "\"";
    for (const Key& key : recipe_keys()) {
        const std::string value = key_text(recipe, key);
        text += ",\n  \"" + std::string(key.name) + "\": ";
        text += key.type == KeyType::string ? "\"" + value + "\"" : value;
    }
    return text + "\n}\n";
}

} // namespace mp
