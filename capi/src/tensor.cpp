// SPDX-License-Identifier: Apache-2.0
// tensor.h
#include <algorithm>

#include "boundary.hpp"
#include "device_kinds.hpp"
#include "objects.hpp"
#include "rounding.hpp"
#include "runtime/select.hpp"
#include "tensor/memory_ranges.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

static_assert(MP_MAX_DIMS == kMaxDims);

Shape mp::capi::checked_shape(int32_t ndim, const int64_t* sizes, DType dtype, const char* what) {
    if (ndim < 0 || ndim > MP_MAX_DIMS) {
        fail(Code::invalid_shape, "%s: ndim is %d; it must be in 0..%d", what,
             static_cast<int>(ndim), MP_MAX_DIMS);
    }
    Shape shape;
    shape.ndim = ndim;
    if (ndim > 0) {
        std::copy_n(required(sizes, "shape"), ndim, shape.sizes.begin());
    }
    check_shape(shape, dtype, what);
    return shape;
}

TensorSpec mp::capi::spec_of(const Context& context, const mp_tensor_desc* source,
                             uint32_t known_flags) {
    const auto desc = read_struct(source, "desc");
    check_flags(desc.flags, known_flags, "flags");
    TensorSpec spec{};
    spec.is_deferred = (desc.flags & MP_TENSOR_DEFERRED) != 0;
    spec.dtype = any_dtype_of(desc.dtype, "desc.dtype");
    spec.shape = checked_shape(desc.ndim, desc.shape, spec.dtype, "tensor");
    spec.stream = desc.device_kind == MP_DEVICE_DEFAULT
                      ? &context.stream()
                      : &context.stream_of(device_kind_of(desc.device_kind), desc.device_index);
    return spec;
}

namespace {

// Memory of two devices may have the same numbers.
void check_apart(const Tensor& source, const char* name, const Tensor& destination,
                 const char* destination_name, const char* call) {
    const bool are_plain = source.scales() == nullptr && destination.scales() == nullptr;
    if (&source.device() != &destination.device() || (are_plain && !source.overlaps(destination))) {
        return; // small calls are all over a program, so this one is not to be felt
    }
    MemoryRanges ranges;
    ranges.add(name, MemoryRanges::Use::read, &source);
    ranges.add(destination_name, MemoryRanges::Use::written, &destination);
    ranges.check(call);
}

void check_same_elements(const Tensor& source, const Tensor& destination, const char* call) {
    if (source.count() != destination.count()) {
        fail(Code::invalid_shape,
             "%s: source is %s but destination is %s; both must have the same number of elements",
             call, source.shape().text().c_str(), destination.shape().text().c_str());
    }
    check_apart(source, "source", destination, "destination", call);
}

void check_same_device(const Tensor& a, const Tensor& b, const char* call) {
    if (&a.device() != &b.device()) {
        fail(Code::invalid_argument,
             "%s: the tensors are on different devices; copy one with mp_tensor_copy", call);
    }
}

void check_castable(const Tensor& tensor, const char* name) {
    if (tensor.scales() != nullptr) {
        fail(Code::invalid_dtype,
             "%s is quantized, so its elements are codes; use mp_tensor_quantize and "
             "mp_tensor_dequantize",
             name);
    }
    if (!is_floating(tensor.dtype())) {
        fail(Code::invalid_dtype, "%s is %s; it must be fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2",
             name, dtype_name(tensor.dtype()));
    }
}

void check_bytes(const Tensor& tensor, std::size_t bytes) {
    if (bytes != tensor.bytes()) {
        fail(Code::invalid_shape, "bytes is %zu but the tensor %s has %zu", bytes,
             tensor.shape().text().c_str(), tensor.bytes());
    }
}

// The stream of the side that is not the host.
Stream& copy_stream(mp_queue* queue, const Tensor& source, const Tensor& destination) {
    return stream_of(queue, destination.device().is_host() ? source : destination);
}

bool saturates(const mp_cast_desc& desc, DType destination) {
    if ((desc.flags & MP_CAST_SATURATE) != 0 && (desc.flags & MP_CAST_NO_SATURATE) != 0) {
        fail(Code::invalid_argument,
             "cast: MP_CAST_SATURATE and MP_CAST_NO_SATURATE exclude each other");
    }
    const bool is_fp8 = mp::is_fp8(destination);
    return is_fp8 ? (desc.flags & MP_CAST_NO_SATURATE) == 0 : (desc.flags & MP_CAST_SATURATE) != 0;
}

CastDesc cast_of(const TensorRef& source, const TensorRef& destination, const mp_cast_desc* desc) {
    const auto options = read_optional_struct(desc, "desc");
    check_flags(options.flags, MP_CAST_SATURATE | MP_CAST_NO_SATURATE, "flags");
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = source;
    op.destination = destination;
    op.saturate = saturates(options, destination.dtype);
    op.rounding = rounding_of(options, "cast");
    return op;
}

} // namespace

mp_status mp_tensor_create(mp_context* context, const mp_tensor_desc* desc, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const TensorSpec spec = spec_of(*owner, desc, MP_TENSOR_DEFERRED);
        check_plain(spec.dtype, "tensor");
        auto tensor =
            spec.is_deferred
                ? std::make_shared<Tensor>(owner, *spec.stream, spec.dtype, spec.shape, Deferred{})
                : std::make_shared<Tensor>(owner, *spec.stream, spec.dtype, spec.shape);
        complete(*spec.stream);
        *out = make_handle<mp_tensor>(std::move(tensor));
    });
}

mp_status mp_tensor_wrap(mp_context* context, const mp_tensor_desc* desc, void* data,
                         mp_deleter_fn deleter, void* payload, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        owner->give_back_due();
        const TensorSpec spec = spec_of(*owner, desc, MP_TENSOR_DEFERRED);
        check_plain(spec.dtype, "tensor");
        if (data == nullptr && spec.shape.count() > 0) {
            fail(Code::null_argument, "data is NULL but the tensor %s has elements",
                 spec.shape.text().c_str());
        }
        if (!is_aligned(data, spec.dtype)) {
            fail(Code::invalid_argument, "data at %p is not aligned to the %lld bytes of a %s",
                 data, static_cast<long long>(dtype_size(spec.dtype)), dtype_name(spec.dtype));
        }
        // The deleter is attached last: on failure the memory stays the caller's.
        mp_tensor* handle = make_handle<mp_tensor>(nullptr);
        try {
            const Deleter given{deleter, payload};
            handle->object = spec.is_deferred
                                 ? std::make_shared<Tensor>(owner, *spec.stream, spec.dtype,
                                                            spec.shape, data, given, Deferred{})
                                 : std::make_shared<Tensor>(owner, *spec.stream, spec.dtype,
                                                            spec.shape, data, given);
        } catch (...) {
            destroy_handle(handle);
            throw;
        }
        *out = handle;
    });
}

mp_status mp_tensor_create_view(mp_tensor* tensor, int64_t offset, int32_t ndim,
                                const int64_t* shape, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Tensor> parent = object_of(tensor, "tensor");
        *out = make_handle<mp_tensor>(std::make_shared<Tensor>(
            parent, offset, checked_shape(ndim, shape, parent->dtype(), "view")));
    });
}

void mp_tensor_destroy(mp_tensor* tensor) { destroy_handle(tensor); }

mp_status mp_tensor_get_desc(const mp_tensor* tensor, mp_tensor_desc* desc) {
    return boundary([&] {
        const Tensor& object = *shape_of(tensor, "tensor");
        mp_tensor_desc result = MP_TENSOR_DESC_INIT;
        result.flags = object.is_deferred() ? MP_TENSOR_DEFERRED : 0U;
        result.dtype = static_cast<int32_t>(object.dtype());
        result.ndim = object.shape().ndim;
        std::copy(object.shape().sizes.begin(), object.shape().sizes.end(), result.shape);
        result.device_kind = static_cast<int32_t>(object.device().kind());
        result.device_index = object.device().index();
        write_struct(desc, result, "desc");
    });
}

mp_status mp_tensor_get_data(const mp_tensor* tensor, void** data) {
    return boundary([&] { *required(data, "data") = object_of(tensor, "tensor")->data(); });
}

mp_status mp_tensor_copy(const mp_tensor* source, mp_queue* queue, mp_tensor* destination) {
    return boundary([&] {
        const Tensor& from = *object_of(source, "source");
        Tensor& to = *object_of(destination, "destination");
        if (from.dtype() != to.dtype() || from.format().grid != to.format().grid) {
            const bool is_quantized = from.scales() != nullptr || to.scales() != nullptr;
            fail(Code::invalid_dtype, "mp_tensor_copy: source is %s but destination is %s; use %s",
                 format_text(from.format()).c_str(), format_text(to.format()).c_str(),
                 is_quantized ? "mp_tensor_quantize and mp_tensor_dequantize" : "mp_tensor_cast");
        }
        check_same_elements(from, to, "mp_tensor_copy");
        if (from.scales() != nullptr && from.columns() != to.columns()) {
            fail(Code::invalid_shape,
                 "mp_tensor_copy: source is %s but destination is %s; quantized ones must have the "
                 "same rows",
                 from.shape().text().c_str(), to.shape().text().c_str());
        }
        copy_tensor(copy_stream(queue, from, to), from, to);
    });
}

mp_status mp_tensor_write(mp_tensor* tensor, mp_queue* queue, const void* data, size_t bytes) {
    return boundary([&] {
        Tensor& object = *object_of(tensor, "tensor");
        check_bytes(object, bytes);
        if (bytes > 0) {
            Stream& stream = stream_of(queue, object);
            stream.copy(object.data(), required(data, "data"), bytes, CopyKind::host_to_device);
            stream.sync();
        }
    });
}

mp_status mp_tensor_read(const mp_tensor* tensor, mp_queue* queue, void* data, size_t bytes) {
    return boundary([&] {
        const Tensor& object = *object_of(tensor, "tensor");
        check_bytes(object, bytes);
        if (bytes > 0) {
            Stream& stream = stream_of(queue, object);
            stream.copy(required(data, "data"), object.data(), bytes, CopyKind::device_to_host);
            stream.sync();
        }
    });
}

mp_status mp_tensor_zero(mp_tensor* tensor, mp_queue* queue) {
    return boundary([&] {
        Tensor& object = *object_of(tensor, "tensor");
        if (object.count() > 0) {
            Stream& stream = stream_of(queue, object);
            stream.zero(object.data(), object.bytes());
        }
    });
}

mp_status mp_tensor_cast(const mp_tensor* source, mp_queue* queue, mp_tensor* destination,
                         const mp_cast_desc* desc) {
    return boundary([&] {
        const Tensor& from = *object_of(source, "source");
        Tensor& to = *object_of(destination, "destination");
        check_castable(from, "source");
        check_castable(to, "destination");
        check_same_device(from, to, "mp_tensor_cast");
        check_same_elements(from, to, "mp_tensor_cast");
        const CastDesc op = cast_of(from.ref(), to.ref(), desc);
        run_op(stream_of(queue, to), op);
    });
}

mp_status mp_tensor_cast_pointers(mp_context* context, mp_queue* queue, const void* source,
                                  int32_t source_dtype, void* destination,
                                  int32_t destination_dtype, int64_t count,
                                  const mp_cast_desc* desc) {
    return boundary([&] {
        const Context& owner = *object_of(context, "context");
        Stream& stream = stream_of(queue, owner);
        // Tensors that own nothing, so that memory is checked as theirs is.
        const Shape shape{{count}, 1};
        const auto on_memory = [&](const void* data, int32_t number, const char* name) {
            const DType dtype = dtype_of(number, name);
            check_shape(shape, dtype, "cast");
            if (count > 0) {
                (void)required(data, name);
            }
            if (!is_aligned(data, dtype)) {
                fail(Code::invalid_argument, "cast: %s at %p is not aligned to its elements", name,
                     data);
            }
            return std::make_unique<Tensor>(object_of(context, "context"), stream, dtype, shape,
                                            const_cast<void*>(data), Deleter{});
        };
        const auto from = on_memory(source, source_dtype, "source");
        const auto to = on_memory(destination, destination_dtype, "destination");
        check_castable(*from, "source");
        check_castable(*to, "destination");
        check_same_elements(*from, *to, "mp_tensor_cast_pointers");
        run_op(stream, cast_of(from->ref(), to->ref(), desc));
    });
}

mp_status mp_tensor_amax(const mp_tensor* tensor, mp_queue* queue, mp_tensor* amax) {
    return boundary([&] {
        const Tensor& from = *object_of(tensor, "tensor");
        const Tensor& to = *object_of(amax, "amax");
        check_castable(from, "tensor");
        if (to.dtype() != DType::fp32 || to.count() != 1) {
            fail(Code::invalid_shape, "amax is %s %s; it must be one fp32 element",
                 dtype_name(to.dtype()), to.shape().text().c_str());
        }
        check_same_device(from, to, "mp_tensor_amax");
        check_apart(from, "the tensor", to, "amax", "mp_tensor_amax");
        AmaxDesc op{};
        op.kind = OpKind::amax;
        op.source = from.ref();
        op.result = static_cast<float*>(to.data());
        run_op(stream_of(queue, from), op);
    });
}
