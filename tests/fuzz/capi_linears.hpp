// SPDX-License-Identifier: Apache-2.0
// Calls of linear layers and of what their forwards keep, their arguments chosen by bytes.
#pragma once

#include "fuzz/capi_recipes.hpp"

namespace mp::fuzz {

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

// Out, and in again where no byte is another.
inline void move_scaling(Bytes& bytes, World& world, mp_linear* linear) {
    std::vector<unsigned char> saved(4096, 0x5A);
    std::size_t needed = 7;
    if (MP_CALL(world, local, mp_linear_get_scaling, linear, saved.data(), saved.size(), &needed)) {
        require(needed == 7 && saved[0] == 0x5A, "scaling_save fails without a byte");
        return;
    }
    const std::size_t byte = bytes.next();
    needed = std::min(needed, saved.size());
    if (byte >= 128 && needed > 0) {
        saved[bytes.place(needed)] ^= static_cast<unsigned char>(1 << (byte % 8));
    }
    (void)MP_CALL(world, local, mp_linear_set_scaling, any_linear(bytes, world), saved.data(),
                  byte % 9 == 0 ? needed / 2 : needed);
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
    default:
        move_scaling(bytes, world, linear);
        break;
    }
}

// Memory for what a forward of so many rows keeps, a byte too little at times, or none.
inline void lend_to_saved(World& world, mp_linear* linear, mp_saved* saved, int64_t rows,
                          std::size_t byte) {
    std::size_t needed = 0;
    (void)MP_CALL(world, local, mp_linear_get_saved_bytes, linear, rows, &needed);
    const std::size_t size = std::min<std::size_t>(needed, 1U << 16) - (byte % 7 == 0 ? 1 : 0);
    if (needed == 0 || byte % 5 == 0) {
        (void)MP_CALL(world, local, mp_saved_set_memory, saved, nullptr, 0);
        return;
    }
    auto owned = std::make_unique<unsigned char[]>(size + 511);
    void* memory = owned.get();
    std::size_t space = size + 511;
    memory = std::align(256, size, memory, space);
    if (!MP_CALL(world, local, mp_saved_set_memory, saved, memory, size)) {
        world.memory.push_back(std::move(owned));
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
    case 4:
        lend_to_saved(world, linear, saved, rows, byte);
        break;
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
