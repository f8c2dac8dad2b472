// SPDX-License-Identifier: Apache-2.0
// dlpack.h
#include <algorithm>
#include <string>

#include "boundary.hpp"
#include "dlpack_layout.hpp"
#include "objects.hpp"
#include "process/float_environment.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

using dlpack::Device;
using dlpack::ManagedTensorVersioned;

// Calls the producer's deleter unless the tensor has been taken over.
class ReleaseGuard {
  public:
    explicit ReleaseGuard(ManagedTensorVersioned* managed) : managed_(managed) {}
    ReleaseGuard(const ReleaseGuard&) = delete;
    ReleaseGuard& operator=(const ReleaseGuard&) = delete;
    ~ReleaseGuard() { release(managed_); }
    void keep() { managed_ = nullptr; }

    static void release(void* payload) {
        auto* managed = static_cast<ManagedTensorVersioned*>(payload);
        if (managed != nullptr && managed->deleter != nullptr) {
            const process::CallerFloats floats;
            managed->deleter(managed);
        }
    }

  private:
    ManagedTensorVersioned* managed_;
};

Stream& stream_of_device(const Context& context, Device device) {
    const int32_t type = device.device_type;
    std::string known;
    for (const DeviceKindRow& row : kDeviceKinds) {
        if (type == row.dlpack_pinned) {
            return context.host_stream();
        }
        if (type == row.dlpack_memory || (type == row.dlpack_managed && type != 0)) {
            return context.stream_of(row.kind, device.device_id);
        }
        known += known.empty() ? "" : ", ";
        known += std::string(row.name) + " (" + std::to_string(row.dlpack_memory) + ")";
    }
    fail(Code::unsupported, "dlpack: device type %d is none of %s", type, known.c_str());
}

DType dtype_of(dlpack::DataType type) {
    const DType dtype = type.lanes == 1 ? dtype_from_dlpack(type.code, type.bits) : DType::none;
    if (dtype == DType::none) {
        fail(Code::invalid_dtype,
             "dlpack: type code %d with %d bits and %d lanes has no counterpart here", type.code,
             type.bits, type.lanes);
    }
    return dtype;
}

Shape shape_of(const dlpack::Tensor& tensor, DType dtype) {
    if (tensor.ndim < 0 || tensor.ndim > kMaxDims) {
        fail(Code::invalid_shape, "dlpack: ndim is %d; it must be in 0..%d", tensor.ndim, kMaxDims);
    }
    Shape shape;
    shape.ndim = tensor.ndim;
    if (tensor.ndim > 0) {
        std::copy_n(required(tensor.shape, "dlpack: shape"), tensor.ndim, shape.sizes.begin());
    }
    check_plain(dtype, "dlpack");
    check_shape(shape, dtype, "dlpack");
    return shape;
}

// NULL strides mean row-major; the stride of a dimension of size 1 means nothing.
void check_row_major(const dlpack::Tensor& tensor, const Shape& shape) {
    if (tensor.strides == nullptr || shape.count() == 0) {
        return;
    }
    int64_t expected = 1;
    for (int32_t i = shape.ndim - 1; i >= 0; --i) {
        const int64_t size = shape.sizes[static_cast<std::size_t>(i)];
        if (size != 1 && tensor.strides[i] != expected) {
            fail(
                Code::invalid_shape,
                "dlpack: the stride of dimension %d is %lld; row-major needs %lld: make the tensor "
                "contiguous",
                i, static_cast<long long>(tensor.strides[i]), static_cast<long long>(expected));
        }
        expected *= size;
    }
}

mp_tensor* import(const std::shared_ptr<Context>& context, ManagedTensorVersioned* managed) {
    ReleaseGuard guard(managed);
    // Of another major version nothing but the version and the deleter may be read.
    if (managed->version.major != dlpack::kMajor) {
        fail(Code::version_mismatch, "dlpack: version %u.%u; this library speaks 1.x",
             managed->version.major, managed->version.minor);
    }
    if ((managed->flags & dlpack::kReadOnly) != 0) {
        fail(Code::unsupported,
             "dlpack: the tensor is read-only; copy it first, tensors here are writable");
    }
    const dlpack::Tensor& source = managed->tensor;
    const DType dtype = dtype_of(source.dtype);
    const Shape shape = shape_of(source, dtype);
    check_row_major(source, shape);
    context->give_back_due();
    Stream& stream = stream_of_device(*context, source.device);
    void* data = nullptr;
    if (shape.count() > 0) {
        auto* const begin = static_cast<char*>(required(source.data, "dlpack: data"));
        const auto bytes = static_cast<uint64_t>(bytes_of(dtype, shape.count()));
        if (source.byte_offset > UINT64_MAX - bytes - reinterpret_cast<uintptr_t>(begin)) {
            fail(Code::invalid_argument, "dlpack: byte_offset %llu leads beyond the end of memory",
                 static_cast<unsigned long long>(source.byte_offset));
        }
        data = begin + source.byte_offset;
    }
    if (!is_aligned(data, dtype)) {
        fail(Code::invalid_argument, "dlpack: data at %p is not aligned to its elements", data);
    }
    mp_tensor* handle = make_handle<mp_tensor>(nullptr);
    try {
        handle->object = std::make_shared<Tensor>(context, stream, dtype, shape, data,
                                                  Deleter{ReleaseGuard::release, managed});
    } catch (...) {
        destroy_handle(handle);
        throw;
    }
    guard.keep();
    return handle;
}

// What an exported tensor points into.
struct Export {
    ~Export() {
        if (tensor != nullptr) {
            tensor->unpin();
        }
    }

    ManagedTensorVersioned managed{};
    std::shared_ptr<Tensor> tensor;
    std::array<int64_t, kMaxDims> shape{};
    std::array<int64_t, kMaxDims> strides{};
};

ManagedTensorVersioned* export_tensor(const std::shared_ptr<Tensor>& tensor) {
    if (dlpack_type(tensor->dtype()).bits == 0) {
        fail(Code::unsupported, "dlpack: the tensor is %s, for which DLPack has no type",
             dtype_name(tensor->dtype()));
    }
    auto owned = std::make_unique<Export>();
    owned->tensor = tensor;
    tensor->pin();
    owned->shape = tensor->shape().sizes;
    const int32_t ndim = tensor->shape().ndim;
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; --i) {
        const auto axis = static_cast<std::size_t>(i);
        owned->strides[axis] = stride;
        stride *= owned->shape[axis];
    }
    ManagedTensorVersioned& managed = owned->managed;
    managed.version = {dlpack::kMajor, dlpack::kMinor};
    managed.manager_context = owned.get();
    managed.deleter = [](ManagedTensorVersioned* self) {
        const process::DefaultFloats floats; // a call of the consumer's
        delete static_cast<Export*>(self->manager_context);
    };
    managed.tensor.data = tensor->data();
    managed.tensor.device = {row_of(tensor->device().kind()).dlpack_memory,
                             tensor->device().index()};
    managed.tensor.ndim = ndim;
    const DlpackType type = dlpack_type(tensor->dtype());
    managed.tensor.dtype = {type.code, type.bits, 1};
    managed.tensor.shape = owned->shape.data();
    managed.tensor.strides = owned->strides.data();
    return &owned.release()->managed;
}

} // namespace

mp_status mp_dlpack_import(mp_context* context, struct DLManagedTensorVersioned* managed,
                           mp_tensor** out) {
    return boundary([&] {
        auto* source = reinterpret_cast<ManagedTensorVersioned*>(managed);
        try {
            output(out);
            (void)required(managed, "managed");
            (void)object_of(context, "context");
        } catch (...) {
            ReleaseGuard::release(source); // ownership was taken with the call
            throw;
        }
        *out = import(object_of(context, "context"), source);
    });
}

mp_status mp_dlpack_export(mp_tensor* tensor, struct DLManagedTensorVersioned** out) {
    return boundary([&] {
        output(out);
        *out = reinterpret_cast<struct DLManagedTensorVersioned*>(
            export_tensor(object_of(tensor, "tensor")));
    });
}
