// SPDX-License-Identifier: Apache-2.0
// Calls of context, queue, tensor, quantization and gemm, their arguments chosen by bytes.
#pragma once

#include "fuzz/capi_world.hpp"

namespace mp::fuzz {

inline constexpr int64_t kShapes[][2] = {{4, 8}, {8, 8}, {1, 8},   {16, 32}, {32, 16},
                                         {2, 4}, {0, 8}, {128, 1}, {1, 1},   {3, 5}};
inline constexpr double kNumbers[] = {0.0, 1e-3, 1.0, 0.9, 0.999, 2.0, 65536.0, -1.0, 1e300, 0.5};

// A number that mostly makes sense.
inline double any_double(Bytes& bytes) {
    const std::size_t byte = bytes.next();
    if (byte >= 250) {
        return byte % 2 == 0 ? 1e308 * 10.0 : -(1e308 * 10.0) + 1e308 * 10.0;
    }
    return kNumbers[byte % std::size(kNumbers)];
}
inline int32_t any_dtype(Bytes& bytes) {
    const std::size_t byte = bytes.next();
    return byte < 200 ? static_cast<int32_t>(1 + byte % 5) : static_cast<int32_t>(byte) - 240;
}
// Of a small range, now and then beside it.
inline int32_t any_int(Bytes& bytes, int32_t below) {
    const std::size_t byte = bytes.next();
    return byte < 245 ? static_cast<int32_t>(byte) % below : static_cast<int32_t>(byte) - 250;
}
// Of an array that has so many; a negative one now and then.
inline int32_t any_count(Bytes& bytes, int32_t most) {
    const std::size_t byte = bytes.next();
    return byte < 250 ? static_cast<int32_t>(byte) % (most + 1) : 249 - static_cast<int32_t>(byte);
}

inline Sized<mp_tensor_desc> any_shape(Bytes& bytes, int32_t dtype) {
    Sized<mp_tensor_desc> desc(MP_TENSOR_DESC_INIT);
    mp_tensor_desc& value = desc.value;
    value.dtype = dtype;
    const std::size_t byte = bytes.next();
    const auto& shape = kShapes[byte % std::size(kShapes)];
    value.ndim = byte < 128 ? 2 : 1;
    value.shape[0] = shape[0];
    value.shape[1] = value.ndim == 2 ? shape[1] : 0;
    if (byte >= 240) {
        value.ndim = any_int(bytes, 10);
        value.shape[bytes.below(MP_MAX_DIMS)] = bytes.number();
        value.device_kind = any_int(bytes, 3);
        value.device_index = any_int(bytes, 2);
        value.flags = static_cast<uint32_t>(bytes.below(2));
    }
    desc.odd_size(bytes);
    return desc;
}

inline void create_context(Bytes& bytes, World& world) {
    constexpr const char* kBackends[] = {nullptr, "host", "reference", "kokkos", "nonsense"};
    Sized<mp_context_desc> desc(MP_CONTEXT_DESC_INIT);
    const std::size_t byte = bytes.next();
    desc.value.backend = kBackends[byte % (byte < 240 ? 4 : 5)];
    desc.value.num_threads = 1;
    if (byte >= 230) {
        desc.value.num_threads = any_int(bytes, 3);
        desc.value.device_kind = any_int(bytes, 3);
        desc.value.device_index = any_int(bytes, 2);
        desc.value.flags = static_cast<uint32_t>(bytes.below(3));
        desc.value.api_version = byte % 2 == 0 ? MP_VERSION : static_cast<uint32_t>(bytes.number());
        desc.value.log_level = any_int(bytes, 5);
        desc.odd_size(bytes);
    }
    const bool has_hook = desc.value.struct_size >= sizeof(mp_context_desc);
    desc.value.allocate = has_hook ? Ledger::allocate : nullptr;
    desc.value.release = has_hook ? Ledger::release : nullptr;
    desc.value.allocator_payload = &world.ledger;
    mp_context* made = nullptr;
    (void)MP_CALL(world, local, mp_context_create, &desc.value, &made);
    world.contexts.put(made);
}

inline void use_context(Bytes& bytes, World& world) {
    mp_context* context = world.contexts.pick(bytes, world.tensors.alive(0));
    char text[64];
    std::memset(text, 'm', sizeof text);
    std::size_t needed = 7;
    int32_t threads = -5;
    switch (bytes.below(6)) {
    case 0:
        if (MP_CALL(world, local, mp_context_describe, context, text, bytes.below(65), &needed)) {
            require(text[0] == 'm' && needed == 7, "describe fails without a word");
        }
        break;
    case 1:
        if (MP_CALL(world, local, mp_context_get_num_threads, context, &threads)) {
            require(threads == -5, "num_threads fails without a number");
        }
        break;
    case 2:
        (void)MP_CALL(world, local, mp_context_sync, context);
        break;
    case 3: {
        mp_queue* queue = nullptr;
        (void)MP_CALL(world, local, mp_queue_create, context, &queue);
        world.queues.put(queue);
        break;
    }
    case 4: {
        mp_queue* queue = world.queues.pick(bytes);
        void* native = nullptr;
        (void)MP_CALL(world, local, mp_queue_sync, queue);
        require(MP_CALL(world, local, mp_queue_get_native, queue, &native, sizeof native),
                "the host has no streams");
        break;
    }
    default:
        (void)MP_CALL(world, local, mp_device_available, any_int(bytes, 3), any_int(bytes, 3));
        break;
    }
}

// NULL or a queue.
inline mp_queue* any_queue(Bytes& bytes, World& world) {
    return bytes.next() < 200 ? nullptr : world.queues.pick(bytes, world.tensors.alive(1));
}
inline mp_tensor* any_tensor(Bytes& bytes, World& world) {
    return world.tensors.pick(bytes, world.contexts.alive(1));
}

// A tensor of this shape with small numbers, kept in a slot.
inline mp_tensor* fresh(World& world, mp_context* context, const mp_tensor_desc& desc) {
    mp_tensor* made = nullptr;
    if (!MP_CALL(world, local, mp_tensor_create, context, &desc, &made)) {
        void* data = nullptr;
        if (mp_tensor_get_data(made, &data) == MP_STATUS_OK && data != nullptr) {
            // Those of less than a byte and of blocks are bytes.
            const std::size_t size = std::max<std::size_t>(mp_dtype_size(desc.dtype), 1);
            const std::size_t bytes = bytes_of(desc);
            for (std::size_t i = 0; i < bytes; ++i) { // the upper byte of each number below 2
                static_cast<unsigned char*>(data)[i] =
                    i % size == size - 1 ? 0x3C : static_cast<unsigned char>(i * 37);
            }
        }
        world.tensors.put(made);
    }
    return made;
}
inline mp_tensor* fresh(World& world, mp_context* context, int32_t dtype, int64_t rows,
                        int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = columns < 0 ? 1 : 2;
    desc.shape[0] = rows;
    desc.shape[1] = columns < 0 ? 0 : columns;
    return fresh(world, context, desc);
}

inline void create_tensor(Bytes& bytes, World& world) {
    mp_context* context = world.contexts.pick(bytes, world.recipes.alive(1));
    const auto desc = any_shape(bytes, any_dtype(bytes));
    if (bytes.next() < 200) {
        (void)fresh(world, context, desc.value);
        return;
    }
    mp_tensor* made = nullptr;
    (void)MP_CALL(world, local, mp_tensor_create, context,
                  bytes.next() < 250 ? &desc.value : nullptr, bytes.next() < 250 ? &made : nullptr);
    world.tensors.put(made);
}

inline void wrap_tensor(Bytes& bytes, World& world) {
    mp_context* context = world.contexts.pick(bytes);
    const auto desc = any_shape(bytes, any_dtype(bytes));
    constexpr int64_t kMost = 1 << 14;
    int64_t elements = 1;
    for (int32_t i = 0; i < std::min(desc.value.ndim, MP_MAX_DIMS) && elements >= 0; ++i) {
        const int64_t dim = desc.value.shape[i];
        elements = dim < 0 || dim > kMost || elements * dim > kMost ? -1 : elements * dim;
    }
    const std::size_t byte = bytes.next();
    if (elements < 0) {
        return; // no caller has so much memory
    }
    const std::size_t size = mp_dtype_bytes(desc.value.dtype, elements);
    world.memory.push_back(std::make_unique<unsigned char[]>(size + 1));
    unsigned char* data = world.memory.back().get() + (byte >= 240 ? 1 : 0);
    const mp_deleter_fn count = [](void* payload) { ++*static_cast<int64_t*>(payload); };
    const mp_deleter_fn deleter = byte % 2 == 0 ? nullptr : count;
    mp_tensor* made = nullptr;
    if (!MP_CALL(world, local, mp_tensor_wrap, context, &desc.value, byte == 239 ? nullptr : data,
                 deleter, &world.deleted, &made)) {
        world.wrapped += deleter == nullptr ? 0 : 1;
    }
    world.tensors.put(made);
}

inline void look_at_tensor(Bytes& bytes, World& world) {
    mp_tensor* tensor = any_tensor(bytes, world);
    int mark = 0;
    void* data = &mark;
    switch (bytes.below(5)) {
    case 0: {
        auto desc = marked<mp_tensor_desc>(bytes);
        const auto before = desc;
        if (MP_CALL(world, local, mp_tensor_get_desc, tensor, &desc.value)) {
            require(desc == before, "get_desc fails without a word");
        }
        break;
    }
    case 1:
        if (MP_CALL(world, local, mp_tensor_get_data, tensor, &data)) {
            require(data == &mark, "data fails without a pointer");
        }
        break;
    case 2: {
        auto desc = marked<mp_quant_desc>(bytes);
        const auto before = desc;
        if (MP_CALL(world, local, mp_tensor_get_quant_desc, tensor, &desc.value)) {
            require(desc == before, "get_quant_desc fails without a word");
        }
        break;
    }
    case 3: {
        mp_tensor* made = nullptr;
        (void)MP_CALL(world, local, mp_tensor_get_scales, tensor, &made);
        world.tensors.put(made);
        break;
    }
    default: {
        mp_tensor* made = nullptr;
        (void)MP_CALL(world, local, mp_tensor_get_quantized_amax, tensor, &made);
        world.tensors.put(made);
        break;
    }
    }
}

inline void move_tensor(Bytes& bytes, World& world) {
    mp_tensor* tensor = any_tensor(bytes, world);
    mp_queue* queue = any_queue(bytes, world);
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    std::size_t size = 4;
    if (world.tensors.is_alive(tensor) && mp_tensor_get_desc(tensor, &desc) == MP_STATUS_OK) {
        size = bytes_of(desc);
    }
    const std::size_t byte = bytes.next();
    size += byte < 240 ? 0 : byte - 248;
    size = size > (std::size_t{1} << 20) ? 0 : size;
    std::vector<unsigned char> host(size + 1, 0x3D);
    const std::size_t call = bytes.below(6);
    mp_tensor* other = any_tensor(bytes, world);
    if (call >= 3 && byte < 180) { // one that fits
        desc.ndim = call == 5 ? 0 : desc.ndim;
        desc.dtype = call == 5 ? MP_DTYPE_FP32 : call == 4 ? any_dtype(bytes) : desc.dtype;
        other = fresh(world, world.contexts.pick(bytes), desc);
    }
    switch (call) {
    case 0:
        (void)MP_CALL(world, local, mp_tensor_write, tensor, queue, host.data(), size);
        break;
    case 1:
        if (MP_CALL(world, local, mp_tensor_read, tensor, queue, host.data(), size)) {
            require(host == std::vector<unsigned char>(size + 1, 0x3D),
                    "read fails without a byte");
        }
        break;
    case 2:
        (void)MP_CALL(world, local, mp_tensor_zero, tensor, queue);
        break;
    case 3:
        (void)MP_CALL(world, local, mp_tensor_copy, tensor, queue, other);
        break;
    case 4: {
        Sized<mp_cast_desc> cast(MP_CAST_DESC_INIT);
        cast.value.flags = static_cast<uint32_t>(any_int(bytes, 3));
        cast.value.rounding = any_int(bytes, 2);
        cast.value.seed = bytes.next();
        cast.odd_size(bytes);
        (void)MP_CALL(world, local, mp_tensor_cast, tensor, queue, other,
                      byte % 2 == 0 ? nullptr : &cast.value);
        break;
    }
    default:
        (void)MP_CALL(world, local, mp_tensor_amax, tensor, queue, other);
        break;
    }
}

inline void create_quantized(Bytes& bytes, World& world) {
    mp_context* context = world.contexts.pick(bytes);
    const std::size_t byte = bytes.next();
    const auto desc = any_shape(
        bytes, byte < 200 ? MP_DTYPE_FP8_E4M3 + static_cast<int32_t>(byte % 2) : any_dtype(bytes));
    Sized<mp_quant_desc> quant(MP_QUANT_DESC_INIT);
    quant.value.scaling = any_int(bytes, 10);
    quant.value.rule = byte % 3 == 0 ? any_int(bytes, 10) : 0;
    quant.value.margin = any_int(bytes, 4);
    quant.value.flags = static_cast<uint32_t>(any_int(bytes, 2));
    quant.value.amax_epsilon = byte % 5 == 0 ? any_double(bytes) : 0.0;
    quant.odd_size(bytes);
    mp_tensor* made = nullptr;
    (void)MP_CALL(world, local, mp_tensor_create_quantized, context, &desc.value,
                  byte % 7 == 0 ? nullptr : &quant.value, &made);
    world.tensors.put(made);
}

inline void quantize(Bytes& bytes, World& world) {
    mp_queue* queue = any_queue(bytes, world);
    mp_tensor* tensor = any_tensor(bytes, world);
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* plain = any_tensor(bytes, world);
    const std::size_t byte = bytes.next();
    if (byte < 200 && mp_tensor_get_desc(tensor, &desc) == MP_STATUS_OK) {
        desc.dtype = 1 + static_cast<int32_t>(byte % 3); // one that fits
        plain = fresh(world, world.contexts.pick(bytes), desc);
    }
    if (byte % 3 == 0) {
        (void)MP_CALL(world, local, mp_tensor_dequantize, tensor, queue, plain);
        return;
    }
    auto stats = marked<mp_quant_stats>(bytes);
    const auto before = stats;
    static float amax = 2.0F;
    Sized<mp_quantize_args> args(MP_QUANTIZE_ARGS_INIT);
    args.value.flags = static_cast<uint32_t>(any_int(bytes, 2));
    args.value.rounding = any_int(bytes, 2);
    args.value.first_element = any_int(bytes, 3);
    args.value.amax_pointer = byte % 5 == 0 ? nullptr : &amax;
    amax = 2.0F;
    args.odd_size(bytes);
    if (MP_CALL(world, local, mp_tensor_quantize, plain, queue, tensor,
                byte % 11 == 0 ? any_tensor(bytes, world) : nullptr,
                byte % 4 < 2 ? nullptr : &args.value, byte % 2 == 0 ? &stats.value : nullptr)) {
        require(stats == before, "quantize fails without a count");
    }
}

inline void use_gemm(Bytes& bytes, World& world) {
    const std::size_t byte = bytes.next();
    mp_queue* queue = any_queue(bytes, world);
    if (byte < 100) {
        Sized<mp_gemm_desc> desc(MP_GEMM_DESC_INIT);
        mp_gemm_desc& value = desc.value;
        value.m = any_int(bytes, 9);
        value.n = any_int(bytes, 9);
        value.k = any_int(bytes, 9);
        value.dtype_a = any_dtype(bytes);
        value.dtype_b = byte < 80 ? value.dtype_a : any_dtype(bytes);
        value.flags = static_cast<uint32_t>(bytes.below(byte < 80 ? 16 : 256));
        value.lda = byte < 80 ? 0 : any_int(bytes, 20);
        value.batch_count = byte < 80 ? 0 : any_int(bytes, 3);
        value.beta = byte % 2 == 0 ? 0.0 : any_double(bytes);
        value.alpha = any_double(bytes);
        value.scale_a_dtype = byte < 80 ? 0 : any_dtype(bytes);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        if (byte % 7 == 0) {
            quant.scaling = any_int(bytes, 10);
            value.dtype_d = any_dtype(bytes);
            value.quant_d = &quant;
        }
        value.implementation = byte % 9 == 0 ? "kokkos" : byte % 13 == 0 ? "none such" : nullptr;
        desc.odd_size(bytes);
        mp_gemm* made = nullptr;
        (void)MP_CALL(world, local, mp_gemm_create, world.contexts.pick(bytes), &value, &made);
        world.gemms.put(made);
        return;
    }
    mp_gemm* gemm = world.gemms.pick(bytes, world.tensors.alive(2));
    if (byte < 140) {
        std::size_t needed = 7;
        char text[32] = "marked";
        if (MP_CALL(world, local, mp_gemm_describe, gemm, text, sizeof text, &needed)) {
            require(needed == 7 && std::strcmp(text, "marked") == 0,
                    "describe fails without a word");
        }
        return;
    }
    if (byte < 200) {
        (void)MP_CALL(world, local, mp_gemm_run, gemm, queue, any_tensor(bytes, world),
                      any_tensor(bytes, world), byte % 3 == 0 ? any_tensor(bytes, world) : nullptr,
                      byte % 5 == 0 ? any_tensor(bytes, world) : nullptr, any_tensor(bytes, world));
        return;
    }
    Sized<mp_gemm_args> args(MP_GEMM_ARGS_INIT);
    args.value.a = any_tensor(bytes, world);
    args.value.b = any_tensor(bytes, world);
    args.value.d = any_tensor(bytes, world);
    args.value.scale_a = byte % 3 == 0 ? any_tensor(bytes, world) : nullptr;
    args.value.amax_d = byte % 5 == 0 ? any_tensor(bytes, world) : nullptr;
    args.odd_size(bytes);
    (void)MP_CALL(world, local, mp_gemm_run_scaled, gemm, queue, &args.value);
}

} // namespace mp::fuzz
