// SPDX-License-Identifier: Apache-2.0
// Layouts of optimizer states whose codes have a scale of their own: MS-AMP's levels, and others.
#pragma once

#include <vector>

#include "step_case.hpp"

namespace mp::test {

inline constexpr DType kF = DType::fp32;
inline constexpr DType kH = DType::fp16;
inline constexpr DType kB = DType::bf16;
inline constexpr DType k43 = DType::fp8_e4m3;
inline constexpr DType k52 = DType::fp8_e5m2;
inline constexpr DType kNone = DType::none;

// Scales of the old codes: powers of two that are not those of the new ones.
inline Layout scaled(DType param, DType grad, DType exp_avg, DType exp_avg_sq, DType compensation,
                     DType master, const char* roles) {
    Layout layout = {param, grad, exp_avg, exp_avg_sq, compensation, master, {}};
    for (const char* role = roles; *role != '\0'; ++role) {
        switch (*role) {
        case 'p':
            layout.scale_inv.param = 0x1p-3F;
            break;
        case 'g':
            layout.scale_inv.grad = 0x1p-5F;
            break;
        case 'm':
            layout.scale_inv.exp_avg = 0x1p-7F;
            break;
        case 'v':
            layout.scale_inv.exp_avg_sq = 0x1p-9F;
            break;
        default:
            layout.scale_inv.master = 0x1p-2F;
        }
    }
    return layout;
}

inline Layout msamp_o1() { return scaled(kH, k43, kF, kF, kNone, kNone, "pg"); }
inline Layout msamp_o2() { return scaled(kH, k43, k43, kH, kNone, kNone, "pgmv"); }
inline Layout msamp_o3() { return scaled(k43, k43, k43, kH, kNone, kH, "pgmvw"); }

inline std::vector<Layout> scaled_layouts() {
    return {msamp_o1(),
            msamp_o2(),
            msamp_o3(),
            scaled(kF, kF, k43, kH, kNone, kNone, "mv"),
            scaled(kF, k52, kF, kF, kNone, kNone, "g"),
            scaled(kB, kB, kB, kB, kB, kNone, "g"),
            scaled(kB, kB, kB, kB, kNone, kNone, "g"),
            scaled(kB, kH, kH, kH, kB, kNone, "gmv"),
            scaled(k43, kF, kF, kF, kNone, kNone, "p"),
            scaled(k43, kB, kF, kF, kNone, kF, "p"),
            scaled(kB, k52, k43, kB, kNone, kH, "gmw"),
            scaled(kH, kH, kH, kH, kNone, kH, "w"),
            scaled(kH, kF, k43, k43, kNone, kNone, "mv")};
}

} // namespace mp::test
