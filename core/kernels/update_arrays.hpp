// SPDX-License-Identifier: Apache-2.0
// The arrays of an optimizer step as a thread sees them: a few elements in registers, in any format.
#pragma once

#include "device/update_scaling.hpp"
#include "kernels/array.hpp"
#include "numerics/block_state.hpp"
#include "numerics/remainder.hpp"

namespace mp::kernels {

// Every format that has no blocks and is no part of another array is an Array of its dtype.
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    static_assert((Coding::coding != Coding::plain && Coding::coding != Coding::scaled) ||         \
                  is_floating(DType::dtype));
#include "dtype/formats.def"

template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void visit_blocks(FormatId format, const Body& body) {
    AllFormats::visit(format, [&](auto of) MP_INLINED {
        if constexpr (has_blocks(decltype(of)::kCoding)) {
            body(of);
        }
    });
}

// A StepArray's parts by value: a reference to it would put the whole segment into memory.
struct ArrayParts {
    FormatId format;
    void* data;
    void* scales;
    int64_t count;
};
KOKKOS_FORCEINLINE_FUNCTION ArrayParts parts_of(const StepArray& a, int64_t count) {
    return {a.format(), a.data, a.scale_inv, count};
}

// The numbers of a tile. kBlocks: they may be kept in blocks.
template <bool kBlocks, int kEach>
KOKKOS_FORCEINLINE_FUNCTION void load_values(ArrayParts from, bool is_signed,
                                             const Tile<kEach>& tile, float (&x)[kEach]) {
    if (kBlocks && has_blocks(from.format)) {
        visit_blocks(from.format, [&](auto of) MP_INLINED {
            tile.for_each([&](int j, int64_t i) MP_INLINED {
                x[j] = numerics::load_block_value(decltype(of)::kCoding, is_signed, from.data,
                                                  from.scales, i);
            });
        });
        return;
    }
    visit_array(dtype_of(from.format), from.data, from.count, [&](const auto& array) MP_INLINED {
        tile.for_each([&](int j, int64_t i) MP_INLINED {
            x[j] = decoded(array(i), static_cast<const float*>(from.scales));
        });
    });
}

// Elements in registers: old values first, new ones after the rule.
template <bool kBlocks, int kEach> struct UpdateElements {
    float weight[kEach], grad[kEach];
    float states[numerics::kMaxStates][kEach];

    template <class Rule>
    KOKKOS_FORCEINLINE_FUNCTION void load(const UpdateSegment& s, const Tile<kEach>& tile) {
        const int64_t count = s.count;
        if (s.has_remainder()) {
            const Words<uint16_t> param(static_cast<uint16_t*>(s.param.data),
                                        static_cast<std::size_t>(count));
            const Words<int16_t> low(static_cast<int16_t*>(s.master.data),
                                     static_cast<std::size_t>(count));
            tile.for_each([&](int j, int64_t i)
                              MP_INLINED { weight[j] = numerics::join_master(param(i), low(i)); });
        } else if (
            s.master.exists()) { // not one call of either: that would put the segment into memory
            load_values<kBlocks>(parts_of(s.master, count), true, tile, weight);
        } else {
            load_values<kBlocks>(parts_of(s.param, count), true, tile, weight);
        }
        load_values<kBlocks>(parts_of(s.grad, count), true, tile, grad);
        numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
            constexpr int kState = decltype(state)::kIndex;
            load_values<kBlocks>(parts_of(s.states[kState], count),
                                 numerics::is_signed_state<Rule>(kState), tile, states[kState]);
        });
    }

    // The change of weight j; its states become the new ones.
    template <class Rule>
    KOKKOS_FORCEINLINE_FUNCTION float delta(const typename Rule::Scalars& k, float grad_mul,
                                            int j) {
        float x[numerics::kMaxStates] = {};
        numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
            x[decltype(state)::kIndex] = states[decltype(state)::kIndex][j];
        });
        const float change = Rule::delta(k, weight[j], grad[j] * grad_mul, x);
        numerics::for_each_state<Rule>([&](auto state) MP_INLINED {
            states[decltype(state)::kIndex][j] = x[decltype(state)::kIndex];
        });
        return change;
    }
};

// The parameter of a segment: stores a new value of element i, and returns it as it is now, where it has no scale.
template <DType kDType> struct StoredParam {
    Array<kDType> array;
    const float* scale_inv; // null: none
    float multiply;

    KOKKOS_FORCEINLINE_FUNCTION float operator()(int64_t i, float x,
                                                 const ElementRounding& rounding) const {
        array.store(i, scale_inv != nullptr ? code_value(kDType, x, multiply) : x, rounding);
        return array(i);
    }
};
struct HalfAwayParam { // the master weight is kept whole, so nobody asks what became of it
    Words<uint16_t> words;

    KOKKOS_FORCEINLINE_FUNCTION float operator()(int64_t i, float x,
                                                 const ElementRounding& /*nearest*/) const {
        words(i) = numerics::bf16_half_away(x);
        return x;
    }
};
template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void visit_param(const UpdateSegment& s, const UpdateScaling& scaling,
                                             const Body& body) {
    if (s.param_half_away != 0) {
        return body(HalfAwayParam{
            {static_cast<uint16_t*>(s.param.data), static_cast<std::size_t>(s.count)}});
    }
    const auto* scale_inv = static_cast<const float*>(s.param.scale_inv);
    const float multiply = scaling.param.multiply;
    visit_array(s.param.dtype, s.param.data, s.count, [&](const auto& array) MP_INLINED {
        body(StoredParam<std::decay_t<decltype(array)>::kDType>{array, scale_inv, multiply});
    });
}

} // namespace mp::kernels
