// SPDX-License-Identifier: Apache-2.0
// FormatId: how an array of weights, gradients or optimizer states is kept, as one number: an element type, and how its
// codes become numbers. The formats there are, a row each: formats.def.
#pragma once

#include <cstdint>
#include <string_view>

#include "dtype/scale_grid.hpp"

namespace mp {

enum class Coding : int32_t {
    plain = 0,  // the number itself
    scaled = 1, // code * scale_inv, one power-of-two scale for the tensor (MS-AMP)
    // A master weight beside a bf16 parameter: int16, see numerics/remainder.hpp.
    remainder = 5,
// A scale for each block of the flattened tensor, see numerics/block_state.hpp.
#define BLOCKS(number, id, name, dtype, bits, elements, scale, roles) id = (number),
#include "dtype/formats.def"
};

// How the codes of a coding lie in blocks of the flattened tensor, as one row of it; no scales: it has none.
struct BlockLayout {
    DType codes = DType::none;
    int32_t bits = 0; // of a code
    ScaleGrid scales;
};
MP_HD_INLINE constexpr BlockLayout block_layout(Coding coding) {
    switch (coding) {
#define BLOCKS(number, id, name, dtype, bits, elements, scale, roles)                              \
    case Coding::id:                                                                               \
        return {DType::dtype, bits, {DType::scale, 1, elements}};
#include "dtype/formats.def"
    default:
        return {};
    }
}

MP_HD_INLINE constexpr bool has_blocks(Coding coding) {
    return block_layout(coding).scales.exists();
}
// Elements that cannot be parted; 1 where there are no blocks.
MP_HD_INLINE constexpr int64_t block_size(Coding coding) {
    return has_blocks(coding) ? block_layout(coding).scales.block_columns : 1;
}
// Every block size divides it.
inline constexpr int64_t kLargestBlock = 256;

// Where the codes of element i begin, a multiple of the block size; or bytes of i elements.
MP_HD_INLINE constexpr int64_t code_bytes(Coding coding, DType dtype, int64_t i) {
    return block_layout(coding).bits == 4 ? (i + 1) / 2 : bytes_of(dtype, i);
}

// Tensors of fewer elements keep fp32 states where blocks are asked for, if nothing else is said; as in torchao.
inline constexpr int64_t kSmallestBlockTensor = 4096;

// A number that switches and template arguments can be made of. What is not in the table has one, too.
MP_HD_INLINE constexpr uint32_t format_number(DType dtype, Coding coding) {
    return static_cast<uint32_t>(dtype) << 8 | static_cast<uint32_t>(coding);
}
enum class FormatId : uint32_t {
    none = 0,
#define FORMAT(id, name, dtype, coding, roles) id = format_number(DType::dtype, Coding::coding),
#include "dtype/formats.def"
};
MP_HD_INLINE constexpr FormatId format_id(DType dtype, Coding coding = Coding::plain) {
    return static_cast<FormatId>(format_number(dtype, coding));
}
// The type of its codes.
MP_HD_INLINE constexpr DType dtype_of(FormatId format) {
    return static_cast<DType>(static_cast<uint32_t>(format) >> 8);
}
MP_HD_INLINE constexpr Coding coding_of(FormatId format) {
    return static_cast<Coding>(static_cast<uint32_t>(format) & 0xffU);
}

constexpr bool is_scaled(FormatId format) { return coding_of(format) == Coding::scaled; }
MP_HD_INLINE constexpr bool has_blocks(FormatId format) { return has_blocks(coding_of(format)); }
constexpr int64_t block_size(FormatId format) { return block_size(coding_of(format)); }
constexpr int64_t code_bytes(FormatId format, int64_t i) {
    return code_bytes(coding_of(format), dtype_of(format), i);
}
// Codes of a float type can be rounded either way; those of a map to nearest only.
constexpr bool is_map(FormatId format) {
    return has_blocks(format) && !is_floating(dtype_of(format));
}
// Its scales over the flattened tensor, as one row.
constexpr ScaleGrid scale_grid(FormatId format) {
    return is_scaled(format) ? kTensorScale : block_layout(coding_of(format)).scales;
}

// What an array of a step is.
enum FormatRoles : uint32_t {
    kForNone = 0,
    kForParam = 1,
    kForGrad = 2,
    kForState = 4,
    kForMaster = 8,
    kForCompensation = 16,
    kForAll = 31,
};

// The roles that a format may have; none for what is not in the table.
constexpr uint32_t format_roles(FormatId format) {
    switch (format) {
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    case FormatId::id:                                                                             \
        return roles;
#include "dtype/formats.def"
    default:
        break;
    }
    return kForNone;
}

// "bf16", "fp8_e4m3_scaled", "none". Static storage.
constexpr const char* format_name(FormatId format) {
    switch (format) {
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    case FormatId::id:                                                                             \
        return name;
#include "dtype/formats.def"
    default:
        break;
    }
    return coding_of(format) == Coding::plain ? dtype_name(dtype_of(format)) : "none";
}

// The inverse of format_name; `none` for an unknown name.
constexpr FormatId parse_format(std::string_view text) {
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    if (text == (name)) {                                                                          \
        return FormatId::id;                                                                       \
    }
#include "dtype/formats.def"
    return format_id(parse_dtype(text));
}

// What a state of so many elements is really kept in.
constexpr FormatId state_format(FormatId format, int64_t count, int64_t smallest) {
    return has_blocks(format) && count < smallest ? FormatId::fp32 : format;
}

constexpr int64_t scale_count(FormatId format, int64_t count) {
    return scale_grid(format).count(1, count);
}
constexpr int64_t scale_bytes(FormatId format, int64_t count) {
    return bytes_of(scale_grid(format).dtype, scale_count(format, count));
}
// Bytes of so many numbers in one tensor, its scales included.
constexpr int64_t format_bytes(FormatId format, int64_t count) {
    return code_bytes(format, count) + scale_bytes(format, count);
}

template <FormatId kId> struct FormatConstant {
    static constexpr FormatId kFormat = kId;
    static constexpr DType kDType = dtype_of(kId);
    static constexpr Coding kCoding = coding_of(kId);
};

// The formats that a backend's kernels load and store: what its supports() says and what its kernels choose by are both
// made of such a list, so nothing is taken that is not computed.
template <FormatId... kIds> struct FormatSet {
    template <FormatId... kMore> using With = FormatSet<kIds..., kMore...>;

    MP_HD_INLINE static constexpr bool contains(FormatId id) { return ((id == kIds) || ...); }
    template <class Body> static void for_each(Body&& body) { (body(FormatConstant<kIds>{}), ...); }
    // body(FormatConstant<id>{}) for the one of the list that it is; nothing for `none`.
    template <class Body> MP_HD_INLINE static void visit(FormatId id, Body&& body) {
        (void)((id == kIds && (body(FormatConstant<kIds>{}), true)) || ...);
    }
};

namespace detail {
template <FormatId kNone, FormatId... kIds> using Rows = FormatSet<kIds...>;
}
using AllFormats = detail::Rows<FormatId::none
#define FORMAT(id, name, dtype, coding, roles) , FormatId::id
#include "dtype/formats.def"
                                >;

} // namespace mp
