// SPDX-License-Identifier: Apache-2.0
// Tensor: a dense row-major array on one device, over memory of the library or of the caller.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "context/context.hpp"
#include "tensor/tensor_ref.hpp"

namespace mp {

inline constexpr int32_t kMaxDims = 8;

struct Shape {
    std::array<int64_t, kMaxDims> sizes{};
    int32_t ndim = 0;

    [[nodiscard]] int64_t count() const noexcept {
        int64_t product = 1;
        for (int32_t i = 0; i < ndim; ++i) {
            product *= sizes[static_cast<std::size_t>(i)];
        }
        return product;
    }
    // Size of the last dimension; 1 for a scalar.
    [[nodiscard]] int64_t last() const noexcept {
        return ndim == 0 ? 1 : sizes[static_cast<std::size_t>(ndim - 1)];
    }
    [[nodiscard]] std::string text() const; // "[2, 3]"
    bool operator==(const Shape&) const = default;
};

// Throws unless every size is >= 0 and the whole fits in 2^62 bytes.
void check_shape(const Shape& shape, DType dtype, const char* what);

// Runs once when the last reference to borrowed memory goes.
struct Deleter {
    void (*call)(void* payload) = nullptr;
    void* payload = nullptr;
};

class Tensor {
  public:
    // Memory of the library, all zero.
    Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape);
    // The caller's memory.
    Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape,
           void* data, Deleter deleter);
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    ~Tensor();

    [[nodiscard]] DType dtype() const noexcept { return dtype_; }
    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
    [[nodiscard]] int64_t count() const noexcept { return count_; }
    [[nodiscard]] std::size_t bytes() const noexcept {
        return static_cast<std::size_t>(count_ * dtype_size(dtype_));
    }
    [[nodiscard]] void* data() const noexcept { return data_; }
    [[nodiscard]] TensorRef ref() const noexcept { return {data_, count_, dtype_}; }
    [[nodiscard]] Device& device() const noexcept { return stream_->device(); }
    // The default stream of the tensor's device.
    [[nodiscard]] Stream& stream() const noexcept { return *stream_; }
    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] bool overlaps(const Tensor& other) const noexcept;

  private:
    std::shared_ptr<Context> context_;
    Stream* stream_; // of context_
    DType dtype_;
    Shape shape_;
    int64_t count_;
    Buffer buffer_;
    void* data_ = nullptr;
    Deleter deleter_;
};

// Moves bytes between tensors of one dtype and count, on one or two devices.
void copy_tensor(Stream& stream, const Tensor& source, Tensor& destination);

// Rounds source into destination (nearest even; fp8 saturating).
void cast_tensor(Stream& stream, const TensorRef& source, const TensorRef& destination);

} // namespace mp
