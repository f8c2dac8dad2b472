// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

namespace command {

mixedprec::Context host_context(int threads, const char* backend) {
    mixedprec::ContextOptions options;
    options.num_threads = threads;
    options.backend = backend;
    return mixedprec::Context::create(options);
}

namespace {

const mixedprec::RecipeKey& key_info(const std::vector<mixedprec::RecipeKey>& keys,
                                     const std::string& key) {
    const auto found = std::find_if(keys.begin(), keys.end(),
                                    [&](const auto& known) { return key == known.name; });
    must<UsageError>(found != keys.end(), "the recipe has no key '", key,
                     "': `mixedprec recipe keys` lists them");
    return *found;
}

void set_key(mixedprec::Recipe& recipe, const std::string& setting) {
    const size_t equals = setting.find('=');
    must<UsageError>(equals != std::string::npos && equals > 0, "--set wants KEY=VALUE, not '",
                     setting, "'");
    const std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
    const std::vector<mixedprec::RecipeKey> keys = mixedprec::Recipe::keys();
    const int32_t type = key_info(keys, key).type;
    if (type == MP_RECIPE_TYPE_STRING) {
        recipe.set(key.c_str(), value);
        return;
    }
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    must<UsageError>(!value.empty() && *end == '\0' && std::isfinite(number), "--set ", key, ": '",
                     value, "' is not a number");
    if (type == MP_RECIPE_TYPE_FLOAT) {
        recipe.set(key.c_str(), number);
        return;
    }
    must<UsageError>(number == std::floor(number) && std::fabs(number) < 9e15, "--set ", key, ": '",
                     value, "' is not a whole number");
    recipe.set(key.c_str(), static_cast<std::int64_t>(number));
}

} // namespace

mixedprec::Recipe open_recipe(const mixedprec::Context& context, const std::string& name,
                              const std::vector<std::string>& settings) {
    mixedprec::Recipe recipe = name.ends_with(".json") ? mixedprec::Recipe::from_file(context, name)
                                                       : mixedprec::Recipe::create(context, name);
    for (const std::string& setting : settings) {
        set_key(recipe, setting);
    }
    return recipe;
}

std::vector<std::string> recipe_names(const std::string& list) {
    std::vector<std::string> names;
    if (list == "all") {
        for (const auto& preset : mixedprec::Recipe::presets()) {
            names.emplace_back(preset.name);
        }
        return names;
    }
    names = split(list, ',');
    must<UsageError>(std::find(names.begin(), names.end(), "") == names.end(), "'", list,
                     "' has an empty name");
    return names;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts{""};
    for (const char c : text) {
        if (c == separator) {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

std::string counted(size_t count, const std::string& what) {
    return join(count, " ", what, count == 1 ? "" : "s");
}

std::string bytes_text(double bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (; bytes >= 1024.0 && unit + 1 < std::size(kUnits); unit++) {
        bytes /= 1024.0;
    }
    return unit == 0 ? format("%.0f B", bytes)
                     : format("%.*f %s",
                              bytes < 10.0    ? 2
                              : bytes < 100.0 ? 1
                                              : 0,
                              bytes, kUnits[unit]);
}

double parse_size(const std::string& text, bool decimal, const std::string& option) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    std::string unit = end;
    bool is_decimal = decimal;
    if (!decimal && unit.ends_with("iB")) {
        unit.resize(unit.size() - 2);
    } else if (!decimal && unit.size() == 2 && unit.ends_with("B")) {
        unit.resize(1);
        is_decimal = true;
    }
    const std::string known =
        decimal ? "KMBT" : "KMGT"; // 7B is a number of parameters, 80G one of bytes
    const size_t place =
        unit.empty() ? std::string::npos : known.find(static_cast<char>(std::toupper(unit[0])));
    const bool good = end != text.c_str() && std::isfinite(number) && number >= 0.0 &&
                      (unit.empty() || (unit.size() == 1 && place != std::string::npos));
    must<UsageError>(good, option, " wants a number such as ",
                     decimal ? "124M, 7B or 1e9" : "80G, 512MiB or 1e9", ", not '", text, "'");
    const double scaled =
        unit.empty() ? number : number * std::pow(is_decimal ? 1000.0 : 1024.0, real(place) + 1.0);
    must<UsageError>(scaled <= 36028797018963968.0, option, " ", text,
                     " is above 2^55"); // the library's bound
    return scaled;
}

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

} // namespace command
