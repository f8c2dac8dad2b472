// SPDX-License-Identifier: Apache-2.0
// What every chunk body needs: the namespace it is compiled into, and memory access without
// assumptions.
//
// A chunk body is plain host code without Kokkos and without templates of the standard library. It
// is compiled once for each instruction set, and each time into a namespace of its own: were the
// functions the same for the linker, it could keep the AVX-512 copy for a machine that has no
// AVX-512.
#pragma once

#include <cstdint>

#include "dtype/dtype.hpp"
#include "numerics/codec.hpp"

#ifndef MP_ISA_NAMESPACE
#define MP_ISA_NAMESPACE portable
#endif

#define MP_ISA_INLINE inline __attribute__((always_inline))
// For the bodies of whole rows: they are called once a chunk and would only bloat their caller.
#define MP_ISA_FUNCTION __attribute__((noinline))

// Before a loop whose iterations are independent: the arrays of one operation do not overlap, or
// are the same. The compiler does not keep __restrict of local pointers through inlining.
#if defined(__clang__)
#define MP_ISA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define MP_ISA_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace mp::backends::host::MP_ISA_NAMESPACE {

// Elements that are widened to fp32 at once; a few buffers of this size stay in the first-level
// cache.
inline constexpr int kTile = 256;

// An element type as it lies in memory: at any address, and whatever type the caller gave the
// memory. Never write `auto*` for a pointer to one: deduction drops the attributes. The codecs'
// storage types are what a register holds.
template <class Storage> struct Unaligned;
template <> struct Unaligned<float> { typedef float type __attribute__((aligned(1), may_alias)); };
template <> struct Unaligned<uint16_t> {
    typedef uint16_t type __attribute__((aligned(1), may_alias));
};
template <> struct Unaligned<uint8_t> { typedef uint8_t type __attribute__((may_alias)); };
template <DType kDType> using InMemory = Unaligned<typename numerics::Codec<kDType>::storage>;

// Byte address of element i.
MP_ISA_INLINE const void* element_address(const void* data, DType dtype, int64_t i) {
    return static_cast<const unsigned char*>(data) + i * dtype_size(dtype);
}
MP_ISA_INLINE void* element_address(void* data, DType dtype, int64_t i) {
    return static_cast<unsigned char*>(data) + i * dtype_size(dtype);
}

MP_ISA_INLINE int min_int(int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); }

} // namespace mp::backends::host::MP_ISA_NAMESPACE
