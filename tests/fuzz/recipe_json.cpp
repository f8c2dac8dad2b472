// SPDX-License-Identifier: Apache-2.0
// Recipes from JSON: any bytes give a recipe or a status with words. What is accepted writes itself back as text
// that is accepted again and is the same.
#include <cstdlib>

#include "fuzz/target.hpp"
#include "mixedprec.h"

namespace {

mp_context* context() {
    static mp_context* const made = [] {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.num_threads = 1;
        mp_context* out = nullptr;
        if (mp_context_create(&desc, &out) != MP_STATUS_OK) {
            std::abort();
        }
        return out;
    }();
    return made;
}

using mp::fuzz::require;

std::string json_of(mp_recipe* recipe) {
    size_t needed = 0;
    require(mp_recipe_to_json(recipe, nullptr, 0, &needed) == MP_STATUS_OK);
    std::string text(needed, '\0');
    require(mp_recipe_to_json(recipe, text.data(), text.size(), nullptr) == MP_STATUS_OK);
    text.pop_back();
    return text;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    mp_recipe* recipe = nullptr;
    const mp_status status = mp_recipe_create_from_json(
        context(),
        reinterpret_cast<const char*>(size == 0 ? reinterpret_cast<const uint8_t*>("") : data),
        size, &recipe);
    if (status < 0) {
        require(recipe == nullptr);
        require(mp_last_error_message()[0] != '\0');
        return 0;
    }
    require(mp_recipe_validate(recipe) >= 0);
    const std::string text = json_of(recipe);
    mp_recipe* again = nullptr;
    require(mp_recipe_create_from_json(context(), text.data(), text.size(), &again) >= 0);
    require(json_of(again) == text);
    mp_recipe_destroy(again);
    mp_recipe_destroy(recipe);
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    std::vector<std::string> seeds = {
        "{}",
        R"({"recipe": "auto_fp8"})",
        R"({"recipe": "bf16_mixed", "gemm.scaling": "mx", "gemm.scale_rule": "mx_floor"})",
        R"({"recipe": "fp8_delayed", "gemm.amax_history_len": 16, "gemm.margin": 2})",
        R"({"recipe": "fp16_mixed", "scaler.init_scale": 1.5e3, "scaler.min_scale": 0})",
        "{\"recipe\": \"\\u0066p32\", \"grad.dtype\": \"bf16\"}",
    };
    for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = nullptr;
        require(mp_recipe_get_preset_info(i, &name, nullptr) == MP_STATUS_OK);
        mp_recipe* recipe = nullptr;
        require(mp_recipe_create(context(), name, &recipe) == MP_STATUS_OK);
        seeds.push_back(json_of(recipe));
        mp_recipe_destroy(recipe);
    }
    return seeds;
}
