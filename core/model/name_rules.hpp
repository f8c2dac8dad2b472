// SPDX-License-Identifier: Apache-2.0
// NameRules: the text that says which tensors there are under which names, and of what they are made. Knows no tensors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/name_pattern.hpp"

namespace mp::model {

enum class ViewKind : uint8_t { name, join, rows, part, transpose, half_to_pairs, pairs_to_half };

// What is read from where: a name, or an operation on others.
struct ViewExpression {
    ViewKind kind = ViewKind::name;
    NamePattern name;                  // of kind `name`
    std::vector<ViewExpression> parts; // of the others
    int64_t first = 0;  // rows: the first and the one behind the last; part: which of how many;
    int64_t second = 0; // of the permutations: the heads
};

struct NameRule {
    int64_t line = 0; // from 1
    NamePattern target;
    ViewExpression source;
};

inline constexpr std::size_t kMostRulesBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMostPatternRules = 1024; // each is compared with all names
inline constexpr std::size_t kMostStars = 8;
inline constexpr int32_t kMostViewDepth = 16;
inline constexpr std::size_t kMostJoined = 1024;

// Throws invalid_argument, with the line.
std::vector<NameRule> read_name_rules(std::string_view text);

// The first name that stands in it.
const NamePattern& first_name(const ViewExpression& expression) noexcept;

} // namespace mp::model
