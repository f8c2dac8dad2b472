// SPDX-License-Identifier: Apache-2.0
// Tests of the library on a CUDA device through its C ABI. They are skipped where there is no device.
#pragma once

#include <string>

#include "../capi/support.hpp"

namespace mp_test {

inline constexpr const char* kRecipes[] = {
    "fp32",      "fp16_mixed",   "bf16_mixed",     "bf16_mixed_dual",
    "bf16_pure", "bf16_pure_sr", "bf16_pure_kahan"};

inline Context open_context(int32_t device_kind) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = device_kind;
    desc.num_threads = 2;
    mp_context* context = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &context)));
    return Context(context);
}

class OnCuda : public ::testing::Test {
  protected:
    void SetUp() override {
        const mp_status status = mp_device_available(MP_DEVICE_CUDA, 0);
        if (status == MP_STATUS_DEVICE_UNAVAILABLE) {
            GTEST_SKIP() << "skipped: no CUDA device (" << mp_last_error_message() << ")";
        }
        ASSERT_TRUE(succeeded(status));
    }
};

inline int32_t dtype_of(mp_recipe* recipe, const char* key) {
    const char* name = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_get_string(recipe, key, &name)));
    const std::string text = name;
    return text == "fp32" ? MP_DTYPE_FP32 : text == "fp16" ? MP_DTYPE_FP16 : MP_DTYPE_BF16;
}

} // namespace mp_test
