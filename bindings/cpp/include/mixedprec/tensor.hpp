// SPDX-License-Identifier: Apache-2.0
// Tensors, and what is done to their elements or to plain memory: casts and quantization.
#pragma once

#include "context.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** Dense row-major elements of one type, owned by the library or borrowed. */
class Tensor : public Handle<mp_tensor, mp_tensor_destroy> {
  public:
    using Handle::Handle;
    /** The library's memory, zeros. */
    static result<Tensor> create(const Context& context, std::int32_t dtype, const Shape& shape) {
        const mp_tensor_desc desc = detail::tensor_desc(dtype, shape);
        return detail::make<Tensor>(mp_tensor_create, context, &desc);
    }
    /** Type and shape without memory, a parameter's: the optimizer that it is added to gives it memory. */
    static result<Tensor> deferred(const Context& context, std::int32_t dtype, const Shape& shape) {
        mp_tensor_desc desc = detail::tensor_desc(dtype, shape);
        desc.flags = MP_TENSOR_DEFERRED;
        return detail::make<Tensor>(mp_tensor_create, context, &desc);
    }
    /** The library's memory, filled. */
    template <class Values>
    static result<Tensor> from(const Context& context, const Values& values, const Shape& shape) {
        const mp_tensor_desc desc = detail::tensor_desc(dtype_in<Values>, shape);
        mp_tensor* raw = nullptr;
        mp_status status = mp_tensor_create(context.get(), &desc, &raw);
        if (status >= 0) // what fails then ends the tensor too
            status = mp_tensor_write(raw, nullptr, std::data(values), detail::bytes_of(values));
        Tensor tensor(raw, context.keep());
        return detail::give(status, tensor);
    }
    /** The caller's memory: `values` must stay where it is while this tensor, or what was given it, lives. Or `keep` keeps it. */
    template <class Values>
    static result<Tensor> wrap(const Context& context, Values&& values, const Shape& shape,
                               std::shared_ptr<void> keep = nullptr) {
        static_assert(
            !std::is_const_v<element_of<Values>>,
            "tensors are writable: wrap memory that is not const, or copy it with from()");
        if (shape.elements() != detail::count_of(values)) {
            return detail::fail<Tensor>(MP_STATUS_INVALID_SHAPE,
                                        "wrap: the shape has " + std::to_string(shape.elements()) +
                                            " elements, but the memory has " +
                                            std::to_string(std::size(values)));
        }
        return wrap_pointer(context, std::data(values),
                            detail::tensor_desc(dtype_in<Values>, shape), std::move(keep));
    }
    /** Memory of which only the address is known, also on an accelerator (desc.device_kind), or for a parameter or gradient while
     * it is in use (desc.flags MP_TENSOR_DEFERRED). */
    static result<Tensor> wrap_pointer(const Context& context, void* data,
                                       const mp_tensor_desc& desc,
                                       std::shared_ptr<void> keep = nullptr) {
        mp_tensor* raw = nullptr;
        auto held = keep ? std::make_unique<std::shared_ptr<void>>(std::move(keep)) : nullptr;
        const mp_status status =
            mp_tensor_wrap(context.get(), &desc, data, held ? drop : nullptr, held.get(), &raw);
        if (status >= 0)
            static_cast<void>(held.release()); // the deleter's now
        return detail::made<Tensor>(status, raw, context.keep());
    }
    /** Codes and scales of the caller's. */
    static result<Tensor> wrap_quantized(const Context& context, const mp_tensor_desc& desc,
                                         const QuantOptions& quant, void* codes, void* scale_inv,
                                         float* amax = nullptr) {
        return detail::make<Tensor>(mp_tensor_wrap_quantized, context, &desc, &quant, codes,
                                    scale_inv, amax, nullptr, nullptr);
    }
    static result<Tensor> create_quantized(const Context& context, std::int32_t dtype,
                                           const Shape& shape, const QuantOptions& quant = {}) {
        const mp_tensor_desc desc = detail::tensor_desc(dtype, shape);
        return detail::make<Tensor>(mp_tensor_create_quantized, context, &desc, &quant);
    }
    /** Takes a DLPack tensor over, also where it fails. */
    static result<Tensor> from_dlpack(const Context& context, DLManagedTensorVersioned* managed) {
        return detail::make<Tensor>(mp_dlpack_import, context, managed);
    }
    /** The consumer calls the deleter. */
    result<DLManagedTensorVersioned*> to_dlpack() const {
        return value<DLManagedTensorVersioned*>(mp_dlpack_export);
    }
    /** Some elements as a tensor of their own, without a copy. */
    result<Tensor> view(std::int64_t offset, const Shape& shape) const {
        return make<Tensor>(mp_tensor_create_view, offset, shape.ndim(), shape.data());
    }

    result<mp_tensor_desc> desc() const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        return detail::give(mp_tensor_get_desc(raw_, &desc), desc);
    }
    /** The memory, on its device, as long as the tensor lives. */
    result<void*> data() const { return value<void*>(mp_tensor_get_data); }
    /** The elements of a tensor on the host, of type T. Work that was enqueued must be over (Context::sync). */
    template <class T> result<span<T>> elements() const {
        return with_elements_of<span<T>, span<T>>([&](const mp_tensor_desc& desc) {
            void* data = nullptr;
            if (const mp_status status = mp_tensor_get_data(raw_, &data); status < 0)
                return detail::fail<span<T>>(status, mp_last_error_message());
            if (desc.device_kind != MP_DEVICE_HOST) {
                return detail::fail<span<T>>(
                    MP_STATUS_INVALID_ARGUMENT,
                    "elements: the tensor is not on the host: read() copies it");
            }
            return result<span<T>>(span<T>(static_cast<T*>(data), count_of(desc)));
        });
    }
    /** From and into an array, a container or a span of elements of this type. */
    template <class Values> result<void> write(const Values& values, QueueRef queue = {}) {
        return with_elements_of<void, Values>([&](const mp_tensor_desc&) {
            return call(mp_tensor_write, queue, std::data(values), detail::bytes_of(values));
        });
    }
    template <class Values> result<void> read(Values&& values, QueueRef queue = {}) const {
        return with_elements_of<void, Values>([&](const mp_tensor_desc&) {
            return call(mp_tensor_read, queue, std::data(values), detail::bytes_of(values));
        });
    }
    template <class T> result<std::vector<T>> to_vector(QueueRef queue = {}) const {
        using Values = std::vector<T>;
        return with_elements_of<Values, Values>([&](const mp_tensor_desc& desc) {
            Values values(count_of(desc));
            return detail::give(
                mp_tensor_read(raw_, queue.get(), values.data(), detail::bytes_of(values)), values);
        });
    }
    result<void> copy_to(const Tensor& destination, QueueRef queue = {}) const {
        return call(mp_tensor_copy, queue, destination);
    }
    result<void> zero(QueueRef queue = {}) { return call(mp_tensor_zero, queue); }
    result<void> cast_to(const Tensor& destination, const CastOptions& options = {},
                         QueueRef queue = {}) const {
        return call(mp_tensor_cast, queue, destination, &options);
    }
    /** amax: fp32, one element. */
    result<void> amax_to(const Tensor& amax, QueueRef queue = {}) const {
        return call(mp_tensor_amax, queue, amax);
    }

    /** Into a quantized tensor, and its transpose where wanted; stats makes the call wait. */
    result<void> quantize_to(const Tensor& destination, TensorRef transposed = {},
                             const QuantizeArgs& args = {}, QuantStats* stats = nullptr,
                             QueueRef queue = {}) const {
        return call(mp_tensor_quantize, queue, destination, transposed, &args, stats);
    }
    result<void> dequantize_to(const Tensor& destination, QueueRef queue = {}) const {
        return call(mp_tensor_dequantize, queue, destination);
    }
    result<Tensor> scales() const { return make<Tensor>(mp_tensor_get_scales); }
    result<Tensor> quantized_amax() const { return make<Tensor>(mp_tensor_get_quantized_amax); }
    result<QuantOptions> quant_options() const {
        return value<QuantOptions>(mp_tensor_get_quant_desc);
    }

  private:
    /* Bytes go straight between the tensor and memory, so the types must be the same. */
    template <class T, class Values, class Then> result<T> with_elements_of(Then then) const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        if (const mp_status status = mp_tensor_get_desc(raw_, &desc); status < 0)
            return detail::fail<T>(status, mp_last_error_message());
        if (desc.dtype == dtype_in<Values>)
            return then(desc);
        return detail::fail<T>(MP_STATUS_INVALID_DTYPE, std::string("the tensor has elements of ") +
                                                            mp_dtype_name(desc.dtype) +
                                                            ", but the memory has " +
                                                            mp_dtype_name(dtype_in<Values>));
    }
    static std::size_t count_of(const mp_tensor_desc& desc) {
        return static_cast<std::size_t>(
            Shape(desc.shape, static_cast<std::size_t>(desc.ndim)).elements());
    }
    static void drop(void* held) { delete static_cast<std::shared_ptr<void>*>(held); }
};

/** mp_tensor_cast on memory of the caller's. */
template <class From, class To>
result<void> cast(const Context& context, const From& source, To&& destination,
                  const CastOptions& options = {}, QueueRef queue = {}) {
    if (std::size(source) != std::size(destination)) {
        return detail::fail(MP_STATUS_INVALID_SHAPE, "cast: the source has " +
                                                         std::to_string(std::size(source)) +
                                                         " elements, the destination " +
                                                         std::to_string(std::size(destination)));
    }
    return detail::call(mp_tensor_cast_pointers, context, queue, std::data(source), dtype_in<From>,
                        std::data(destination), dtype_in<To>, detail::count_of(source), &options);
}

/** mp_tensor_quantize on memory of the caller's; the sizes in `destination` are believed. */
inline result<void> quantize(const Context& context, const void* source, std::int32_t dtype,
                             const QuantOptions& quant, const QuantizedMemory& destination,
                             const QuantizeArgs& args = {}, QueueRef queue = {}) {
    return detail::call(mp_tensor_quantize_pointers, context, queue, source, dtype, &quant,
                        &destination, &args);
}
inline result<void> dequantize(const Context& context, const QuantizedMemory& source,
                               const QuantOptions& quant, void* destination, std::int32_t dtype,
                               QueueRef queue = {}) {
    return detail::call(mp_tensor_dequantize_pointers, context, queue, &source, &quant, destination,
                        dtype);
}
struct ScaleGrid {
    std::int64_t rows = 0, columns = 0;
    std::int32_t dtype = 0;
};
inline result<ScaleGrid> scale_grid(const QuantOptions& quant, std::int64_t rows,
                                    std::int64_t columns) {
    ScaleGrid grid;
    return detail::give(
        mp_tensor_get_scale_grid(&quant, rows, columns, &grid.rows, &grid.columns, &grid.dtype),
        grid);
}

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
