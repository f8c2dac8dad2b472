// SPDX-License-Identifier: Apache-2.0
// The kinds of operation, and what every description of one begins with.
#pragma once

#include <cstdint>

namespace mp {

enum class OpKind : int32_t {
#define X(name, desc, candidate) name,
#include "device/op_kinds.def"
#undef X
};
#define X(name, desc, candidate) +1
inline constexpr int32_t kOpKindCount = 0
#include "device/op_kinds.def"
    ;
#undef X

struct OpDesc {
    OpKind kind;
    bool operator==(const OpDesc&) const = default;
};

} // namespace mp
