// SPDX-License-Identifier: Apache-2.0
// Sizes and elements: what memory of the program's is given to the library as. Nothing here calls the library.
#pragma once

#include <mixedprec.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace mixedprec {

/** Elements behind one another: what std::span is, for C++17 too. Made of a pointer and a size, an array, or a container. */
template <class T> class span {
  public:
    constexpr span() = default;
    constexpr span(T* data, std::size_t size) : data_(data), size_(size) {}
    template <std::size_t N> constexpr span(T (&array)[N]) : data_(array), size_(N) {}
    /* A temporary only for reading: it lives until the call that takes the span is over. */
    template <class Container,
              class = std::enable_if_t<
                  std::is_convertible_v<decltype(std::declval<Container&>().data()), T*> &&
                  (std::is_const_v<T> || std::is_lvalue_reference_v<Container>)&&!std::is_same_v<
                      std::decay_t<Container>, span>>>
    constexpr span(Container&& container) : data_(container.data()), size_(container.size()) {}

    constexpr T* data() const { return data_; }
    constexpr std::size_t size() const { return size_; }
    constexpr T* begin() const { return data_; }
    constexpr T* end() const { return data_ + size_; }
    constexpr T& operator[](std::size_t i) const { return data_[i]; }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/** Sizes of a tensor's dimensions, the slowest first: {rows, columns}. */
class Shape {
  public:
    Shape(std::initializer_list<std::int64_t> sizes) : Shape(sizes.begin(), sizes.size()) {}
    Shape(span<const std::int64_t> sizes) : Shape(sizes.data(), sizes.size()) {}
    Shape(const std::vector<std::int64_t>& sizes) : Shape(sizes.data(), sizes.size()) {}
    Shape(const std::int64_t* sizes, std::size_t ndim) : ndim_(ndim) {
        for (std::size_t i = 0; i < ndim && i < MP_MAX_DIMS; ++i)
            sizes_[i] = sizes[i];
    }
    /** More than MP_MAX_DIMS are counted, not kept: the library refuses them. */
    std::int32_t ndim() const { return static_cast<std::int32_t>(ndim_); }
    const std::int64_t* data() const { return sizes_.data(); }
    std::int64_t operator[](std::size_t i) const { return sizes_[i]; }
    std::int64_t elements() const {
        std::int64_t count = 1;
        for (std::size_t i = 0; i < ndim_ && i < MP_MAX_DIMS; ++i)
            count *= sizes_[i];
        return count;
    }

  private:
    std::array<std::int64_t, MP_MAX_DIMS> sizes_{};
    std::size_t ndim_ = 0;
};

/** Which elements a C++ type holds. Specialize it for a 16-bit float type of your own. */
template <class T> struct dtype_of;
template <> struct dtype_of<float> { static constexpr std::int32_t value = MP_DTYPE_FP32; };
template <> struct dtype_of<std::int8_t> { static constexpr std::int32_t value = MP_DTYPE_INT8; };
template <> struct dtype_of<std::int16_t> { static constexpr std::int32_t value = MP_DTYPE_INT16; };
template <> struct dtype_of<std::int32_t> { static constexpr std::int32_t value = MP_DTYPE_INT32; };
template <> struct dtype_of<std::int64_t> { static constexpr std::int32_t value = MP_DTYPE_INT64; };
template <> struct dtype_of<std::uint8_t> { static constexpr std::int32_t value = MP_DTYPE_UINT8; };

/** Codes of a type that C++ has none for, as their bits. */
template <std::int32_t Dtype, class Bits> struct Codes { Bits bits; };
using Fp16 = Codes<MP_DTYPE_FP16, std::uint16_t>;
using Bf16 = Codes<MP_DTYPE_BF16, std::uint16_t>;
using Fp8E4m3 = Codes<MP_DTYPE_FP8_E4M3, std::uint8_t>;
using Fp8E5m2 = Codes<MP_DTYPE_FP8_E5M2, std::uint8_t>;
using E8m0 = Codes<MP_DTYPE_E8M0, std::uint8_t>;
template <std::int32_t Dtype, class Bits> struct dtype_of<Codes<Dtype, Bits>> {
    static constexpr std::int32_t value = Dtype;
};

/** Of an array, a container or a span: the type of its elements, with const where they cannot be written. */
template <class Values>
using element_of = std::remove_pointer_t<decltype(std::data(std::declval<Values&>()))>;
template <class Values>
constexpr std::int32_t dtype_in = dtype_of<std::remove_const_t<element_of<Values>>>::value;

} // namespace mixedprec
