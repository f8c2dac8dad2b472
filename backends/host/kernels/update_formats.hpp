// SPDX-License-Identifier: Apache-2.0
// The formats of a step's arrays as loads and stores of a tile of fp32. Every format of the table (AllFormats) has its
// codec here, or this does not compile.
#pragma once

#include "host/kernels/memory.hpp"
#include "host/kernels/state_blocks.hpp"
#include "host/kernels/update_rounding.hpp"
#include "numerics/remainder.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

typedef uint16_t ParamInMemory __attribute__((aligned(1), may_alias));
typedef int16_t RemainderInMemory __attribute__((aligned(1), may_alias));

MP_ISA_INLINE void load_joined(const UpdateSegment& s, int64_t element, float* values, int n) {
    const ParamInMemory* param = static_cast<const ParamInMemory*>(s.param.data) + element;
    const RemainderInMemory* remainder =
        static_cast<const RemainderInMemory*>(s.master.data) + element;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        values[i] = numerics::join_master(param[i], remainder[i]);
    }
}

MP_ISA_INLINE void store_split(const UpdateSegment& s, int64_t element, const float* values,
                               int n) {
    ParamInMemory* param = static_cast<ParamInMemory*>(s.param.data) + element;
    RemainderInMemory* remainder = static_cast<RemainderInMemory*>(s.master.data) + element;
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        const numerics::SplitMaster split = numerics::split_master(values[i]);
        param[i] = split.param;
        remainder[i] = split.remainder;
    }
}

// n bf16 parameters at `memory`, of master weights that are kept whole.
MP_ISA_INLINE void store_half_away(const FloatInMemory* values, void* memory, int n) {
    ParamInMemory* param = static_cast<ParamInMemory*>(memory);
    MP_ISA_INDEPENDENT
    for (int i = 0; i < n; ++i) {
        param[i] = numerics::bf16_half_away(values[i]);
    }
}

// How one format is loaded into a tile of fp32 and stored from it. Every format of the table has its codec here, or this does
// not compile. Storing overwrites the values; `bits` null: to nearest.
template <class Of, bool kSigned> struct FormatTile {
    static constexpr DType kDType = Of::kDType;
    static constexpr Coding kCoding = Of::kCoding;

    static void load(const UpdateSegment& s, const StepArray& a, int64_t element, int n,
                     float* values) {
        const void* from = element_address(static_cast<const void*>(a.data), kDType, element);
        if constexpr (kCoding == Coding::remainder) {
            load_joined(s, element, values, n);
        } else if constexpr (has_blocks(kCoding)) {
            BlockTile<kCoding, kSigned>::load(a, element, values, n);
        } else if constexpr (kCoding == Coding::scaled) {
            widen_scaled_tile(kDType, from, *a.tensor_scale(), values, n);
        } else {
            widen_tile(kDType, from, values, n);
        }
    }

    static void store(const UpdateSegment& s, const StepArray& a, int64_t element, int n,
                      FloatInMemory* values, const numerics::BlockScale& scale,
                      const TileBits* bits) {
        if constexpr (kCoding == Coding::remainder) {
            store_split(s, element, values, n);
        } else if constexpr (has_blocks(kCoding)) {
            BlockTile<kCoding, kSigned>::store(a, element, values, n, bits);
        } else {
            store_numbers(element_address(a.data, kDType, element), n, values, scale, bits);
        }
    }

    // Numbers, or codes under one scale.
    static void store_numbers(void* memory, int n, FloatInMemory* values,
                              const numerics::BlockScale& scale, const TileBits* bits) {
        if constexpr (kCoding == Coding::scaled) {
            const float multiply = scale.multiply;
            MP_ISA_INDEPENDENT
            for (int i = 0; i < n; ++i) {
                values[i] = code_value(kDType, values[i], multiply);
            }
        }
        if (bits != nullptr && kDType != DType::fp32) {
            narrow_tile<numerics::Narrowing::stochastic>(kDType, values, memory, n, bits);
        } else {
            narrow_tile<numerics::Narrowing::nearest>(kDType, values, memory, n, nullptr);
        }
    }
};

// The functions of a format, chosen once for all tiles of a chunk.
struct FormatFunctions {
    void (*load)(const UpdateSegment&, const StepArray&, int64_t, int, float*);
    void (*store)(const UpdateSegment&, const StepArray&, int64_t, int, FloatInMemory*,
                  const numerics::BlockScale&, const TileBits*);
    // Null where codes are not the elements' own.
    void (*store_numbers)(void*, int, FloatInMemory*, const numerics::BlockScale&, const TileBits*);
};

template <class Of, bool kSigned> MP_ISA_INLINE FormatFunctions functions_of_format() {
    using Tile = FormatTile<Of, kSigned>;
    if constexpr (has_blocks(Of::kCoding) || Of::kCoding == Coding::remainder) {
        return {Tile::load, Tile::store, nullptr};
    } else {
        return {Tile::load, Tile::store, Tile::store_numbers};
    }
}

MP_ISA_FUNCTION inline FormatFunctions functions_of(const StepArray& a, bool is_signed) {
    FormatFunctions found = {};
    AllFormats::visit(a.format(), [&](auto format) MP_INLINED {
        using Of = decltype(format);
        if constexpr (has_blocks(Of::kCoding)) {
            found = is_signed ? functions_of_format<Of, true>() : functions_of_format<Of, false>();
        } else { // a sign decides about codes in blocks only
            found = functions_of_format<Of, true>();
        }
    });
    return found;
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
