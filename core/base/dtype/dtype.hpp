// SPDX-License-Identifier: Apache-2.0
// Element types as run-time data: the enumeration and what follows from dtype_list.def and block_types.def alone.
// Conversions are in numerics/; the mappings of NCCL, cuBLASLt and MPI are in their own folders.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "dtype/host_device.hpp"

namespace mp {

enum class DType : int32_t {
    none = 0,
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits) name = value,
#include "dtype/dtype_list.def"
#undef X
#define X(name, NAME, value, elements, bytes) name = value,
#include "dtype/block_types.def"
#undef X
};

enum class DTypeKind : int32_t {
    none,
    floating,
    scale,
    signed_integer,
    unsigned_integer,
    packed_floating,
    blocks
};

// Tables elsewhere static_assert on this, so a new type does not compile until each has its row.
inline constexpr int32_t kDTypeCount = 0
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits) +1
#include "dtype/dtype_list.def"
#undef X
#define X(name, NAME, value, elements, bytes) +1
#include "dtype/block_types.def"
#undef X
    ;

// True for the number of a type; `none` is not one.
MP_HD_INLINE constexpr bool is_valid(int32_t value) { return value >= 1 && value <= kDTypeCount; }

// Bits of one element; 0 for `none`, for types of blocks, and for numbers that are no type.
MP_HD_INLINE constexpr int64_t dtype_bits(DType dtype) {
    switch (dtype) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    case DType::name:                                                                              \
        return bits;
#include "dtype/dtype_list.def"
#undef X
    default:
        return 0;
    }
}

// So many elements, behind each other in a row, are so many bytes. {0, 0} where elements are by themselves.
struct TypeBlock {
    int64_t elements = 0;
    int64_t bytes = 0;
};
MP_HD_INLINE constexpr TypeBlock type_block(DType dtype) {
    switch (dtype) {
#define X(name, NAME, value, elements, bytes)                                                      \
    case DType::name:                                                                              \
        return {elements, bytes};
#include "dtype/block_types.def"
#undef X
    default:
        return {};
    }
}
MP_HD_INLINE constexpr bool is_in_blocks(DType dtype) { return type_block(dtype).elements != 0; }

// Bytes of one element; 0 for packed types, for those of blocks, for `none` and for numbers that are no type.
MP_HD_INLINE constexpr int64_t dtype_size(DType dtype) { return dtype_bits(dtype) / 8; }

// Whether memory begins at a multiple of `size` bytes, a power of two.
inline bool is_aligned(const void* data, int64_t size) {
    return (reinterpret_cast<uintptr_t>(data) & static_cast<uintptr_t>(size - 1)) == 0;
}
// Whether an array begins at a multiple of its elements. Packed types begin anywhere.
inline bool is_aligned(const void* data, DType dtype) {
    const int64_t size = dtype_size(dtype);
    return size <= 1 || is_aligned(data, size);
}

// Bytes of an array. Packed elements fill them without gaps; only the last byte or block may be part empty.
MP_HD_INLINE constexpr int64_t bytes_of(DType dtype, int64_t count) {
    const TypeBlock block = type_block(dtype);
    if (block.elements != 0) {
        return (count + block.elements - 1) / block.elements * block.bytes;
    }
    const int64_t bits = dtype_bits(dtype);
    return bits >= 8 ? count * (bits / 8) : (count * bits + 7) / 8;
}

MP_HD_INLINE constexpr DTypeKind dtype_kind(DType dtype) {
    switch (dtype) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    case DType::name:                                                                              \
        return DTypeKind::kind;
#include "dtype/dtype_list.def"
#undef X
#define X(name, NAME, value, elements, bytes)                                                      \
    case DType::name:                                                                              \
        return DTypeKind::blocks;
#include "dtype/block_types.def"
#undef X
    case DType::none:
        break;
    }
    return DTypeKind::none;
}

// True for the types that hold real-valued data, an element to one or more bytes. E8M0 is not among
// them: it holds scales only. Neither is E2M1, which exists as quantized codes only.
MP_HD_INLINE constexpr bool is_floating(DType dtype) {
    return dtype_kind(dtype) == DTypeKind::floating;
}

MP_HD_INLINE constexpr bool is_fp8(DType dtype) {
    return is_floating(dtype) && dtype_bits(dtype) == 8;
}
// fp32, fp16 or bf16: what is computed with as it is, without a scale.
MP_HD_INLINE constexpr bool is_high_precision(DType dtype) {
    return is_floating(dtype) && dtype_bits(dtype) > 8;
}

// Codes of four bits, two to a byte.
MP_HD_INLINE constexpr bool is_packed(DType dtype) {
    return dtype_kind(dtype) == DTypeKind::packed_floating;
}
// What tensors are quantized to: fp8, packed codes, and fp16 under the rules of MS-AMP.
MP_HD_INLINE constexpr bool is_code(DType dtype) {
    return is_fp8(dtype) || dtype == DType::fp16 || is_packed(dtype);
}

// A type that the compiler knows, as an argument.
template <DType kDType> using DTypeConstant = std::integral_constant<DType, kDType>;

// body(DTypeConstant<...>{}) for the type; not called for `none`, for types of blocks and for numbers that are no type. Kernels
// call it outside their loops, so a new type needs no row in any of them.
template <class Body> MP_HD_INLINE constexpr void visit_dtype(DType dtype, const Body& body) {
    switch (dtype) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    case DType::name:                                                                              \
        return body(DTypeConstant<DType::name>{});
#include "dtype/dtype_list.def"
#undef X
    default:
        break;
    }
}
// The same for floating types alone.
template <class Body> MP_HD_INLINE constexpr void visit_floating(DType dtype, const Body& body) {
    switch (dtype) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    case DType::name:                                                                              \
        if constexpr (DTypeKind::kind == DTypeKind::floating) {                                    \
            body(DTypeConstant<DType::name>{});                                                    \
        }                                                                                          \
        break;
#include "dtype/dtype_list.def"
#undef X
    default:
        break;
    }
}

// Largest finite value as fp32 (see dtype_list.def for wide integers); 0 for `none` and for types of blocks.
MP_HD_INLINE constexpr float max_finite(DType dtype) {
    switch (dtype) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    case DType::name:                                                                              \
        return max_finite;
#include "dtype/dtype_list.def"
#undef X
    default:
        break;
    }
    return 0.0f;
}

// Lower-case name, "none" for anything that is no type. Static storage.
constexpr const char* dtype_name(DType dtype) {
    switch (dtype) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    case DType::name:                                                                              \
        return #name;
#include "dtype/dtype_list.def"
#undef X
#define X(name, NAME, value, elements, bytes)                                                      \
    case DType::name:                                                                              \
        return #name;
#include "dtype/block_types.def"
#undef X
    default:
        break;
    }
    return "none";
}

// The inverse of dtype_name; `none` for an unknown name.
constexpr DType parse_dtype(std::string_view text) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    if (text == #name) {                                                                           \
        return DType::name;                                                                        \
    }
#include "dtype/dtype_list.def"
#undef X
#define X(name, NAME, value, elements, bytes)                                                      \
    if (text == #name) {                                                                           \
        return DType::name;                                                                        \
    }
#include "dtype/block_types.def"
#undef X
    return DType::none;
}

struct DlpackType {
    uint8_t code;
    uint8_t bits;
};

// What DLDataType holds for the type (lanes is 1); {0, 0} where DLPack has none for it.
constexpr DlpackType dlpack_type(DType dtype) {
    switch (dtype) {
#define X(name, NAME, value, bits, kind, max_finite, dlpack_code, dlpack_bits)                     \
    case DType::name:                                                                              \
        return {dlpack_code, dlpack_bits};
#include "dtype/dtype_list.def"
#undef X
    default:
        break;
    }
    return {0, 0};
}

// `none` when no type of ours has this code and width.
constexpr DType dtype_from_dlpack(uint8_t code, uint8_t bits) {
    for (int32_t value = 1; value <= kDTypeCount; ++value) {
        const DlpackType type = dlpack_type(static_cast<DType>(value));
        if (type.code == code && type.bits == bits && bits != 0) {
            return static_cast<DType>(value);
        }
    }
    return DType::none;
}

} // namespace mp
