// SPDX-License-Identifier: Apache-2.0
// Recipes as JSON: a flat object of dotted keys, canonical on the way out.
//
// Read by events, not into a tree: destroying nlohmann's trees takes memory, and where there is none ends the program.
#include <map>
#include <nlohmann/json.hpp>

#include "recipe/automatic.hpp"
#include "recipe/keys.hpp"
#include "status/status.hpp"
#include "system/json_writer.hpp"

namespace mp::recipe {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

struct Value {
    const char* type = ""; // JSON's word for it
    std::string text;
    double number = 0.0;
    bool is_integer = false;

    [[nodiscard]] bool is_string() const { return std::string_view(type) == "string"; }
    [[nodiscard]] bool is_number() const { return std::string_view(type) == "number"; }
};

// The keys and values of a flat object. Anything nested is refused before it can grow deep, and a key that comes twice,
// of which a tree would keep the last one.
class FlatObject final : public nlohmann::json_sax<Json> {
  public:
    bool null() override { return add({"null", {}, 0.0, false}); }
    bool boolean(bool /*value*/) override { return add({"boolean", {}, 0.0, false}); }
    bool number_integer(number_integer_t value) override {
        return add({"number", {}, static_cast<double>(value), true});
    }
    bool number_unsigned(number_unsigned_t value) override {
        return add({"number", {}, static_cast<double>(value), true});
    }
    bool number_float(number_float_t value, const string_t& /*text*/) override {
        return add({"number", {}, value, false});
    }
    bool string(string_t& value) override { return add({"string", value, 0.0, false}); }
    bool binary(binary_t& /*value*/) override { return add({"binary", {}, 0.0, false}); }

    bool start_object(std::size_t /*elements*/) override {
        refuse_nested();
        is_open_ = true;
        return true;
    }
    bool key(string_t& name) override {
        key_ = current_name(name);
        if (values.count(key_) != 0) {
            fail(Code::parse_error, "recipe: key '%.64s' appears twice", key_.c_str());
        }
        return true;
    }
    bool end_object() override { return true; }
    bool start_array(std::size_t /*elements*/) override {
        refuse_nested();
        return add({"array", {}, 0.0, false});
    }
    bool end_array() override { return true; }
    bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        fail(Code::parse_error, "recipe: %s", error.what());
    }

    std::map<std::string, Value> values;

  private:
    void refuse_nested() const {
        if (is_open_) {
            fail(Code::parse_error,
                 "recipe: values must be strings or numbers, not objects or arrays");
        }
    }
    bool add(Value value) {
        if (!is_open_) {
            fail(Code::parse_error,
                 "recipe: the JSON is %s; it must be an object like {\"recipe\": \"bf16_mixed\"}",
                 value.type);
        }
        values[key_] = std::move(value);
        return true;
    }

    bool is_open_ = false;
    std::string key_;
};

std::map<std::string, Value> parse(const char* text, std::size_t length) {
    if (length > kMaxBytes) {
        fail(Code::parse_error, "recipe: %zu bytes of JSON; at most %zu are read", length,
             kMaxBytes);
    }
    FlatObject object;
    (void)Json::sax_parse(text, text + length, &object);
    if (std::string_view(text, length).find('\0') != std::string_view::npos) {
        // The parser took it for the end.
        fail(Code::parse_error, "recipe: parse error: a NUL byte behind the object");
    }
    return std::move(object.values);
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
