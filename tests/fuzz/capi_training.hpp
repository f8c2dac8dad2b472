// SPDX-License-Identifier: Apache-2.0
// Calls of recipe, scaler and linear, their arguments chosen by bytes.
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

inline mp_linear* any_linear(Bytes& bytes, World& world) {
    return world.linears.pick(bytes, world.tensors.alive(5));
}
inline constexpr int64_t kFeatures[][2] = {{8, 4}, {16, 32}, {8, 8}, {32, 16}}; // in, out

inline void create_linear(Bytes& bytes, World& world) {
    mp_context* context = world.contexts.pick(bytes);
    const std::size_t byte = bytes.next();
    const auto& sizes = kFeatures[byte % std::size(kFeatures)];
    Sized<mp_linear_desc> desc(MP_LINEAR_DESC_INIT);
    desc.value.in_features = byte < 245 ? sizes[0] : bytes.number();
    desc.value.out_features = sizes[1];
    desc.value.flags = static_cast<uint32_t>(any_int(bytes, 32));
    desc.odd_size(bytes);
    mp_tensor* weight =
        byte < 220 ? fresh(world, context, 1 + static_cast<int32_t>(byte % 3), sizes[1], sizes[0])
                   : any_tensor(bytes, world);
    mp_tensor* bias = byte % 5 == 0   ? fresh(world, context, MP_DTYPE_FP32, sizes[1], -1)
                      : byte % 5 == 1 ? any_tensor(bytes, world)
                                      : nullptr;
    mp_linear* made = nullptr;
    (void)MP_CALL(world, local, mp_linear_create, context, any_recipe(bytes, world), &desc.value,
                  weight, bias, &made);
    world.linears.put(made);
}

// Forward and its gradients, with tensors that fit most of the time.
inline void use_linear(Bytes& bytes, World& world) {
    mp_linear* linear = any_linear(bytes, world);
    mp_queue* queue = any_queue(bytes, world);
    mp_context* context = world.contexts.pick(bytes);
    const std::size_t byte = bytes.next();
    const auto& sizes = kFeatures[bytes.below(std::size(kFeatures))];
    const int64_t rows = static_cast<int64_t>(bytes.below(3)) * 8;
    const auto dtype = 1 + static_cast<int32_t>(byte % 3);
    const bool fits = byte < 230;
    const auto tensor = [&](int64_t height, int64_t width) {
        return fits ? fresh(world, context, dtype, height, width) : any_tensor(bytes, world);
    };
    const uint32_t flags = byte % 7 == 0 ? static_cast<uint32_t>(any_int(bytes, 3)) : 0;
    mp_tensor* x = tensor(rows, sizes[0]); // dx may be x, and y dy
    mp_tensor* y = tensor(rows, sizes[1]);
    mp_tensor* dw = tensor(sizes[1], sizes[0]);
    mp_tensor* dbias = byte % 3 == 0 ? tensor(sizes[1], -1) : nullptr;
    const std::size_t call = bytes.below(4);
    if (call >= 2 && byte % 2 == 0) { // which the gradients of weights need
        (void)MP_CALL(world, local, mp_linear_forward, linear, queue, x, y);
    }
    switch (call) {
    case 0:
        (void)MP_CALL(world, local, mp_linear_forward, linear, queue, x, y);
        break;
    case 1:
        (void)MP_CALL(world, local, mp_linear_backward_data, linear, queue, y, x);
        break;
    case 2:
        (void)MP_CALL(world, local, mp_linear_backward_weight, linear, queue, y, dw, dbias, flags);
        break;
    default:
        (void)MP_CALL(world, local, mp_linear_backward, linear, queue, y, x, dw, dbias, flags);
        break;
    }
}

inline void look_at_linear(Bytes& bytes, World& world) {
    mp_linear* linear = any_linear(bytes, world);
    char text[64] = "marked";
    std::size_t needed = 7;
    mp_linear* both[] = {linear, any_linear(bytes, world)};
    switch (bytes.below(8)) {
    case 0:
        (void)MP_CALL(world, local, mp_linear_end_step, both, any_count(bytes, 2),
                      any_queue(bytes, world), nullptr);
        break;
    case 1: {
        auto stats = marked<mp_linear_stats>(bytes);
        const auto before = stats;
        if (MP_CALL(world, local, mp_linear_get_stats, linear, any_int(bytes, 3), &stats.value)) {
            require(stats == before, "stats fails without a number");
        }
        break;
    }
    case 2:
        if (MP_CALL(world, local, mp_linear_get_advice, linear, any_int(bytes, 3), text,
                    sizeof text, &needed)) {
            require(needed == 7 && std::strcmp(text, "marked") == 0, "advice fails without a word");
        }
        break;
    case 3:
        if (MP_CALL(world, local, mp_linear_describe, linear, text, sizeof text, &needed)) {
            require(needed == 7 && std::strcmp(text, "marked") == 0,
                    "describe fails without a word");
        }
        break;
    case 4:
        (void)MP_CALL(world, local, mp_linear_clear_stats, linear, any_queue(bytes, world));
        break;
    case 5:
        (void)MP_CALL(world, local, mp_linear_set_monitor, linear, bytes.next() < 250 ? "layer" : nullptr,
                      any_int(bytes, 3),
                      bytes.next() < 250 ? [](void* /*payload*/, const char* name,
                                              const mp_linear_stats* stats,
                                              const char* /*advice*/) {
                          require(name != nullptr && stats != nullptr, "a monitor is told");
                      } : static_cast<mp_linear_monitor_fn>(nullptr),
                      nullptr);
        break;
    default: { // out, and in again where no byte is another
        std::vector<unsigned char> saved(4096, 0x5A);
        if (MP_CALL(world, local, mp_linear_get_scaling, linear, saved.data(), saved.size(),
                    &needed)) {
            require(needed == 7 && saved[0] == 0x5A, "scaling_save fails without a byte");
            break;
        }
        const std::size_t byte = bytes.next();
        needed = std::min(needed, saved.size());
        if (byte >= 128 && needed > 0) {
            saved[bytes.place(needed)] ^= static_cast<unsigned char>(1 << (byte % 8));
        }
        (void)MP_CALL(world, local, mp_linear_set_scaling, any_linear(bytes, world), saved.data(),
                      byte % 9 == 0 ? needed / 2 : needed);
        break;
    }
    }
}

// What forwards keep, in handles and in memory lent for it; codes instead of numbers.
inline void use_saved(Bytes& bytes, World& world) {
    mp_linear* linear = any_linear(bytes, world);
    mp_queue* queue = any_queue(bytes, world);
    mp_context* context = world.contexts.pick(bytes);
    mp_saved* saved = world.saveds.pick(bytes);
    const auto& sizes = kFeatures[bytes.below(std::size(kFeatures))];
    const int64_t rows = static_cast<int64_t>(bytes.below(3)) * 8;
    const std::size_t byte = bytes.next();
    const auto tensor = [&](int64_t width) {
        return byte < 230 ? fresh(world, context, 1 + static_cast<int32_t>(byte % 3), rows, width)
                          : any_tensor(bytes, world);
    };
    mp_tensor* x = tensor(sizes[0]);
    mp_tensor* y = tensor(sizes[1]);
    mp_tensor* any = any_tensor(bytes, world);
    mp_tensor* other = any_tensor(bytes, world);
    switch (bytes.below(8)) {
    case 0: {
        mp_saved* made = nullptr;
        (void)MP_CALL(world, local, mp_saved_create, linear, &made);
        world.saveds.put(made);
        break;
    }
    case 1:
    case 2:
        (void)MP_CALL(world, local, mp_linear_forward_saved, linear, queue, x,
                      byte % 5 == 0 ? nullptr : y, saved, static_cast<uint32_t>(any_int(bytes, 3)));
        break;
    case 3:
        (void)MP_CALL(world, local, mp_linear_backward_saved, linear, queue, saved, y,
                      byte % 3 == 0 ? nullptr : x, byte % 3 == 1 ? nullptr : any, nullptr,
                      static_cast<uint32_t>(any_int(bytes, 2)));
        break;
    case 4: {
        std::size_t needed = 0;
        (void)MP_CALL(world, local, mp_linear_get_saved_bytes, linear, rows, &needed);
        const std::size_t size = std::min<std::size_t>(needed, 1U << 16) - (byte % 7 == 0 ? 1 : 0);
        if (needed == 0 || byte % 5 == 0) {
            (void)MP_CALL(world, local, mp_saved_set_memory, saved, nullptr, 0);
            break;
        }
        auto owned = std::make_unique<unsigned char[]>(size + 511);
        void* memory = owned.get();
        std::size_t space = size + 511;
        memory = std::align(256, size, memory, space);
        if (!MP_CALL(world, local, mp_saved_set_memory, saved, memory, size)) {
            world.memory.push_back(std::move(owned));
        }
        break;
    }
    case 5:
        (void)MP_CALL(world, local, mp_linear_quantize, linear, queue, any_int(bytes, 3),
                      any_int(bytes, 3), any, other);
        break;
    case 6:
        (void)MP_CALL(world, local, mp_linear_set_weight_codes, linear,
                      byte % 2 == 0 ? nullptr : any, byte % 3 == 0 ? nullptr : other);
        break;
    default: {
        Sized<mp_cast_desc> desc(MP_CAST_DESC_INIT);
        desc.value.rounding = any_int(bytes, 2);
        desc.value.microbatch = any_int(bytes, 3);
        desc.odd_size(bytes);
        (void)MP_CALL(world, local, mp_linear_set_gradient_rounding, linear, &desc.value);
        break;
    }
    }
}

} // namespace mp::fuzz
