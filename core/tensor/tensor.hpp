// SPDX-License-Identifier: Apache-2.0
// Tensor: a dense row-major array on one device, over memory of the library or of the caller.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "array/array_ref.hpp"
#include "context/context.hpp"
#include "tensor/format.hpp"

namespace mp {

inline constexpr int32_t kMaxDims = 8;

// "[2, 3]"
std::string shape_text(std::span<const int64_t> sizes);

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
    [[nodiscard]] std::string text() const; // as shape_text()
    bool operator==(const Shape&) const = default;
};

// Throws unless every size is >= 0 and the whole fits in 2^62 bytes.
void check_shape(const Shape& shape, DType dtype, const char* what);
// Fails for types that exist as quantized codes only.
void check_plain(DType dtype, const char* what);

class Tensor;

// What a quantized tensor has beside its codes.
struct TensorScales {
    Format format;
    std::shared_ptr<Tensor>
        scale_inv; // [grid rows, grid columns] of format.grid.dtype, 1 at first; where memory comes back 0
    std::shared_ptr<Tensor> amax; // one fp32: of what was quantized last, 0 at first
};

// A quantized tensor's, in the caller's memory. amax null: one of the tensor's own.
struct QuantizedMemory {
    void* codes = nullptr;
    void* scale_inv = nullptr;
    void* amax = nullptr;
};

// A tensor of the library's that gets no memory until somebody knows which part of it is needed here.
struct Deferred {};

class Tensor {
  public:
    // Memory of the library, all zero.
    Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape);
    Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape,
           Deferred deferred);
    // Codes and scales in memory of the library, all values zero. Waits.
    Tensor(const std::shared_ptr<Context>& context, Stream& stream, const Format& format,
           const Shape& shape);
    // The same without memory for codes, and for scales that go with them.
    Tensor(const std::shared_ptr<Context>& context, Stream& stream, const Format& format,
           const Shape& shape, Deferred deferred);
    // The caller's memory.
    Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape,
           void* data, Deleter deleter);
    // The caller's memory for when the tensor is in use; others may have it before, between and after.
    Tensor(std::shared_ptr<Context> context, Stream& stream, DType dtype, const Shape& shape,
           void* data, Deleter deleter, Deferred deferred);
    // Codes and scales in the caller's memory, as they are there.
    Tensor(const std::shared_ptr<Context>& context, Stream& stream, const Format& format,
           const Shape& shape, const QuantizedMemory& memory);
    // Elements of another one from `first` on, in a shape of its own: its memory, kept alive and in its place. Throws for
    // what lies outside, for codes with scales, and where there is no memory now.
    Tensor(std::shared_ptr<Tensor> parent, int64_t first, const Shape& shape);
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    ~Tensor();

    [[nodiscard]] DType dtype() const noexcept { return dtype_; }
    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
    [[nodiscard]] int64_t count() const noexcept { return count_; }
    [[nodiscard]] std::size_t bytes() const noexcept {
        return static_cast<std::size_t>(bytes_of(dtype_, count_));
    }
    [[nodiscard]] void* data() const noexcept { return data_; }
    [[nodiscard]] TensorRef ref() const noexcept { return {data_, count_, dtype_}; }
    // As a matrix: the last dimension has the columns.
    [[nodiscard]] int64_t columns() const noexcept { return shape_.last(); }
    [[nodiscard]] int64_t rows() const noexcept { return columns() == 0 ? 0 : count_ / columns(); }
    // Null unless the elements are codes with scales.
    [[nodiscard]] const TensorScales* scales() const noexcept { return scales_.get(); }
    [[nodiscard]] Format format() const noexcept {
        return scales_ == nullptr ? Format{dtype_, {}, {}} : scales_->format;
    }
    [[nodiscard]] ArrayRef array() const noexcept;
    // Changes with touch() and where memory comes back. What follows from a tensor's elements watches its memory
    // instead (runtime/memory_watch.hpp).
    [[nodiscard]] uint64_t version() const noexcept {
        return parent_ != nullptr ? parent_->version() : version_.load();
    }
    void touch() noexcept {
        if (parent_ != nullptr) {
            parent_->touch();
        } else {
            ++version_;
        }
    }
    [[nodiscard]] Device& device() const noexcept { return stream_->device(); }
    // The default stream of the tensor's device.
    [[nodiscard]] Stream& stream() const noexcept { return *stream_; }
    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] bool overlaps(const Tensor& other) const noexcept;
    // Of a quantized one over the caller's memory: runs once all three pieces are let go. Where it throws it never runs.
    void give_back_by(Deleter deleter);

    // Nobody has said yet which part of its memory is needed. Memory ends that, too.
    [[nodiscard]] bool is_deferred() const noexcept { return is_deferred_; }
    void set_deferred(bool is_deferred) noexcept;
    // Sharded parameters and gradients have memory only while they are in use.
    [[nodiscard]] bool has_memory() const noexcept { return data_ != nullptr || count_ == 0; }
    void require_memory(const char* name) const; // throws bad_state where there is none
    // Gives the elements' memory back when the work on the stream so far is done, and that of scales that belong to some of them;
    // one scale for all stays. Other queues work on it no more. Throws for a tensor that is pinned, and then has given nothing
    // back.
    void drop_memory(Stream& stream);
    void require_droppable() const; // throws where that would
    // Memory again, of zeros, scales too; nothing where it is there. What is lent is used again where it lies, unless `is_apart`.
    void restore_memory(Stream& stream, bool is_apart = false);
    // Its elements lie in memory of the caller's or of another tensor, while they have some.
    [[nodiscard]] bool is_lent() const noexcept { return lent_ != nullptr; }
    // Likewise, and others may name the same memory.
    [[nodiscard]] bool is_placed() const noexcept { return is_placed_; }
    // Where its elements lie, or will in memory that is lent; null: nobody knows yet.
    [[nodiscard]] void* place() const noexcept { return data_ != nullptr ? data_ : lent_; }
    // Somebody keeps the address beyond a call.
    void pin() noexcept { ++pins_; }
    void unpin() noexcept { --pins_; }

  private:
    // Those that come and go with the elements; else null.
    [[nodiscard]] Tensor* block_scales() const noexcept;

    std::shared_ptr<Context> context_;
    Stream* stream_; // of context_
    DType dtype_;
    Shape shape_;
    int64_t count_;
    bool is_deferred_ = false;
    bool is_placed_ = false;
    Buffer buffer_;
    void* lent_ = nullptr; // somebody else's memory; null: the library's comes and goes
    void* data_ = nullptr; // in one of both, or null
    Deleter deleter_;
    std::shared_ptr<Tensor> parent_; // of a view, which it pins; else null
    std::unique_ptr<TensorScales> scales_;
    std::atomic<uint64_t> version_{0};
    std::atomic<int32_t> pins_{0};
};

// Zeros in memory of the library, with the scales that the format has. Waits where it has some.
std::shared_ptr<Tensor> make_tensor(const std::shared_ptr<Context>& context, Stream& stream,
                                    const Format& format, const Shape& shape);

// Moves elements, and their scales and amax, between tensors of one format and count, on one or two devices.
void copy_tensor(Stream& stream, const Tensor& source, Tensor& destination);

// Rounds source into destination (nearest even; fp8 saturating).
void cast_tensor(Stream& stream, const TensorRef& source, const TensorRef& destination);

} // namespace mp
