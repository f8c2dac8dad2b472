// SPDX-License-Identifier: Apache-2.0
// Which recipe "auto" and "auto_fp8" become, by device.
#include <gtest/gtest.h>

#include "recipe/automatic.hpp"

namespace mp::test {
namespace {

PresetChoice on_cuda(const char* name, int32_t major, int32_t minor) {
    return resolve_preset(name, {DeviceKind::cuda, {major, minor, false}});
}

TEST(Automatic, EveryGenerationOfGpu) {
    const struct {
        int32_t major;
        int32_t minor;
        const char* preset;
        const char* fp8_preset;
    } rows[] = {
        {6, 1, "fp32", "fp32"},
        {7, 0, "fp16_mixed", "fp16_mixed"},
        {7, 5, "fp16_mixed", "fp16_mixed"}, // emulates bf16, which is no reason to use it
        {8, 0, "bf16_mixed", "bf16_mixed"},
        {8, 6, "bf16_mixed", "bf16_mixed"},
        {8, 9, "bf16_mixed", "fp8_current"},
        {9, 0, "bf16_mixed", "fp8_current"},
        {10, 0, "bf16_mixed", "mxfp8"},
        {10, 3, "bf16_mixed", "mxfp8"},
        {12, 0, "bf16_mixed", "fp8_current"},
    };
    for (const auto& row : rows) {
        const PresetChoice plain = on_cuda("auto", row.major, row.minor);
        EXPECT_STREQ(plain.preset->name, row.preset) << row.major << "." << row.minor;
        EXPECT_FALSE(plain.preset->recipe.fp8.is_used()) << "fp8 only on request";
        const PresetChoice fp8 = on_cuda("auto_fp8", row.major, row.minor);
        EXPECT_STREQ(fp8.preset->name, row.fp8_preset) << row.major << "." << row.minor;
        for (const PresetChoice& choice : {plain, fp8}) {
            EXPECT_NE(choice.reason.find(std::to_string(row.major) + "."), std::string::npos);
            EXPECT_NE(choice.reason.find(choice.preset->name), std::string::npos) << choice.reason;
        }
    }
}

TEST(Automatic, HostByWhatItIsMeasuredToDo) {
    const auto choose = [](const char* name, bool has_fast_bf16) {
        return resolve_preset(name, {DeviceKind::host, {0, 0, has_fast_bf16}});
    };
    EXPECT_STREQ(choose("auto", true).preset->name, "bf16_mixed");
    EXPECT_STREQ(choose("auto", false).preset->name, "fp32");
    EXPECT_STREQ(choose("auto_fp8", false).preset->name, "fp8_current");
    EXPECT_NE(choose("auto", false).reason.find("not faster"), std::string::npos);
}

TEST(Automatic, APresetsOwnNameNeedsNoReason) {
    const PresetChoice choice = on_cuda("bf16_pure", 5, 0);
    EXPECT_STREQ(choice.preset->name, "bf16_pure");
    EXPECT_EQ(choice.reason, "");
    EXPECT_THROW((void)on_cuda("automatic", 9, 0), Error);
}

TEST(Fp8Policy, ScalesLieAlongTheDimensionThatIsSummed) {
    const auto grid = [](const char* preset, GemmRole role, Operand operand) {
        return operand_form(find_preset(preset).recipe.fp8, role, operand).grid;
    };
    for (const char* name : {"fp8_delayed", "fp8_current"}) {
        for (const GemmRole role : {GemmRole::fprop, GemmRole::dgrad, GemmRole::wgrad}) {
            EXPECT_EQ(grid(name, role, Operand::input), kTensorScale);
        }
    }
    EXPECT_EQ(grid("fp8_rowwise", GemmRole::fprop, Operand::weight), kRowScales);
    EXPECT_EQ(grid("fp8_rowwise", GemmRole::dgrad, Operand::weight), kColumnScales);
    EXPECT_EQ(grid("fp8_rowwise", GemmRole::dgrad, Operand::grad_output), kRowScales);
    EXPECT_EQ(grid("fp8_rowwise", GemmRole::wgrad, Operand::grad_output), kColumnScales);
    EXPECT_EQ(grid("fp8_rowwise", GemmRole::wgrad, Operand::input), kColumnScales);
    EXPECT_EQ(grid("fp8_rowwise_gw_hp", GemmRole::dgrad, Operand::weight), kTensorScale);
    EXPECT_EQ(grid("fp8_block", GemmRole::fprop, Operand::weight), kSquareBlockScales);
    EXPECT_EQ(grid("fp8_block", GemmRole::dgrad, Operand::weight), kSquareBlockScales);
    EXPECT_EQ(grid("fp8_block", GemmRole::fprop, Operand::input), kRowBlockScales);
    EXPECT_EQ(grid("fp8_block", GemmRole::wgrad, Operand::input), kColumnBlockScales);
    EXPECT_EQ(grid("mxfp8", GemmRole::fprop, Operand::weight), kMxRowScales);
    EXPECT_EQ(grid("mxfp8", GemmRole::dgrad, Operand::weight), kMxColumnScales);
    const Fp8Policy& hp = find_preset("fp8_rowwise_gw_hp").recipe.fp8;
    EXPECT_TRUE(is_fp8(hp, GemmRole::dgrad));
    EXPECT_FALSE(is_fp8(hp, GemmRole::wgrad));
}

TEST(Fp8Policy, FormatsAndMargin) {
    Fp8Policy policy = find_preset("fp8_delayed").recipe.fp8;
    EXPECT_EQ(operand_form(policy, GemmRole::dgrad, Operand::grad_output).dtype, DType::fp8_e5m2);
    EXPECT_EQ(operand_form(policy, GemmRole::dgrad, Operand::weight).dtype, DType::fp8_e4m3);
    policy.margin = 2;
    EXPECT_EQ(operand_form(policy, GemmRole::fprop, Operand::input).policy.max_code, 112.0F);
    policy.format = Fp8Format::e5m2;
    EXPECT_EQ(operand_form(policy, GemmRole::fprop, Operand::input).policy.max_code, 14336.0F);
}

// torchao's own examples of its filter (in, out).
TEST(Fp8Policy, LayersThatStayInHighPrecision) {
    Fp8Policy policy = find_preset("fp8_current").recipe.fp8;
    EXPECT_EQ(reason_for_high_precision(policy, 16, 32, true), "");
    EXPECT_NE(reason_for_high_precision(policy, 24, 32, false).find("multiples of 16"),
              std::string::npos);
    policy.size_filter = SizeFilter::automatic;
    EXPECT_EQ(reason_for_high_precision(policy, 8192, 2048, false), "");
    EXPECT_NE(reason_for_high_precision(policy, 4096, 1024, false), "");
    policy.scaling = Fp8Scaling::rowwise;
    EXPECT_EQ(reason_for_high_precision(policy, 4096, 8192, false), "");
    EXPECT_NE(reason_for_high_precision(policy, 2048, 4096, false), "");
    EXPECT_NE(reason_for_high_precision(policy, 8192, 2048, false), "");
    policy.keep_first_and_last = true;
    EXPECT_NE(reason_for_high_precision(policy, 4096, 8192, true).find("first or the last"),
              std::string::npos);
    EXPECT_EQ(reason_for_high_precision(policy, 4096, 8192, false), "");
}

} // namespace
} // namespace mp::test
