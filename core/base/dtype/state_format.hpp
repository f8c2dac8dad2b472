// SPDX-License-Identifier: Apache-2.0
// StateFormat: how weights, gradients and optimizer states are kept: an element type, and how its codes
// become numbers. The formats there are: state_formats.def.
#pragma once

#include <cstdint>
#include <string_view>

#include "dtype/dtype.hpp"

namespace mp {

enum class Coding : int32_t {
    plain = 0,  // the number itself
    scaled = 1, // code * scale_inv, one power-of-two scale for the tensor (MS-AMP)
    // A master weight beside a bf16 parameter: int16, see numerics/remainder.hpp.
    remainder = 5,
// A scale for each block of the flattened tensor, see numerics/block_state.hpp.
#define BLOCKS(number, id, name, dtype, bits, elements, scale, roles) id = (number),
#include "dtype/state_formats.def"
};

// How the codes of a coding lie in blocks; 0 elements: it has none.
struct BlockLayout {
    int64_t elements = 0;
    int32_t bits = 0; // of a code
    DType codes = DType::none;
    DType scale = DType::none;
};
MP_HD_INLINE constexpr BlockLayout block_layout(Coding coding) {
    switch (coding) {
#define BLOCKS(number, id, name, dtype, bits, elements, scale, roles)                              \
    case Coding::id:                                                                               \
        return {elements, bits, DType::dtype, DType::scale};
#include "dtype/state_formats.def"
    default:
        return {};
    }
}

MP_HD_INLINE constexpr bool has_blocks(Coding coding) { return block_layout(coding).elements > 0; }
// Elements that cannot be parted; 1 where there are no blocks.
MP_HD_INLINE constexpr int64_t block_size(Coding coding) {
    return has_blocks(coding) ? block_layout(coding).elements : 1;
}
// Every block size divides it.
inline constexpr int64_t kLargestBlock = 256;

// Where the codes of element i begin, a multiple of the block size; or bytes of i elements.
MP_HD_INLINE constexpr int64_t code_bytes(Coding coding, DType dtype, int64_t i) {
    return block_layout(coding).bits == 4 ? (i + 1) / 2 : i * dtype_size(dtype);
}

// Tensors of fewer elements keep fp32 states where blocks are asked for, if nothing else is said; as in torchao.
inline constexpr int64_t kSmallestBlockTensor = 4096;

struct StateFormat {
    DType dtype = DType::none;
    Coding coding = Coding::plain;

    constexpr StateFormat() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a plain type is a format
    MP_HD_INLINE constexpr StateFormat(DType type, Coding how = Coding::plain)
        : dtype(type), coding(how) {}

    [[nodiscard]] constexpr bool exists() const { return dtype != DType::none; }
    [[nodiscard]] constexpr bool is_scaled() const { return coding == Coding::scaled; }
    // Codes of a float type can be rounded either way; those of a map to nearest only.
    [[nodiscard]] constexpr bool is_map() const {
        return has_blocks(coding) && !is_floating(dtype);
    }
    constexpr bool operator==(const StateFormat&) const = default;
};

// A format as one number, for switches and template arguments. What is not in the table has a number, too.
MP_HD_INLINE constexpr uint32_t format_number(DType dtype, Coding coding) {
    return static_cast<uint32_t>(dtype) << 8 | static_cast<uint32_t>(coding);
}
enum class FormatId : uint32_t {
    none = 0,
#define FORMAT(id, name, dtype, coding, roles) id = format_number(DType::dtype, Coding::coding),
#include "dtype/state_formats.def"
};
MP_HD_INLINE constexpr FormatId format_id(StateFormat format) {
    return static_cast<FormatId>(format_number(format.dtype, format.coding));
}
MP_HD_INLINE constexpr StateFormat format_of(FormatId id) {
    const auto number = static_cast<uint32_t>(id);
    return {static_cast<DType>(number >> 8), static_cast<Coding>(number & 0xffU)};
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
constexpr uint32_t format_roles(StateFormat format) {
    switch (format_id(format)) {
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    case FormatId::id:                                                                             \
        return roles;
#include "dtype/state_formats.def"
    default:
        break;
    }
    return kForNone;
}

// "bf16", "fp8_e4m3_scaled", "none". Static storage.
constexpr const char* format_name(StateFormat format) {
    switch (format_id(format)) {
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    case FormatId::id:                                                                             \
        return name;
#include "dtype/state_formats.def"
    default:
        break;
    }
    return format.coding == Coding::plain ? dtype_name(format.dtype) : "none";
}

// The inverse of format_name; a format of type `none` for an unknown name.
constexpr StateFormat parse_format(std::string_view text) {
#define FORMAT(id, name, dtype, coding, roles)                                                     \
    if (text == (name)) {                                                                          \
        return format_of(FormatId::id);                                                            \
    }
#include "dtype/state_formats.def"
    return parse_dtype(text);
}

// What a state of so many elements is really kept in.
constexpr StateFormat state_format(StateFormat format, int64_t count, int64_t smallest) {
    return has_blocks(format.coding) && count < smallest ? StateFormat(DType::fp32) : format;
}

constexpr int64_t scale_count(StateFormat format, int64_t count) {
    if (has_blocks(format.coding)) {
        const int64_t size = block_size(format.coding);
        return (count + size - 1) / size;
    }
    return format.is_scaled() ? 1 : 0;
}
// What the scales are kept in.
constexpr DType scale_dtype(StateFormat format) {
    return has_blocks(format.coding) ? block_layout(format.coding).scale : DType::fp32;
}

// Bytes of so many numbers in one tensor, its scales included.
constexpr int64_t format_bytes(StateFormat format, int64_t count) {
    return code_bytes(format.coding, format.dtype, count) +
           bytes_of(scale_dtype(format), scale_count(format, count));
}

template <FormatId kId> struct FormatConstant {
    static constexpr DType kDType = format_of(kId).dtype;
    static constexpr Coding kCoding = format_of(kId).coding;
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
#include "dtype/state_formats.def"
                                >;

} // namespace mp
