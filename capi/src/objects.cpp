// SPDX-License-Identifier: Apache-2.0
#include "objects.hpp"

#include <algorithm>
#include <cstddef>

namespace mp::capi {
namespace {

void check_device(const Stream& stream, const Device& device, const char* what) {
    if (&stream.device() != &device) {
        fail(Code::invalid_argument,
             "queue belongs to another device than %s; make it from the same context", what);
    }
}

} // namespace

std::shared_ptr<Tensor> object_of(const mp_tensor* handle, const char* name) {
    std::shared_ptr<Tensor> tensor = shape_of(handle, name);
    tensor->require_memory(name);
    return tensor;
}

Stream& stream_of(mp_queue* queue, const Context& context) {
    if (queue == nullptr) {
        return context.stream();
    }
    Stream& stream = *object_of(queue, "queue")->stream;
    check_device(stream, context.stream().device(), "the object");
    return stream;
}

Stream& stream_of(mp_queue* queue, const Tensor& tensor) {
    if (queue == nullptr) {
        return tensor.stream();
    }
    Stream& stream = *object_of(queue, "queue")->stream;
    check_device(stream, tensor.device(), "the tensor");
    return stream;
}

DType any_dtype_of(int32_t number, const char* name, bool none_is_fine) {
    if (number == MP_DTYPE_NONE && none_is_fine) {
        return DType::none;
    }
    if (!is_valid(number)) {
        fail(Code::invalid_dtype, "%s is %d; it must be one of MP_DTYPE_* (1..%d)", name, number,
             kDTypeCount);
    }
    return static_cast<DType>(number);
}

DType dtype_of(int32_t number, const char* name, bool none_is_fine) {
    const DType dtype = any_dtype_of(number, name, none_is_fine);
    if (is_in_blocks(dtype)) {
        fail(Code::invalid_dtype,
             "%s is %s, codes in blocks; those are frozen weights and B of products alone, and "
             "mp_tensor_dequantize makes numbers of them",
             name, dtype_name(dtype));
    }
    return dtype;
}

const recipe::Recipe& use_recipe(mp_recipe* recipe) {
    RecipeObject& object = *object_of(recipe, "recipe");
    recipe::check_recipe(object.recipe);
    object.frozen.store(true);
    return object.recipe;
}

mp_tensor* device_number(const std::shared_ptr<Context>& context, std::shared_ptr<const void> owner,
                         float* number) {
    using Keeper = std::shared_ptr<const void>;
    auto keeper = std::make_unique<Keeper>(std::move(owner));
    const Deleter deleter = {[](void* payload) { delete static_cast<Keeper*>(payload); },
                             keeper.get(), true};
    auto tensor = std::make_shared<Tensor>(context, context->stream(), DType::fp32, Shape{{1}, 1},
                                           number, deleter);
    (void)keeper.release(); // the tensor's now
    return make_handle<mp_tensor>(std::move(tensor));
}

void check_lent(const void* memory, std::size_t bytes) {
    constexpr int64_t kAlignment = 256;
    if (memory == nullptr && bytes != 0) {
        fail(Code::invalid_argument, "memory is NULL but bytes is %zu; it must be 0", bytes);
    }
    if (!is_aligned(memory, kAlignment)) {
        fail(Code::invalid_argument, "memory at %p is not aligned to 256 bytes", memory);
    }
}

void check_flags(uint32_t flags, uint32_t known, const char* name) {
    if ((flags & ~known) != 0) {
        fail(Code::invalid_argument, "%s is 0x%x; this library knows the bits 0x%x", name, flags,
             known);
    }
}

} // namespace mp::capi
