// SPDX-License-Identifier: Apache-2.0
// Views: some elements of a tensor as a tensor of their own.
#include <cstring>

#include "support.hpp"

using namespace mp_test;

namespace {

std::vector<float> floats(mp_tensor* tensor, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(succeeded(mp_tensor_read(tensor, nullptr, values.data(), count * sizeof(float))));
    return values;
}

TEST(Views, ShareTheElements) {
    const Context context = make_context();
    const std::vector<float> values = numbers(24, 1);
    const Tensor whole = make_tensor(context, MP_DTYPE_FP32, {6, 4}, values);
    const Tensor rows = view_of(whole, 8, {2, 4});
    EXPECT_EQ(floats(rows, 8), std::vector<float>(values.begin() + 8, values.begin() + 16));
    const Tensor one = view_of(rows, 5, {}); // of a view
    EXPECT_EQ(floats(one, 1)[0], values[13]);
    const float changed = -7.0F;
    MP_OK(mp_tensor_write(one, nullptr, &changed, sizeof changed));
    EXPECT_EQ(floats(whole, 24)[13], changed);
    EXPECT_EQ(floats(rows, 8)[5], changed);
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    MP_OK(mp_tensor_get_desc(rows, &desc));
    EXPECT_EQ(desc.ndim, 2);
    EXPECT_EQ(desc.shape[0], 2);
    EXPECT_EQ(desc.shape[1], 4);
    EXPECT_EQ(desc.dtype, MP_DTYPE_FP32);
    // What overlaps is found as ever.
    const Tensor other = view_of(whole, 10, {2, 4});
    MP_FAILS(mp_tensor_copy(rows, nullptr, other), MP_STATUS_INVALID_ARGUMENT, "overlap");
    const Tensor apart = view_of(whole, 16, {2, 4});
    MP_OK(mp_tensor_copy(rows, nullptr, apart));
    EXPECT_EQ(floats(apart, 8), floats(rows, 8));
}

TEST(Views, KeepTheTensorAlive) {
    const Context context = make_context();
    const std::vector<float> values = numbers(100, 2);
    int released = 0;
    std::vector<float> memory = values;
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = MP_DTYPE_FP32;
    desc.ndim = 1;
    desc.shape[0] = 100;
    mp_tensor* whole = nullptr;
    MP_OK(mp_tensor_wrap(
        context, &desc, memory.data(), [](void* payload) { ++*static_cast<int*>(payload); },
        &released, &whole));
    {
        const Tensor view = view_of(whole, 50, {50});
        mp_tensor_destroy(whole);
        EXPECT_EQ(released, 0);
        EXPECT_EQ(floats(view, 50)[0], values[50]);
    }
    EXPECT_EQ(released, 1);
}

TEST(Views, OutsideOfTheTensorAreRefused) {
    const Context context = make_context();
    const Tensor whole = make_tensor(context, MP_DTYPE_BF16, {6, 4});
    const auto make = [&](int64_t offset, const std::vector<int64_t>& shape) {
        mp_tensor* raw = nullptr;
        const mp_status status = mp_tensor_create_view(
            whole, offset, static_cast<int32_t>(shape.size()), shape.data(), &raw);
        EXPECT_EQ(raw == nullptr, status != MP_STATUS_OK);
        mp_tensor_destroy(raw);
        return status;
    };
    MP_OK(make(0, {24}));
    MP_OK(make(24, {0}));
    MP_FAILS(make(1, {24}), MP_STATUS_INVALID_SHAPE, "[24]", "[6, 4]", "24");
    MP_FAILS(make(24, {}), MP_STATUS_INVALID_SHAPE, "element 24");
    MP_FAILS(make(25, {0}), MP_STATUS_INVALID_SHAPE, "element 25");
    MP_FAILS(make(-1, {1}), MP_STATUS_INVALID_SHAPE, "-1");
    MP_FAILS(make(0, {-1}), MP_STATUS_INVALID_SHAPE, "sizes");
    MP_FAILS(make(0, std::vector<int64_t>(9, 1)), MP_STATUS_INVALID_SHAPE, "ndim");
    MP_FAILS(make(0, {INT64_MAX, INT64_MAX}), MP_STATUS_INVALID_SHAPE, "2^62");
    mp_tensor* raw = nullptr;
    MP_FAILS(mp_tensor_create_view(whole, 0, 1, nullptr, &raw), MP_STATUS_NULL_ARGUMENT, "shape");
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = MP_DTYPE_FP8_E4M3;
    desc.ndim = 1;
    desc.shape[0] = 32;
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    MP_OK(mp_tensor_create_quantized(context, &desc, &quant, &raw));
    const Tensor codes(raw);
    raw = nullptr;
    MP_FAILS(mp_tensor_create_view(codes, 0, 0, nullptr, &raw), MP_STATUS_UNSUPPORTED, "quantized");
    EXPECT_EQ(raw, nullptr);
}

// A layer's cached weight is of the weight as it is, whoever wrote it.
TEST(Views, WritesThroughThemAreNoticed) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Tensor all = make_tensor(context, MP_DTYPE_FP32, {3, 4, 8}, numbers(96, 3));
    const Tensor weight = view_of(all, 32, {4, 8}); // one of three
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = 8;
    desc.out_features = 4;
    desc.flags = MP_LINEAR_CACHE_WEIGHT;
    mp_linear* linear = nullptr;
    MP_OK(mp_linear_create(context, recipe, &desc, weight, nullptr, &linear));
    const Tensor x = make_tensor(context, MP_DTYPE_FP32, {2, 8}, numbers(16, 4));
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {2, 4});
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    const std::vector<float> before = floats(y, 8);
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    EXPECT_EQ(floats(y, 8), before);
    const std::vector<float> other = numbers(96, 5);
    MP_OK(mp_tensor_write(all, nullptr, other.data(), other.size() * sizeof(float)));
    MP_OK(mp_linear_forward(linear, nullptr, x, y));
    EXPECT_NE(floats(y, 8), before);
    mp_linear_destroy(linear);
}

} // namespace
