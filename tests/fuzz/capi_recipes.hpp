// SPDX-License-Identifier: Apache-2.0
// Calls of recipe and scaler, their arguments chosen by bytes.
#pragma once

#include <cmath>

#include "fuzz/capi_tensors.hpp"

namespace mp::fuzz {

inline mp_recipe* any_recipe(Bytes& bytes, World& world) {
    return world.recipes.pick(bytes, world.tensors.alive(3));
}

inline void create_recipe(Bytes& bytes, World& world) {
    constexpr const char* kTexts[] = {R"({"recipe": "fp32"})",
                                      R"({"recipe": "fp8_delayed", "gemm.interval": 2})",
                                      R"({"optimizer.exp_avg.dtype": "int8_block256"})", "{", ""};
    mp_context* context = world.contexts.pick(bytes, world.tensors.alive(3));
    mp_recipe* made = nullptr;
    const std::size_t byte = bytes.next();
    if (byte >= 220) {
        const char* text = kTexts[byte % std::size(kTexts)];
        (void)MP_CALL(world, local, mp_recipe_create_from_json, context, text, std::strlen(text),
                      &made);
    } else {
        const char* name = nullptr;
        (void)mp_recipe_get_preset_info(static_cast<int32_t>(byte) % mp_recipe_preset_count(),
                                        &name, nullptr);
        (void)MP_CALL(world, local, mp_recipe_create, context,
                      byte == 219   ? "auto"
                      : byte == 218 ? "fp31"
                                    : name,
                      &made);
    }
    world.recipes.put(made);
}

// One of the values that are allowed, or a word.
inline std::string any_value(Bytes& bytes, const char* allowed) {
    std::vector<std::string> values = {"", "nonsense"};
    std::string word;
    for (const char* c = allowed;; ++c) {
        if (*c == '|' || *c == '\0') {
            values.push_back(word);
            word.clear();
        } else {
            word += *c;
        }
        if (*c == '\0') {
            break;
        }
    }
    const std::size_t byte = bytes.next();
    return values[byte >= 250 ? byte % 2 : 2 + byte % (values.size() - 2)];
}

inline void set_key(Bytes& bytes, World& world) {
    mp_recipe* recipe = any_recipe(bytes, world);
    Sized<mp_recipe_key_desc> key(mp_recipe_key_desc{});
    const int32_t index = static_cast<int32_t>(bytes.next());
    (void)MP_CALL(world, local, mp_recipe_get_key_info,
                  index < 250 ? index % mp_recipe_key_count() : -1, &key.value);
    const char* name = key.value.name == nullptr ? "no.such" : key.value.name;
    const std::size_t byte = bytes.next();
    const int32_t type = byte < 240 ? key.value.type : any_int(bytes, 4);
    if (type == MP_RECIPE_TYPE_FLOAT) {
        (void)MP_CALL(world, local, mp_recipe_set_float, recipe, name, any_double(bytes));
    } else if (type == MP_RECIPE_TYPE_INT) {
        (void)MP_CALL(world, local, mp_recipe_set_int, recipe, name, any_int(bytes, 20));
    } else {
        const std::string value =
            any_value(bytes, key.value.allowed == nullptr ? "" : key.value.allowed);
        (void)MP_CALL(world, local, mp_recipe_set_string, recipe, name,
                      byte == 239 ? nullptr : value.c_str());
    }
}

inline void look_at_recipe(Bytes& bytes, World& world) {
    mp_recipe* recipe = any_recipe(bytes, world);
    char text[48] = "marked";
    std::size_t needed = 7;
    switch (bytes.below(6)) {
    case 0:
        (void)MP_CALL(world, local, mp_recipe_validate, recipe);
        break;
    case 1:
        if (MP_CALL(world, local, mp_recipe_to_json, recipe, text, bytes.below(49), &needed)) {
            require(needed == 7 && std::strcmp(text, "marked") == 0,
                    "to_json fails without a word");
        }
        break;
    case 2: {
        const char* value = text;
        if (MP_CALL(world, local, mp_recipe_get_string, recipe,
                    bytes.next() < 128 ? "weight.dtype" : "gemm.margin", &value)) {
            require(value == text, "get_string fails without a value");
        }
        break;
    }
    case 3: {
        double number = -7.0;
        int64_t integer = -7;
        const char* key = bytes.next() < 128 ? "scaler.init_scale" : "gemm.margin";
        (void)MP_CALL(world, local, mp_recipe_get_float, recipe, key, &number);
        (void)MP_CALL(world, local, mp_recipe_get_int, recipe, key, &integer);
        break;
    }
    case 4:
        if (MP_CALL(world, local, mp_recipe_get_reason, recipe, text, sizeof text, &needed)) {
            require(needed == 7 && std::strcmp(text, "marked") == 0, "reason fails without a word");
        }
        break;
    default: {
        auto report = marked<mp_memory_report>(bytes);
        const auto before = report;
        if (MP_CALL(world, local, mp_recipe_plan_memory, recipe,
                    static_cast<int32_t>(bytes.number() % 5), bytes.number(), &report.value)) {
            require(report == before, "memory fails without a number");
        }
        break;
    }
    }
}

inline mp_scaler* any_scaler(Bytes& bytes, World& world) {
    return world.scalers.pick(bytes, world.tensors.alive(4));
}

inline void create_scaler(Bytes& bytes, World& world) {
    constexpr const char* kNames[] = {"torch", "megatron", "deepspeed", "apex", "nonsense", ""};
    mp_context* context = world.contexts.pick(bytes);
    mp_scaler* made = nullptr;
    const std::size_t byte = bytes.next();
    if (byte < 80) {
        (void)MP_CALL(world, local, mp_scaler_create_from_recipe, context, any_recipe(bytes, world),
                      &made);
    } else {
        Sized<mp_scaler_desc> desc(MP_SCALER_DESC_INIT);
        if (byte < 160) {
            const auto before = desc;
            if (MP_CALL(world, local, mp_scaler_desc_preset, &desc.value, sizeof desc.value,
                        kNames[byte % std::size(kNames)])) {
                require(desc == before, "a preset fails without a word");
            }
        } else {
            desc.value.kind = any_int(bytes, 3);
            desc.value.growth_interval = any_int(bytes, 4);
            desc.value.hysteresis = any_int(bytes, 4);
            desc.value.init_scale = any_double(bytes);
            desc.value.growth_factor = byte % 2 == 0 ? 0.0 : any_double(bytes);
            desc.value.max_scale = byte % 3 == 0 ? 0.0 : any_double(bytes);
            desc.value.flags = static_cast<uint32_t>(any_int(bytes, 4));
            desc.odd_size(bytes);
        }
        (void)MP_CALL(world, local, mp_scaler_create, context,
                      byte % 9 == 0 ? nullptr : &desc.value, &made);
    }
    world.scalers.put(made);
}

inline void use_scaler(Bytes& bytes, World& world) {
    mp_scaler* scaler = any_scaler(bytes, world);
    mp_queue* queue = any_queue(bytes, world);
    double scale = -7.0;
    switch (bytes.below(5)) {
    case 0:
        if (MP_CALL(world, local, mp_scaler_get_scale, scaler, queue, &scale)) {
            require(scale == -7.0, "scale fails without a number");
        }
        break;
    case 1:
        (void)MP_CALL(world, local, mp_scaler_update, scaler, queue);
        break;
    case 2: {
        auto state = marked<mp_scaler_state>(bytes);
        const auto before = state;
        world.look();
        const mp_status status = mp_scaler_get_state(scaler, queue, &state.value);
        if (world.failed("mp_scaler_get_state", status, Kind::local)) {
            require(state == before || status == MP_STATUS_BAD_STATE, // at the minimum
                    "get_state fails without a number");
        }
        break;
    }
    case 3: {
        Sized<mp_scaler_state> state(mp_scaler_state{});
        state.value.scale = any_double(bytes);
        state.value.growth_tracker = any_int(bytes, 9);
        state.value.hysteresis_tracker = any_int(bytes, 3);
        state.value.found_inf = static_cast<uint32_t>(any_int(bytes, 2));
        state.odd_size(bytes);
        (void)MP_CALL(world, local, mp_scaler_set_state, scaler, queue, &state.value);
        break;
    }
    default: {
        const float values[] = {1.0F, bytes.next() < 128 ? 2.0F : INFINITY};
        const void* const grads[] = {bytes.next() < 250 ? values : nullptr, values + 1};
        const int32_t dtypes[] = {MP_DTYPE_FP32,
                                  bytes.next() < 200 ? MP_DTYPE_BF16 : any_dtype(bytes)};
        const int64_t elements[] = {any_count(bytes, 2), 1};
        (void)MP_CALL(world, local, mp_scaler_check_pointers, scaler, queue, any_count(bytes, 2),
                      grads, dtypes, elements);
        break;
    }
    }
}

} // namespace mp::fuzz
