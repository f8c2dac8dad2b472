// SPDX-License-Identifier: Apache-2.0
// Arrays as kernels see them: unmanaged views of storage words, which a codec turns to numbers and back. The dtype is known
// at run time, so a switch chooses the codec: outside of a thread's loop over elements, by visit_array() or with a Tile.
// Elements are read as words, so arrays must be aligned to their element size (kokkos/supports.hpp sees to it).
#pragma once

#include <Kokkos_Core.hpp>

#include "device/ops.hpp"
#include "kernels/exec.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"

namespace mp::kernels {

// Words in whatever memory the caller's are in; nothing is owned or counted.
template <class Word>
using Words = Kokkos::View<Word*, Kokkos::LayoutRight, Kokkos::AnonymousSpace,
                           Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

// How a value is rounded.
struct ElementRounding {
    bool saturate = false;
    bool stochastic = false;
    bool overflows = false; // stochastic rounding of fp8 does not saturate
    uint32_t bits = 0;
};

// An array whose dtype is known: element i as a number. Not of packed types, whose elements share words.
template <DType kOf> class Array {
  public:
    static constexpr DType kDType = kOf;
    using Codec = numerics::Codec<kDType>;
    using Word = typename Codec::storage;

    KOKKOS_FORCEINLINE_FUNCTION Array(const void* data, int64_t count)
        : words_(static_cast<Word*>(const_cast<void*>(data)), static_cast<std::size_t>(count)) {}

    KOKKOS_FORCEINLINE_FUNCTION float operator()(int64_t i) const { return Codec::load(words_(i)); }
    KOKKOS_FORCEINLINE_FUNCTION void store(int64_t i, float x,
                                           const ElementRounding& rounding = {}) const {
        if (rounding.stochastic) {
            words_(i) = rounding.overflows ? Codec::store_sr_nonsat(x, rounding.bits)
                                           : Codec::store_sr(x, rounding.bits);
        } else {
            words_(i) = rounding.saturate ? Codec::store_sat(x) : Codec::store_nonsat(x);
        }
    }

  private:
    Words<Word> words_;
};

// body(array) with the array of `dtype`; not called for a type that is none of these.
template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void visit_array(DType dtype, const void* data, int64_t count,
                                             const Body& body) {
    visit_floating(dtype, [&](auto type) MP_INLINED { body(Array<type.value>(data, count)); });
}
template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void visit_array(const TensorRef& array, const Body& body) {
    visit_array(array.dtype, array.data, array.count, body);
}

// Of fp32, fp16 and bf16 alone: where two types meet, that is nine loops and not 25.
template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void visit_wide(const TensorRef& array, const Body& body) {
    visit_floating(array.dtype, [&](auto type) MP_INLINED {
        if constexpr (is_high_precision(type.value)) {
            body(Array<type.value>(array.data, array.count));
        }
    });
}

// One element where there is no loop to keep the switch out of. A NaN for a type that is none, so that the mistake shows.
KOKKOS_FORCEINLINE_FUNCTION float load_element(const TensorRef& from, int64_t i) {
    float x = numerics::float_from_bits(numerics::kFloatQuietNan);
    visit_array(from, [&](const auto& array) { x = array(i); });
    return x;
}
KOKKOS_INLINE_FUNCTION void store_element(const TensorRef& to, int64_t i, float x) {
    visit_array(to, [&](const auto& array) { array.store(i, x); });
}

// Elements that a thread has at a time: it reads all before it writes the first, so that their memory accesses overlap.
// Neighbours belong to other threads, which read them at the same moment.
template <int kMost> struct Tile {
    static constexpr int kEach = kMost;

    int64_t first, stride, end;

    // body(j, i) for element i = first + j * stride, where there is one.
    template <class Body> KOKKOS_FORCEINLINE_FUNCTION void for_each(const Body& body) const {
        MP_HD_UNROLL
        for (int j = 0; j < kEach; ++j) {
            const int64_t i = first + j * stride;
            if (i < end) {
                body(j, i);
            }
        }
    }
};

// How a tile's values are rounded: stochastic where asked for and where anything is rounded. The bits are made outside of
// the switch over codecs, or each codec would have its own copy of the generator.
template <int kEach> struct TileRounding {
    bool stochastic = false;
    uint32_t bits[kEach] = {};

    // The array begins at `first_element` of the logical one.
    KOKKOS_FORCEINLINE_FUNCTION TileRounding(DType dtype, bool is_asked, const numerics::SrKey& key,
                                             numerics::Purpose purpose, int64_t first_element,
                                             const Tile<kEach>& tile)
        : stochastic(is_asked && dtype != DType::fp32) {
        if (stochastic) {
            tile.for_each([&](int j, int64_t i) MP_INLINED {
                const auto element = static_cast<uint64_t>(first_element + i);
                bits[j] = dtype == DType::bf16 ? numerics::sr_bits16_at(key, purpose, element) << 16
                                               : numerics::sr_bits32_at(key, purpose, element);
            });
        }
    }
    KOKKOS_FORCEINLINE_FUNCTION ElementRounding of(int j) const {
        ElementRounding rounding;
        rounding.stochastic = stochastic;
        rounding.bits = bits[j];
        return rounding;
    }
};

template <int kEach>
KOKKOS_FORCEINLINE_FUNCTION void load_tile(const TensorRef& from, const Tile<kEach>& tile,
                                           float (&x)[kEach]) {
    visit_array(from, [&](const auto& array) {
        tile.for_each([&](int j, int64_t i) { x[j] = array(i); });
    });
}

// body(array, j, i) stores element i.
template <int kEach, class Body>
KOKKOS_FORCEINLINE_FUNCTION void store_tile(const TensorRef& to, const Tile<kEach>& tile,
                                            const Body& body) {
    visit_array(to, [&](const auto& array) {
        tile.for_each([&](int j, int64_t i) { body(array, j, i); });
    });
}

// Calls functor.tile() so that each of `count` elements is in one Tile, of elements a warp's width apart.
inline constexpr int kEachOfRange = 8;
using RangeTile = Tile<kEachOfRange>;
template <class Functor> struct ByTiles {
    static constexpr int64_t kWarp = 32;
    static constexpr int64_t kSpan = kEachOfRange * kWarp;

    Functor functor;
    int64_t count;

    KOKKOS_FORCEINLINE_FUNCTION void operator()(int64_t i) const {
        functor.tile(RangeTile{i / kWarp * kSpan + i % kWarp, kWarp, count});
    }
};
template <class Exec, class Functor>
void for_each_tile(const Exec& exec, const char* label, int64_t count, const Functor& functor) {
    using Tiles = ByTiles<Functor>;
    for_each(exec, label, divide_up(count, Tiles::kSpan) * Tiles::kWarp, Tiles{functor, count});
}

} // namespace mp::kernels
