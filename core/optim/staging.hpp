// SPDX-License-Identifier: Apache-2.0
// How arrays travel between a device and a step on the host: in buckets, of which the even ones have one staging memory and the
// odd ones another. The memory plan and the step read it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "dtype/format_id.hpp"

namespace mp::optim {

// Of one parameter's elements that are stepped: its gradient comes to a place from which its new numbers leave.
struct StagedArray {
    std::size_t grad_bytes = 0;
    std::size_t param_bytes = 0;
    bool has_scales = false;

    // In its place. Scales have a line of their own.
    [[nodiscard]] std::size_t scales_at() const noexcept;
    [[nodiscard]] std::size_t bytes() const noexcept;
};

// A gradient that stays in host memory, with its scale, behind others.
[[nodiscard]] int64_t host_gradient_bytes(FormatId format, int64_t count) noexcept;

struct Staging {
    std::vector<std::vector<std::size_t>> buckets; // which arrays, in their order
    std::array<std::size_t, 2> bytes = {0, 0}; // the largest even bucket, and the largest odd one
};
Staging make_staging(std::span<const StagedArray> arrays);

} // namespace mp::optim
