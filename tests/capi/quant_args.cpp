// SPDX-License-Identifier: Apache-2.0
// Quantizing in the explicit way: stochastic rounding, a given amax, memory of the caller's.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kRows = 96;
constexpr int64_t kColumns = 160;
constexpr std::size_t kCount = kRows * kColumns;

struct QuantArgs : ::testing::Test {
    Context context = make_context();
    std::vector<float> values = numbers(kCount, 1);
    Tensor source = make_tensor(context, MP_DTYPE_FP32, {kRows, kColumns}, values);

    Tensor make(int32_t dtype, int32_t scaling, const std::vector<int64_t>& shape) const {
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = scaling;
        return make_quantized(context, dtype, shape, &quant);
    }
    Tensor make(int32_t dtype = MP_DTYPE_FP8_E4M3, int32_t scaling = MP_SCALING_TENSOR) const {
        return make(dtype, scaling, {kRows, kColumns});
    }
    // All bytes of it, also where an element has half a one.
    static std::vector<unsigned char> codes_of(mp_tensor* tensor, std::size_t bytes) {
        std::vector<unsigned char> codes(bytes);
        EXPECT_TRUE(succeeded(mp_tensor_read(tensor, nullptr, codes.data(), codes.size())));
        return codes;
    }
};

struct Form {
    int32_t scaling;
    int32_t dtype;
};
constexpr Form kForms[] = {
    {MP_SCALING_TENSOR, MP_DTYPE_FP8_E4M3},        {MP_SCALING_TENSOR, MP_DTYPE_FP8_E5M2},
    {MP_SCALING_ROW, MP_DTYPE_FP8_E4M3},           {MP_SCALING_COLUMN, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_BLOCK_1X128, MP_DTYPE_FP8_E4M3},   {MP_SCALING_BLOCK_128X1, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_BLOCK_128X128, MP_DTYPE_FP8_E4M3}, {MP_SCALING_MX_1X32, MP_DTYPE_FP8_E4M3},
    {MP_SCALING_MX_32X1, MP_DTYPE_FP8_E4M3},       {MP_SCALING_MX_1X32, MP_DTYPE_FP4_E2M1},
    {MP_SCALING_NVFP4, MP_DTYPE_FP4_E2M1}};

std::size_t code_bytes(int32_t dtype) { return dtype == MP_DTYPE_FP4_E2M1 ? kCount / 2 : kCount; }

// Without memory yet.
mp_quantized_memory matrix_of(int32_t dtype) {
    mp_quantized_memory memory = MP_QUANTIZED_MEMORY_INIT;
    memory.dtype = dtype;
    memory.rows = kRows;
    memory.columns = kColumns;
    return memory;
}

struct Memory {
    std::unique_ptr<void, decltype(&std::free)> owned;
    explicit Memory(std::size_t bytes)
        : owned(std::aligned_alloc(64, (bytes + 127) / 64 * 64), &std::free) {
        std::memset(owned.get(), 0, (bytes + 127) / 64 * 64);
    }
    [[nodiscard]] void* data() const { return owned.get(); }
    [[nodiscard]] std::vector<unsigned char> bytes(std::size_t count) const {
        const auto* const first = static_cast<const unsigned char*>(owned.get());
        return {first, first + count};
    }
};

} // namespace

// Under an amax of 448 the scale of E4M3 is 1, and the codes are those of a stochastic cast.
TEST_F(QuantArgs, StochasticCodesAreThoseOfACast) {
    float amax = 448.0F;
    mp_quantize_args args = MP_QUANTIZE_ARGS_INIT;
    args.rounding = MP_ROUND_STOCHASTIC;
    args.microbatch = 3;
    args.seed = 5;
    args.uid = 6;
    args.step = 7;
    args.amax_pointer = &amax;
    mp_cast_desc cast = MP_CAST_DESC_INIT;
    cast.rounding = MP_ROUND_STOCHASTIC;
    cast.microbatch = 3;
    cast.seed = 5;
    cast.uid = 6;
    cast.step = 7;
    const Tensor expected = make_tensor(context, MP_DTYPE_FP8_E4M3, {kRows, kColumns});
    MP_OK(mp_tensor_cast(source, nullptr, expected, &cast));
    const Tensor quantized = make();
    MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, &args, nullptr));
    EXPECT_EQ(bytes_of(quantized), bytes_of(expected));
    EXPECT_EQ(values_of(context, scales_of(quantized))[0], 1.0F);
    args.seed = 6;
    MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, &args, nullptr));
    EXPECT_NE(bytes_of(quantized), bytes_of(expected));
    // A slice has the bits of the whole.
    args.seed = 5;
    constexpr int64_t kFirst = 40;
    const std::vector<float> rest(values.begin() + kFirst * kColumns, values.end());
    const Tensor slice = make_tensor(context, MP_DTYPE_FP32, {kRows - kFirst, kColumns}, rest);
    const Tensor part = make(MP_DTYPE_FP8_E4M3, MP_SCALING_TENSOR, {kRows - kFirst, kColumns});
    args.first_element = kFirst * kColumns;
    MP_OK(mp_tensor_quantize(slice, nullptr, part, nullptr, &args, nullptr));
    const std::vector<unsigned char> whole = bytes_of(expected);
    EXPECT_EQ(bytes_of(part),
              std::vector<unsigned char>(whole.begin() + kFirst * kColumns, whole.end()));
}

// NVFP4's scales are relative to the amax of the tensor, so a slice needs that of the whole.
TEST_F(QuantArgs, ASliceOfNvfp4HasTheBitsOfTheWholeUnderItsAmax) {
    const Tensor whole = make(MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, {kRows, kColumns});
    MP_OK(mp_tensor_quantize(source, nullptr, whole, nullptr, nullptr, nullptr));
    constexpr int64_t kFirst = 40;
    const std::vector<float> rest(values.begin() + kFirst * kColumns, values.end());
    const Tensor slice = make_tensor(context, MP_DTYPE_FP32, {kRows - kFirst, kColumns}, rest);
    const Tensor part = make(MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, {kRows - kFirst, kColumns});
    float amax = values_of(context, amax_of(whole))[0];
    mp_quantize_args args = MP_QUANTIZE_ARGS_INIT;
    args.amax_pointer = &amax;
    MP_OK(mp_tensor_quantize(slice, nullptr, part, nullptr, &args, nullptr));
    EXPECT_EQ(bytes_of(amax_of(part)), bytes_of(amax_of(whole)));
    const auto codes = bytes_of(whole), scales = bytes_of(scales_of(whole));
    EXPECT_EQ(bytes_of(part),
              std::vector<unsigned char>(codes.begin() + kFirst * kColumns / 2, codes.end()));
    const auto part_scales = bytes_of(scales_of(part));
    EXPECT_EQ(part_scales,
              std::vector<unsigned char>(
                  scales.end() - static_cast<std::ptrdiff_t>(part_scales.size()), scales.end()));
}

TEST_F(QuantArgs, AGivenAmaxStandsForTheTensors) {
    const Tensor own = make(), given = make();
    mp_quant_stats stats = MP_QUANT_STATS_INIT;
    MP_OK(mp_tensor_quantize(source, nullptr, own, nullptr, nullptr, nullptr));
    float amax = values_of(context, amax_of(own))[0];
    mp_quantize_args args = MP_QUANTIZE_ARGS_INIT;
    args.amax_pointer = &amax;
    MP_OK(mp_tensor_quantize(source, nullptr, given, nullptr, &args, &stats));
    EXPECT_EQ(bytes_of(given), bytes_of(own));
    EXPECT_EQ(bytes_of(scales_of(given)), bytes_of(scales_of(own)));
    EXPECT_EQ(bytes_of(amax_of(given)), bytes_of(amax_of(own)));
    EXPECT_EQ(stats.saturated, 0);
    amax = -amax; // its sign is ignored
    MP_OK(mp_tensor_quantize(source, nullptr, given, nullptr, &args, nullptr));
    EXPECT_EQ(bytes_of(given), bytes_of(own));
    amax = 0.25F; // larger elements saturate
    MP_OK(mp_tensor_quantize(source, nullptr, given, nullptr, &args, &stats));
    EXPECT_EQ(values_of(context, scales_of(given))[0], 0.25F / 448.0F);
    // Half a step beyond the largest code is 464 of 448.
    const auto beyond = std::count_if(values.begin(), values.end(), [](float x) {
        return std::abs(static_cast<double>(x)) * (448.0 / 0.25) > 464.0;
    });
    EXPECT_GT(beyond, 0);
    EXPECT_EQ(stats.saturated, beyond);
    EXPECT_EQ(bytes_of(amax_of(given)), bytes_of(amax_of(own))); // of what was there
}

TEST_F(QuantArgs, AnAmaxThatNobodyWroteIsFound) {
    float amax = 1.0F;
    mp_quantize_args args = MP_QUANTIZE_ARGS_INIT;
    args.flags = MP_QUANTIZE_CHECK_AMAX;
    args.amax_pointer = &amax;
    const Tensor quantized = make();
    MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, &args, nullptr));
    EXPECT_EQ(amax, -1.0F);
    const std::vector<unsigned char> before = bytes_of(quantized);
    MP_FAILS(mp_tensor_quantize(source, nullptr, quantized, nullptr, &args, nullptr),
             MP_STATUS_BAD_STATE, "nobody wrote");
    EXPECT_EQ(bytes_of(quantized), before);
    amax = 2.0F;
    MP_OK(mp_tensor_quantize(source, nullptr, quantized, nullptr, &args, nullptr));
}

TEST_F(QuantArgs, PlainMemoryGivesTheSameBits) {
    for (const Form& form : kForms) {
        SCOPED_TRACE(form.scaling);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = form.scaling;
        const bool turns = form.dtype != MP_DTYPE_FP4_E2M1;
        const std::size_t bytes = code_bytes(form.dtype);
        const Tensor expected = make(form.dtype, form.scaling);
        const Tensor turned =
            turns ? make_tensor(context, form.dtype, {kColumns, kRows}) : Tensor();
        MP_OK(mp_tensor_quantize(source, nullptr, expected, turned, nullptr, nullptr));
        int64_t grid_rows = 0, grid_columns = 0;
        int32_t scale_dtype = 0;
        MP_OK(mp_tensor_get_scale_grid(&quant, kRows, kColumns, &grid_rows, &grid_columns,
                                       &scale_dtype));
        const Tensor scales = scales_of(expected);
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(scales, &desc));
        EXPECT_EQ(desc.shape[0], grid_rows);
        EXPECT_EQ(desc.shape[1], grid_columns);
        EXPECT_EQ(desc.dtype, scale_dtype);
        const std::size_t scale_bytes =
            static_cast<std::size_t>(grid_rows * grid_columns) * mp_dtype_size(scale_dtype);
        const Memory codes(bytes), other(bytes), factors(scale_bytes);
        float amax = 0.0F;
        mp_quantized_memory memory = matrix_of(form.dtype);
        memory.codes = codes.data();
        memory.transposed = turns ? other.data() : nullptr;
        memory.scale_inv = factors.data();
        memory.amax = &amax;
        MP_OK(mp_tensor_quantize_pointers(context, nullptr, values.data(), MP_DTYPE_FP32, &quant,
                                          &memory, nullptr));
        EXPECT_EQ(codes.bytes(bytes), codes_of(expected, bytes));
        EXPECT_EQ(factors.bytes(scale_bytes), codes_of(scales, scale_bytes));
        EXPECT_EQ(amax, values_of(context, amax_of(expected))[0]);
        if (turns) {
            EXPECT_EQ(other.bytes(bytes), bytes_of(turned));
        }
        const Tensor wide = make_tensor(context, MP_DTYPE_FP32, {kRows, kColumns});
        MP_OK(mp_tensor_dequantize(expected, nullptr, wide));
        std::vector<float> back(kCount);
        if (turns) {
            MP_FAILS(mp_tensor_dequantize_pointers(context, nullptr, &memory, &quant, back.data(),
                                                   MP_DTYPE_FP32),
                     MP_STATUS_INVALID_ARGUMENT, "transposed");
        }
        memory.transposed = nullptr;
        MP_OK(mp_tensor_dequantize_pointers(context, nullptr, &memory, &quant, back.data(),
                                            MP_DTYPE_FP32));
        EXPECT_EQ(back, values_of(context, wide));
        // The amax need not be wanted, but NVFP4 needs it.
        memory.amax = nullptr;
        const mp_status status = mp_tensor_quantize_pointers(
            context, nullptr, values.data(), MP_DTYPE_FP32, &quant, &memory, nullptr);
        EXPECT_EQ(status,
                  form.scaling == MP_SCALING_NVFP4 ? MP_STATUS_NULL_ARGUMENT : MP_STATUS_OK);
    }
}

TEST_F(QuantArgs, CodesOfTheCallersAreATensor) {
    for (const Form& form : kForms) {
        SCOPED_TRACE(form.scaling);
        const std::size_t bytes = code_bytes(form.dtype);
        const Tensor expected = make(form.dtype, form.scaling);
        MP_OK(mp_tensor_quantize(source, nullptr, expected, nullptr, nullptr, nullptr));
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        MP_OK(mp_tensor_get_quant_desc(expected, &quant));
        const Tensor scales = scales_of(expected);
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(scales, &desc));
        const std::size_t scale_bytes =
            static_cast<std::size_t>(desc.shape[0] * desc.shape[1]) * mp_dtype_size(desc.dtype);
        const Memory codes(bytes), factors(scale_bytes);
        std::memcpy(codes.data(), codes_of(expected, bytes).data(), bytes);
        std::memcpy(factors.data(), codes_of(scales, scale_bytes).data(), scale_bytes);
        float amax = values_of(context, amax_of(expected))[0];
        desc = tensor_desc(form.dtype, {kRows, kColumns});
        int released = 0;
        mp_tensor* made = nullptr;
        MP_OK(mp_tensor_wrap_quantized(
            context, &desc, &quant, codes.data(), factors.data(), &amax,
            [](void* payload) { ++*static_cast<int*>(payload); }, &released, &made));
        {
            Tensor wrapped(made);
            const Tensor wide = make_tensor(context, MP_DTYPE_FP32, {kRows, kColumns});
            const Tensor other = make_tensor(context, MP_DTYPE_FP32, {kRows, kColumns});
            MP_OK(mp_tensor_dequantize(expected, nullptr, wide));
            MP_OK(mp_tensor_dequantize(wrapped, nullptr, other));
            EXPECT_EQ(bytes_of(wide), bytes_of(other));
            const Tensor kept = scales_of(wrapped);
            wrapped = Tensor();
            EXPECT_EQ(released, 0); // the scales still read it
            EXPECT_EQ(codes_of(kept, scale_bytes), factors.bytes(scale_bytes));
        }
        EXPECT_EQ(released, 1);
    }
}
