// SPDX-License-Identifier: Apache-2.0
// Linear layers for the tests: made in one line, and what they say of themselves.
#pragma once

#include "support.hpp"

namespace mp_test {

inline mp_linear_desc linear_desc(int64_t in, int64_t out, uint32_t flags = 0) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = in;
    desc.out_features = out;
    desc.flags = flags;
    return desc;
}

inline Linear make_linear(mp_context* context, mp_recipe* recipe, const mp_linear_desc& desc,
                          mp_tensor* weight, mp_tensor* bias = nullptr) {
    mp_linear* made = nullptr;
    EXPECT_TRUE(succeeded(mp_linear_create(context, recipe, &desc, weight, bias, &made)));
    return Linear(made);
}

// The same, or with a note: one that stays in high precision.
inline Linear make_noted_linear(mp_context* context, mp_recipe* recipe, const mp_linear_desc& desc,
                                mp_tensor* weight, mp_tensor* bias = nullptr) {
    mp_linear* made = nullptr;
    EXPECT_TRUE(done(mp_linear_create(context, recipe, &desc, weight, bias, &made)));
    return Linear(made);
}

inline Saved make_saved(mp_linear* linear) {
    mp_saved* saved = nullptr;
    EXPECT_TRUE(succeeded(mp_saved_create(linear, &saved)));
    return Saved(saved);
}

inline std::vector<unsigned char> scaling_of(mp_linear* linear) {
    size_t needed = 0;
    EXPECT_TRUE(succeeded(mp_linear_get_scaling(linear, nullptr, 0, &needed)));
    std::vector<unsigned char> bytes(needed);
    EXPECT_TRUE(succeeded(mp_linear_get_scaling(linear, bytes.data(), bytes.size(), nullptr)));
    return bytes;
}

inline mp_linear_stats stats_of(mp_linear* linear, int32_t operand) {
    mp_linear_stats stats = MP_LINEAR_STATS_INIT;
    EXPECT_TRUE(succeeded(mp_linear_get_stats(linear, operand, &stats)));
    return stats;
}

inline std::string description_of(mp_linear* linear) {
    return written_by([&](char* to, size_t capacity, size_t* needed) {
        return mp_linear_describe(linear, to, capacity, needed);
    });
}

} // namespace mp_test
