// SPDX-License-Identifier: Apache-2.0
// mixedprec recipe list | keys | show | diff | check
#include "program.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::vector<std::string> names;
    std::vector<std::string> settings;
};

Result list(const Options&) {
    Result result;
    Table table({"recipe", "what it is"});
    result.json["recipes"] = Json::array();
    for (const auto& preset : mixedprec::Recipe::presets()) {
        table.add({preset.name, preset.text});
        result.json["recipes"].push_back({{"name", preset.name}, {"text", preset.text}});
    }
    const auto context = host_context(1);
    for (const char* name : {"auto", "auto_fp8"}) {
        const std::string reason = mixedprec::Recipe::create(context, name).reason();
        table.add({name, reason});
        result.json["recipes"].push_back({{"name", name}, {"text", reason}});
    }
    result.text = table.text();
    return result;
}

const char* type_name(int32_t type) {
    return type == MP_RECIPE_TYPE_STRING  ? "text"
           : type == MP_RECIPE_TYPE_FLOAT ? "number"
                                          : "whole number";
}

Result keys(const Options&) {
    Result result;
    Table table({"key", "allowed", "in fp32", "what it means"});
    result.json["keys"] = Json::array();
    for (const auto& key : mixedprec::Recipe::keys()) {
        table.add({key.name, key.allowed, key.fp32_value, key.text});
        result.json["keys"].push_back({{"name", key.name},
                                       {"type", type_name(key.type)},
                                       {"allowed", key.allowed},
                                       {"fp32", key.fp32_value},
                                       {"text", key.text}});
    }
    result.text = table.text();
    return result;
}

Json json_of(const mixedprec::Recipe& recipe) { return Json::parse(recipe.to_json()); }

Result show(const Options& options) {
    const auto context = host_context(1);
    const auto recipe = open_recipe(context, options.names.at(0), options.settings);
    Result result;
    result.json = json_of(recipe);
    const std::string reason = recipe.reason();
    Table table({"key", "value", "what it means"});
    for (const auto& key : mixedprec::Recipe::keys()) {
        const Json& value = result.json.at(key.name);
        table.add(
            {key.name, value.is_string() ? value.get<std::string>() : value.dump(), key.text});
    }
    result.text = table.text() + (reason.empty() ? "" : "\n" + reason + "\n");
    return result;
}

std::string text_of(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

Result diff(const Options& options) {
    const auto context = host_context(1);
    must<UsageError>(options.names.size() == 2, "recipe diff wants two recipes");
    const Json a = json_of(open_recipe(context, options.names[0])),
               b = json_of(open_recipe(context, options.names[1]));
    Result result;
    Table table({"key", options.names[0], options.names[1]});
    result.json = {
        {"a", options.names[0]}, {"b", options.names[1]}, {"differences", Json::array()}};
    for (const auto& key : mixedprec::Recipe::keys()) {
        if (a.at(key.name) != b.at(key.name)) {
            table.add({key.name, text_of(a.at(key.name)), text_of(b.at(key.name))});
            result.json["differences"].push_back(
                {{"key", key.name}, {"a", a.at(key.name)}, {"b", b.at(key.name)}});
        }
    }
    result.text = table.empty() ? "no key differs\n" : table.text();
    return result;
}

// Every problem of each, and advice.
Result check(const Options& options) {
    const auto context = host_context(1);
    Result result;
    Table table({"recipe", "verdict", "why"});
    result.json["recipes"] = Json::array();
    for (const std::string& name : options.names) {
        std::string verdict = "good", why;
        try {
            const auto recipe = open_recipe(context, name, options.settings);
            recipe.validate();
            if (!mixedprec::note().empty()) {
                verdict = "advice";
                why = mixedprec::note();
            }
        } catch (const mixedprec::Error& error) {
            verdict = "refused";
            why = error.what();
            result.code = kFailed;
        }
        table.add({name, verdict, why});
        result.json["recipes"].push_back({{"name", name}, {"verdict", verdict}, {"why", why}});
    }
    result.text = table.text();
    return result;
}

} // namespace

void add_recipe(Program& program) {
    const Subcommand recipe =
        program.add_family("recipe", "presets and recipe files: list, keys, show, diff, check");
    auto options = std::make_shared<Options>();
    program.add_below(recipe, "list", "the presets, and what \"auto\" takes here", options, list);
    program.add_below(recipe, "keys", "every key: what it may be and what it means", options, keys);
    const std::string what = "a preset, auto, auto_fp8, or a .json file";
    Subcommand one = program.add_below(recipe, "show", "every key of one recipe", options, show);
    one.add("recipe", options->names, what, {.required = true, .count = 1});
    Subcommand two =
        program.add_below(recipe, "diff", "the keys in which two recipes differ", options, diff);
    two.add("recipes", options->names, what, {.required = true, .count = 2});
    Subcommand many =
        program.add_below(recipe, "check", "every problem of recipes, and advice", options, check);
    many.add("recipes", options->names, what, {.required = true});
    for (Subcommand app : {one, many}) {
        app.add("--set", options->settings, "KEY=VALUE instead of the recipe's; may be repeated",
                {.may_repeat = true});
    }
}

} // namespace command
