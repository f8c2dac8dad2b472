// SPDX-License-Identifier: Apache-2.0
// Which recipe "auto" and "auto_fp8" become, by device.
#include <gtest/gtest.h>

#include "cuda/capability.hpp"
#include "recipe/automatic.hpp"

namespace mp::test {
namespace {

recipe::PresetChoice on_gpu(const char* name, int32_t compute_capability) {
    return recipe::resolve_preset(name, backends::cuda::capability_of(compute_capability));
}

TEST(Automatic, EveryGenerationOfGpu) {
    const struct {
        int32_t compute_capability;
        const char* preset;
        const char* fp8_preset;
    } rows[] = {
        {61, "fp32", "fp8_current"},
        {70, "fp16_mixed", "fp8_current"},
        {75, "fp16_mixed", "fp8_current"}, // emulates bf16, which is no reason to use it
        {80, "bf16_mixed", "fp8_current"},
        {86, "bf16_mixed", "fp8_current"},
        {89, "bf16_mixed", "fp8_current"},
        {90, "bf16_mixed", "fp8_current"},
        // They multiply MX, too, but this library does not ask them to yet.
        {100, "bf16_mixed", "fp8_current"},
        {103, "bf16_mixed", "fp8_current"},
        {120, "bf16_mixed", "fp8_current"},
    };
    for (const auto& row : rows) {
        const recipe::PresetChoice plain = on_gpu("auto", row.compute_capability);
        EXPECT_STREQ(plain.preset->name, row.preset) << row.compute_capability;
        EXPECT_FALSE(plain.preset->recipe.fp8.is_used()) << "fp8 only on request";
        const recipe::PresetChoice fp8 = on_gpu("auto_fp8", row.compute_capability);
        EXPECT_STREQ(fp8.preset->name, row.fp8_preset) << row.compute_capability;
        EXPECT_EQ(fp8.reason.find("save memory, not time") == std::string::npos,
                  row.compute_capability >= 89);
        for (const recipe::PresetChoice& choice : {plain, fp8}) {
            EXPECT_NE(choice.reason.find("compute capability "), std::string::npos);
            EXPECT_NE(choice.reason.find(choice.preset->name), std::string::npos) << choice.reason;
        }
    }
}

TEST(Automatic, HostByWhatItIsMeasuredToDo) {
    DeviceCapability host;
    EXPECT_STREQ(recipe::resolve_preset("auto", host).preset->name, "fp32");
    EXPECT_NE(recipe::resolve_preset("auto", host).reason.find("faster than fp32"),
              std::string::npos);
    host.has_fast_bf16 = true;
    EXPECT_STREQ(recipe::resolve_preset("auto", host).preset->name, "bf16_mixed");
    EXPECT_STREQ(recipe::resolve_preset("auto_fp8", host).preset->name, "fp8_current");
}

TEST(Automatic, APresetsOwnNameNeedsNoReason) {
    const recipe::PresetChoice choice = on_gpu("bf16_pure", 50);
    EXPECT_STREQ(choice.preset->name, "bf16_pure");
    EXPECT_EQ(choice.reason, "");
    EXPECT_THROW((void)on_gpu("automatic", 90), Error);
}

TEST(Fp8Policy, ScalesLieAlongTheDimensionThatIsSummed) {
    const auto grid = [](const char* preset, recipe::GemmRole role, recipe::Operand operand) {
        return recipe::operand_format(recipe::find_preset(preset).recipe.fp8, role, operand).grid;
    };
    for (const char* name : {"fp8_delayed", "fp8_current"}) {
        for (const recipe::GemmRole role :
             {recipe::GemmRole::fprop, recipe::GemmRole::dgrad, recipe::GemmRole::wgrad}) {
            EXPECT_EQ(grid(name, role, recipe::Operand::input), kTensorScale);
        }
    }
    EXPECT_EQ(grid("fp8_rowwise", recipe::GemmRole::fprop, recipe::Operand::weight), kRowScales);
    EXPECT_EQ(grid("fp8_rowwise", recipe::GemmRole::dgrad, recipe::Operand::weight), kColumnScales);
    EXPECT_EQ(grid("fp8_rowwise", recipe::GemmRole::dgrad, recipe::Operand::grad_output),
              kRowScales);
    EXPECT_EQ(grid("fp8_rowwise", recipe::GemmRole::wgrad, recipe::Operand::grad_output),
              kColumnScales);
    EXPECT_EQ(grid("fp8_rowwise", recipe::GemmRole::wgrad, recipe::Operand::input), kColumnScales);
    EXPECT_EQ(grid("fp8_rowwise_gw_hp", recipe::GemmRole::dgrad, recipe::Operand::weight),
              kTensorScale);
    EXPECT_EQ(grid("fp8_block", recipe::GemmRole::fprop, recipe::Operand::weight),
              kSquareBlockScales);
    EXPECT_EQ(grid("fp8_block", recipe::GemmRole::dgrad, recipe::Operand::weight),
              kSquareBlockScales);
    EXPECT_EQ(grid("fp8_block", recipe::GemmRole::fprop, recipe::Operand::input), kRowBlockScales);
    EXPECT_EQ(grid("fp8_block", recipe::GemmRole::wgrad, recipe::Operand::input),
              kColumnBlockScales);
    EXPECT_EQ(grid("mxfp8", recipe::GemmRole::fprop, recipe::Operand::weight), kMxRowScales);
    EXPECT_EQ(grid("mxfp8", recipe::GemmRole::dgrad, recipe::Operand::weight), kMxColumnScales);
    const recipe::Fp8Policy& hp = recipe::find_preset("fp8_rowwise_gw_hp").recipe.fp8;
    EXPECT_TRUE(is_fp8(hp, recipe::GemmRole::dgrad));
    EXPECT_FALSE(is_fp8(hp, recipe::GemmRole::wgrad));
}

TEST(Fp8Policy, FormatsAndMargin) {
    recipe::Fp8Policy policy = recipe::find_preset("fp8_delayed").recipe.fp8;
    EXPECT_EQ(
        recipe::operand_format(policy, recipe::GemmRole::dgrad, recipe::Operand::grad_output).dtype,
        DType::fp8_e5m2);
    EXPECT_EQ(
        recipe::operand_format(policy, recipe::GemmRole::dgrad, recipe::Operand::weight).dtype,
        DType::fp8_e4m3);
    policy.margin = 2;
    EXPECT_EQ(recipe::operand_format(policy, recipe::GemmRole::fprop, recipe::Operand::input)
                  .policy.max_code,
              112.0F);
    policy.format = recipe::Fp8Format::e5m2;
    EXPECT_EQ(recipe::operand_format(policy, recipe::GemmRole::fprop, recipe::Operand::input)
                  .policy.max_code,
              14336.0F);
}

// torchao's own examples of its filter (in, out).
TEST(Fp8Policy, LayersThatStayInHighPrecision) {
    recipe::Fp8Policy policy = recipe::find_preset("fp8_current").recipe.fp8;
    EXPECT_EQ(recipe::reason_for_high_precision(policy, 16, 32, true), "");
    EXPECT_NE(recipe::reason_for_high_precision(policy, 24, 32, false).find("multiples of 16"),
              std::string::npos);
    policy.size_filter = recipe::SizeFilter::automatic;
    EXPECT_EQ(recipe::reason_for_high_precision(policy, 8192, 2048, false), "");
    EXPECT_NE(recipe::reason_for_high_precision(policy, 4096, 1024, false), "");
    policy.scaling = recipe::Fp8Scaling::rowwise;
    EXPECT_EQ(recipe::reason_for_high_precision(policy, 4096, 8192, false), "");
    EXPECT_NE(recipe::reason_for_high_precision(policy, 2048, 4096, false), "");
    EXPECT_NE(recipe::reason_for_high_precision(policy, 8192, 2048, false), "");
    policy.keep_first_and_last = true;
    EXPECT_NE(recipe::reason_for_high_precision(policy, 4096, 8192, true).find("first or the last"),
              std::string::npos);
    EXPECT_EQ(recipe::reason_for_high_precision(policy, 4096, 8192, false), "");
}

} // namespace
} // namespace mp::test
