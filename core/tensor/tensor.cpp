// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.hpp"

#include <functional>
#include <vector>

#include "process/float_environment.hpp"
#include "runtime/select.hpp"

namespace mp {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;

// Those of codes of zero, in a new tensor: 1, or the smallest where they are exponents.
void make_scales(Stream& stream, Tensor& scales) {
    scales.restore_memory(stream);
    if (scales.dtype() == DType::fp32 && scales.count() > 0) {
        const std::vector<float> ones(static_cast<std::size_t>(scales.count()), 1.0F);
        stream.copy(scales.data(), ones.data(), scales.bytes(), CopyKind::host_to_device);
        stream.sync();
    }
}

} // namespace

std::string shape_text(std::span<const int64_t> sizes) {
    std::string text = "[";
    for (const int64_t size : sizes) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    }
    return text + "]";
}

std::string Shape::text() const {
    return shape_text({sizes.data(), static_cast<std::size_t>(ndim)});
}

void check_plain(DType dtype, const char* what) {
    if (dtype_kind(dtype) == DTypeKind::packed_floating) {
        fail(Code::unsupported,
             "%s: %s holds quantized codes only; make it with mp_tensor_create_quantized", what,
             dtype_name(dtype));
    }
}

void check_shape(const Shape& shape, DType dtype, const char* what) {
    if (is_in_blocks(dtype) && shape.last() % type_block(dtype).elements != 0) {
        fail(Code::invalid_shape,
             "%s: the last size of %s is %lld; of %s it is a multiple of its blocks of %lld", what,
             shape.text().c_str(), static_cast<long long>(shape.last()), dtype_name(dtype),
             static_cast<long long>(type_block(dtype).elements));
    }
    int64_t limit = kMaxBytes / (dtype_size(dtype) > 0 ? dtype_size(dtype) : 1);
    for (int32_t i = 0; i < shape.ndim; ++i) {
        const int64_t size = shape.sizes[static_cast<std::size_t>(i)];
        if (size < 0) {
            fail(Code::invalid_shape, "%s: shape[%d] is %lld; sizes must be >= 0", what, i,
                 static_cast<long long>(size));
        }
        limit = size == 0 ? limit : limit / size;
        if (limit == 0) {
            fail(Code::invalid_shape, "%s: shape %s needs more than 2^62 bytes", what,
                 shape.text().c_str());
        }
    }
}

Tensor::Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape)
    : context_(std::move(context)), stream_(&stream), dtype_(dtype), shape_(shape),
      count_(shape.count()),
      buffer_(stream.allocate(static_cast<std::size_t>(bytes_of(dtype, count_)))),
      data_(buffer_.data()) {
    if (count_ > 0) {
        stream.zero(data_, bytes());
    }
}

Tensor::Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape,
               Deferred /*deferred*/)
    : context_(std::move(context)), stream_(&stream), dtype_(dtype), shape_(shape),
      count_(shape.count()), is_deferred_(true) {}

Tensor::Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape,
               void* data, Deleter deleter)
    : context_(std::move(context)), stream_(&stream), dtype_(dtype), shape_(shape),
      count_(shape.count()), lent_(data), data_(data), deleter_(deleter) {}

Tensor::Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape,
               void* data, Deleter deleter, Deferred /*deferred*/)
    : context_(std::move(context)), stream_(&stream), dtype_(dtype), shape_(shape),
      count_(shape.count()), is_deferred_(true), is_placed_(true), lent_(data), deleter_(deleter) {}

Tensor::Tensor(const std::shared_ptr<Context>& context, Stream& stream, const Format& format,
               const Shape& shape)
    : Tensor(context, stream, format, shape, Deferred{}) {
    restore_memory(stream);
    make_scales(stream, *scales_->scale_inv);
}

Tensor::Tensor(const std::shared_ptr<Context>& context, Stream& stream, const Format& format,
               const Shape& shape, Deferred deferred)
    : Tensor(context, stream, format.dtype, shape, deferred) {
    check_format(format, "quantized tensor");
    const Shape grid_shape = {{format.grid.rows(rows()), format.grid.columns(columns())}, 2};
    scales_ = std::make_unique<TensorScales>();
    scales_->format = format;
    scales_->scale_inv =
        std::make_shared<Tensor>(context, stream, format.grid.dtype, grid_shape, deferred);
    scales_->amax = std::make_shared<Tensor>(context, stream, DType::fp32, Shape{{1}, 1});
    if (block_scales() == nullptr || count_ == 0) {
        make_scales(stream, *scales_->scale_inv);
    }
}

Tensor::Tensor(const std::shared_ptr<Context>& context, Stream& stream, const Format& format,
               const Shape& shape, const QuantizedMemory& memory)
    : Tensor(context, stream, format.dtype, shape, memory.codes, Deleter{}) {
    check_format(format, "quantized tensor");
    const Shape one{{1}, 1};
    scales_ = std::make_unique<TensorScales>();
    scales_->format = format;
    scales_->scale_inv = std::make_shared<Tensor>(
        context, stream, format.grid.dtype,
        Shape{{format.grid.rows(rows()), format.grid.columns(columns())}, 2}, memory.scale_inv,
        Deleter{});
    scales_->amax =
        memory.amax == nullptr
            ? std::make_shared<Tensor>(context, stream, DType::fp32, one)
            : std::make_shared<Tensor>(context, stream, DType::fp32, one, memory.amax, Deleter{});
}

void Tensor::give_back_by(Deleter deleter) {
    if (deleter.call == nullptr) {
        return;
    }
    // Whoever lives longest of the three gives the memory back.
    struct Owner {
        Deleter deleter{};
        Owner() = default;
        Owner(const Owner&) = delete;
        Owner& operator=(const Owner&) = delete;
        ~Owner() {
            if (deleter.call != nullptr) {
                const process::CallerFloats floats;
                deleter.call(deleter.payload);
            }
        }
    };
    const auto owner = std::make_shared<Owner>();
    using Share = std::shared_ptr<Owner>;
    auto first = std::make_unique<Share>(owner);
    auto second = std::make_unique<Share>(owner);
    auto third = std::make_unique<Share>(owner);
    const auto release = [](void* share) { delete static_cast<Share*>(share); };
    deleter_ = {release, first.release()};
    scales_->scale_inv->deleter_ = {release, second.release()};
    scales_->amax->deleter_ = {release, third.release()};
    owner->deleter = deleter;
}

Tensor::Tensor(std::shared_ptr<Tensor> parent, int64_t first, const Shape& shape)
    : context_(parent->context_), stream_(parent->stream_), dtype_(parent->dtype_), shape_(shape),
      count_(shape.count()) {
    if (parent->scales() != nullptr) {
        fail(Code::unsupported, "view: the tensor %s is quantized; its scales cannot be shared out",
             parent->shape().text().c_str());
    }
    if (is_in_blocks(dtype_) && first % type_block(dtype_).elements != 0) {
        fail(Code::invalid_shape,
             "view: it begins at element %lld; %s is cut between blocks of %lld",
             static_cast<long long>(first), dtype_name(dtype_),
             static_cast<long long>(type_block(dtype_).elements));
    }
    if (first < 0 || first > parent->count() || count_ > parent->count() - first) {
        fail(Code::invalid_shape,
             "view: %s from element %lld on is not inside of the tensor %s, which has %lld",
             shape.text().c_str(), static_cast<long long>(first), parent->shape().text().c_str(),
             static_cast<long long>(parent->count()));
    }
    parent->require_memory("view: the tensor");
    if (count_ > 0) {
        lent_ = data_ = static_cast<char*>(parent->data()) + bytes_of(dtype_, first);
    }
    parent->pin();
    parent_ = std::move(parent);
}

ArrayRef Tensor::array() const noexcept {
    ArrayRef array = {data_, nullptr, nullptr, format(), rows(), columns()};
    if (scales_ != nullptr) {
        array.scale_inv = scales_->scale_inv->data();
        array.amax = static_cast<float*>(scales_->amax->data());
    }
    return array;
}

Tensor::~Tensor() {
    if (deleter_.call != nullptr) {
        context_->give_back(deleter_, device());
    }
    if (parent_ != nullptr) {
        parent_->unpin();
    }
}

bool Tensor::overlaps(const Tensor& other) const noexcept {
    const auto* begin = static_cast<const char*>(place());
    const auto* other_begin = static_cast<const char*>(other.place());
    if (bytes() == 0 || other.bytes() == 0 || begin == nullptr || other_begin == nullptr ||
        &device() != &other.device()) {
        return false;
    }
    const std::less<> before;
    return before(begin, other_begin + other.bytes()) && before(other_begin, begin + bytes());
}

void Tensor::require_memory(const char* name) const {
    if (!has_memory()) {
        fail(Code::bad_state, "%s has no memory now: %s", name,
             is_deferred_ ? "it is deferred; an optimizer that it is added to gives it some"
                          : "it is sharded and not gathered; see mp_optimizer_gather_begin and "
                            "mp_optimizer_acquire_grad");
    }
}

Tensor* Tensor::block_scales() const noexcept {
    return scales_ != nullptr && has_blocks(scales_->format.grid) ? scales_->scale_inv.get()
                                                                  : nullptr;
}

void Tensor::set_deferred(bool is_deferred) noexcept {
    is_deferred_ = is_deferred;
    if (Tensor* const scales = block_scales(); scales != nullptr) {
        scales->set_deferred(is_deferred);
    }
}

void Tensor::require_droppable() const {
    if (count_ == 0 || data_ == nullptr) {
        return;
    }
    if (const Tensor* const scales = block_scales(); scales != nullptr) {
        scales->require_droppable();
    }
    if (pins_.load() != 0) {
        fail(Code::bad_state,
             "tensor %s is in use through DLPack or a view, so its memory cannot be given back for "
             "now",
             shape_.text().c_str());
    }
}

void Tensor::drop_memory(Stream& stream) {
    require_droppable();
    if (data_ == nullptr) {
        return;
    }
    if (Tensor* const scales = block_scales(); scales != nullptr) {
        scales->drop_memory(stream);
    }
    if (buffer_.data() != nullptr) {
        buffer_.release_on(stream.queue());
    }
    data_ = nullptr;
}

void Tensor::restore_memory(Stream& stream, bool is_apart) {
    if (!has_memory()) {
        Buffer fresh;
        if (lent_ == nullptr || is_apart) {
            fresh = stream.allocate_ordered(bytes());
        }
        void* const data = fresh.data() != nullptr ? fresh.data() : lent_;
        stream.zero(data, bytes());
        if (Tensor* const scales = block_scales(); scales != nullptr) {
            scales->restore_memory(stream, is_apart);
        }
        buffer_ = std::move(fresh);
        data_ = data;
        touch();
    }
    is_deferred_ = false;
}

std::shared_ptr<Tensor> make_tensor(const std::shared_ptr<Context>& context, Stream& stream,
                                    const Format& format, const Shape& shape) {
    return format.grid.exists() ? std::make_shared<Tensor>(context, stream, format, shape)
                                : std::make_shared<Tensor>(context, stream, format.dtype, shape);
}

void copy_tensor(Stream& stream, const Tensor& source, Tensor& destination) {
    if (source.count() == 0) {
        return;
    }
    const bool from_host = source.device().is_host();
    const bool to_host = destination.device().is_host();
    CopyKind kind = CopyKind::device_to_device;
    if (from_host && !to_host) {
        kind = CopyKind::host_to_device;
    } else if (!from_host && to_host) {
        kind = CopyKind::device_to_host;
    }
    stream.copy(destination.data(), source.data(), source.bytes(), kind);
    if (source.scales() != nullptr) {
        copy_tensor(stream, *source.scales()->scale_inv, *destination.scales()->scale_inv);
        copy_tensor(stream, *source.scales()->amax, *destination.scales()->amax);
    }
}

void cast_tensor(Stream& stream, const TensorRef& source, const TensorRef& destination) {
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = source;
    op.destination = destination;
    op.saturate = is_fp8(destination.dtype);
    run_op(stream, op);
}

} // namespace mp
