// SPDX-License-Identifier: Apache-2.0
// Frozen layers over codes in blocks: the bits of the layer over what the codes are worth, and no decoded copy of the weight.
#include "coded.hpp"
#include "layers.hpp"
#include "memory.hpp"

using namespace mp_test;
using namespace mp_test::coded;

namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kIn = 512;
constexpr int64_t kOut = 256;

struct Result {
    std::vector<float> y, dx;
    bool operator==(const Result&) const = default;
};

Result run(mp_context* context, mp_linear* layer) {
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, integers(kRows * kIn, 1)),
                 dy = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, integers(kRows * kOut, 2)),
                 y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}),
                 dx = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn});
    EXPECT_TRUE(done(mp_linear_forward(layer, nullptr, x, y)));
    EXPECT_TRUE(done(mp_linear_backward_data(layer, nullptr, dy, dx)));
    return {values_of(context, y), values_of(context, dx)};
}

} // namespace

TEST(LinearCoded, EqualsTheLayerOverTheNumbers) {
    const mp_linear_desc desc = linear_desc(kIn, kOut, MP_LINEAR_FROZEN);
    for (const char* backend : kHostBackends) {
        const Context context = make_context(2, backend);
        // Recipes with codes of their own take a weight in blocks in their high precision.
        for (const auto& [name, plain] : {std::pair{"fp32", "fp32"},
                                          {"bf16_mixed", "bf16_mixed"},
                                          {"fp16_mixed", "fp16_mixed"},
                                          {"fp8_current", "bf16_mixed"},
                                          {"mxfp8", "bf16_mixed"}}) {
            const Recipe recipe = make_recipe(context, name), wide = make_recipe(context, plain);
            for (const Blocks& type : block_types()) {
                SCOPED_TRACE(std::string(backend) + ", " + name + ", " + mp_dtype_name(type.dtype));
                const Tensor codes = make_blocks(context, type, kOut, kIn, 4);
                const Tensor bias = make_tensor(context, MP_DTYPE_FP32, {kOut}, integers(kOut, 8));
                const Linear coded = make_linear(context, recipe, desc, codes, bias);
                const Linear other =
                    make_linear(context, wide, desc,
                                numbers_of(context, codes, MP_DTYPE_FP32, kOut, kIn), bias);
                EXPECT_EQ(run(context, coded), run(context, other));
                EXPECT_NE(description_of(coded).find(mp_dtype_name(type.dtype)), std::string::npos);
            }
        }
    }
}

TEST(LinearCoded, StatisticsCountTheNumbers) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor codes = make_blocks(context, block_types()[4], kOut, kIn, 4);
    const mp_linear_desc desc = linear_desc(kIn, kOut, MP_LINEAR_FROZEN | MP_LINEAR_STATS);
    const Linear layer = make_linear(context, recipe, desc, codes);
    (void)run(context, layer);
    const mp_linear_stats stats = stats_of(layer, MP_OPERAND_WEIGHT);
    double largest = 0;
    for (const float value :
         values_of(context, numbers_of(context, codes, MP_DTYPE_FP32, kOut, kIn))) {
        largest = std::max(largest, static_cast<double>(std::fabs(value)));
    }
    EXPECT_EQ(stats.amax, largest);
    EXPECT_EQ(stats.elements, kOut * kIn);
}

// Of 8 million numbers in bf16, 4 MiB at a time.
TEST(LinearCoded, TheWeightIsNowhereButAsCodes) {
    constexpr int64_t kSize = 2048, kColumns = 4096;
    Counter counted;
    const Context context = make_counted_context(&counted, 0);
    const Queue queue = make_queue(context);
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor codes = make_tensor(context, MP_DTYPE_Q8_0, {kSize, kColumns});
    const Linear layer =
        make_linear(context, recipe, linear_desc(kColumns, kSize, MP_LINEAR_FROZEN), codes);
    const Tensor x = make_tensor(context, MP_DTYPE_BF16, {1, kColumns}),
                 y = make_tensor(context, MP_DTYPE_BF16, {1, kSize});
    const int64_t before = counted.live;
    MP_OK(mp_linear_forward(layer, queue, x, y));
    MP_OK(mp_linear_backward_data(layer, queue, y, x));
    EXPECT_LT(counted.peak - before, kSize * kColumns); // half of its numbers
    size_t peak = 0;
    MP_OK(mp_queue_get_workspace_peak(queue, &peak));
    EXPECT_LE(peak, size_t{4} << 20); // a slab
}

TEST(LinearCoded, SuchAWeightIsNotTrained) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor codes = make_blocks(context, block_types()[0], kOut, kIn, 4);
    mp_linear* out = nullptr;
    const mp_linear_desc trained = linear_desc(kIn, kOut);
    EXPECT_TRUE(fails(mp_linear_create(context, recipe, &trained, codes, nullptr, &out),
                      MP_STATUS_INVALID_DTYPE, {"q4_0", "MP_LINEAR_FROZEN"}));
    const mp_linear_desc frozen = linear_desc(kIn, kOut, MP_LINEAR_FROZEN);
    const Tensor bias = make_blocks(context, block_types()[0], 1, kOut, 4);
    EXPECT_TRUE(fails(mp_linear_create(context, recipe, &frozen, codes, bias, &out),
                      MP_STATUS_INVALID_DTYPE, {"bias", "q4_0"}));
    const Linear layer = make_linear(context, recipe, frozen, codes);
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}),
                 y = make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}),
                 blocks = make_blocks(context, block_types()[0], kRows, kIn, 4),
                 dw = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    EXPECT_TRUE(fails(mp_linear_forward(layer, nullptr, blocks, y), MP_STATUS_INVALID_DTYPE,
                      {"x", "q4_0"}));
    EXPECT_TRUE(fails(mp_linear_backward_data(layer, nullptr, y, blocks), MP_STATUS_INVALID_DTYPE,
                      {"dx", "q4_0"}));
    EXPECT_TRUE(fails(mp_linear_backward_weight(layer, nullptr, y, dw, nullptr, 0),
                      MP_STATUS_BAD_STATE, {"MP_LINEAR_FROZEN"}));
}
