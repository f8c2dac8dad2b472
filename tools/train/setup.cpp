// SPDX-License-Identifier: Apache-2.0
// Contexts and recipes as the options want them.
#include "setup.hpp"

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "text.hpp"

namespace train {
namespace {

// What is the same on every rank is said once.
void print_log(int32_t level, const char* message, void* payload) {
    if (static_cast<const Ranks*>(payload)->rank == 0 || level == MP_LOG_ERROR) {
        print(stderr, join("mixedprec_train: library ", level == MP_LOG_ERROR ? "error" : "warning",
                           ": ", message, "\n"));
    }
}

// KEY=VALUE, whatever the key holds; the library checks names and bounds.
void set_key(mp_recipe* recipe, const std::string& setting) {
    const std::string key = setting.substr(0, setting.find('='));
    const std::string value = setting.substr(key.size() + 1);
    mp_recipe_key_desc desc{};
    desc.struct_size = sizeof desc;
    int32_t type = MP_RECIPE_TYPE_STRING; // also of a key that does not exist
    for (int32_t i = 0; i < mp_recipe_key_count(); i++) {
        MP_CHECK(mp_recipe_get_key_info(i, &desc));
        type = key == desc.name ? desc.type : type;
    }
    if (type == MP_RECIPE_TYPE_STRING) {
        MP_CHECK(mp_recipe_set_string(recipe, key.c_str(), value.c_str()));
        return;
    }
    const bool is_whole = type == MP_RECIPE_TYPE_INT;
    char* end = nullptr;
    const long whole = std::strtol(value.c_str(), &end, 10);
    const double number = is_whole ? 0.0 : std::strtod(value.c_str(), &end);
    must<Failure>(!value.empty() && *end == '\0', "--set ", key, ": '", value, "' is not a ",
                  is_whole ? "whole number" : "number");
    if (is_whole) {
        MP_CHECK(mp_recipe_set_int(recipe, key.c_str(), whole));
    } else {
        MP_CHECK(mp_recipe_set_float(recipe, key.c_str(), number));
    }
}

} // namespace

Context make_context(const Options& o, const Ranks& ranks, int32_t& threads) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = static_cast<int32_t>(o.threads);
    desc.backend = o.backend.empty() ? nullptr : o.backend.c_str();
    desc.log = print_log;
    desc.log_payload = const_cast<Ranks*>(&ranks);
    Context context;
    MP_CHECK(mp_context_create(&desc, out(context)));
    MP_CHECK(mp_context_get_num_threads(context.get(), &threads));
    if (o.threads == 0 && ranks.neighbours > 1 && threads > 1) {
        context.reset();
        desc.num_threads = std::max(threads / ranks.neighbours, 1);
        MP_CHECK(mp_context_create(&desc, out(context)));
        MP_CHECK(mp_context_get_num_threads(context.get(), &threads));
    }
    omp_set_num_threads(threads);
    return context;
}

Recipe make_recipe(mp_context* context, const Options& o, const Ranks& ranks,
                   const std::string& name) {
    Recipe recipe;
    if (name.ends_with(".json")) {
        MP_CHECK(mp_recipe_create_from_file(context, name.c_str(), out(recipe)));
    } else {
        MP_CHECK(mp_recipe_create(context, name.c_str(), out(recipe)));
    }
    for (const std::string& setting : o.settings) {
        set_key(recipe.get(), setting);
    }
    std::string reason(256, '\0');
    MP_CHECK(mp_recipe_get_reason(recipe.get(), reason.data(), reason.size(), nullptr));
    if (reason.front() != '\0' && ranks.rank == 0) {
        print(stdout, join(name, ": ", reason.c_str(), "\n"));
    }
    return recipe;
}

Scaler make_scaler(mp_context* context, mp_recipe* recipe) {
    Scaler scaler;
    MP_CHECK(mp_scaler_create_from_recipe(context, recipe, out(scaler)));
    return scaler;
}

} // namespace train
