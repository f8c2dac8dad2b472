// SPDX-License-Identifier: Apache-2.0
// Wrong calls of quantizing: tensors (quant.h), and plain memory (convert.h).
#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kRows = 96, kColumns = 160;

struct WrongCallsQuant : ::testing::Test {
    Context context = make_context();
    std::vector<float> values = numbers(kRows * kColumns, 1);
    alignas(256) unsigned char codes[kRows * kColumns] = {};
    alignas(256) float scale[16] = {};
};

mp_quant_desc scaled(int32_t scaling) {
    return with(mp_quant_desc MP_QUANT_DESC_INIT, &mp_quant_desc::scaling, scaling);
}

} // namespace

TEST_F(WrongCallsQuant, Tensors) {
    using Args = mp_quantize_args;
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {kRows, kColumns}, values);
    const mp_quant_desc by_row = scaled(MP_SCALING_ROW), nvfp4 = scaled(MP_SCALING_NVFP4);
    const Tensor quantized = make_quantized(context, MP_DTYPE_FP8_E4M3, {kRows, kColumns}, nullptr);
    const Tensor rows = make_quantized(context, MP_DTYPE_FP8_E4M3, {kRows, kColumns}, &by_row);
    const auto call = [&](mp_tensor* to, auto field, auto value) {
        const Args args = with(Args MP_QUANTIZE_ARGS_INIT, field, value);
        return mp_tensor_quantize(source, nullptr, to, nullptr, &args, nullptr);
    };
    auto* const misaligned = reinterpret_cast<float*>(codes + 1);
    const Tensor held = amax_of(quantized);
    auto* const own = static_cast<float*>(data_of(held));
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"unknown flags", call(quantized, &Args::flags, 2), {"flags"}},
        {"unknown rounding", call(quantized, &Args::rounding, 7), {"rounding"}},
        {"micro-batch -1", call(quantized, &Args::microbatch, -1), {"microbatch"}},
        {"element -1", call(quantized, &Args::first_element, -1), {"first_element"}},
        {"its own amax",
         call(quantized, &Args::amax_pointer, own),
         {"amax_pointer", "destination's amax"}},
        {"not aligned", call(quantized, &Args::amax_pointer, misaligned), {"aligned"}},
    });
    MP_FAILS(call(quantized, &Args::flags, MP_QUANTIZE_CHECK_AMAX), MP_STATUS_NULL_ARGUMENT,
             "amax_pointer");
    MP_FAILS(call(rows, &Args::amax_pointer, scale), MP_STATUS_UNSUPPORTED, "one scale");

    const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP4_E2M1, {kRows, kColumns});
    mp_tensor* made = nullptr;
    int released = 0;
    MP_FAILS(mp_tensor_wrap_quantized(
                 context, &desc, &nvfp4, codes, scale, nullptr,
                 [](void* payload) { ++*static_cast<int*>(payload); }, &released, &made),
             MP_STATUS_NULL_ARGUMENT, "NVFP4");
    EXPECT_EQ(released, 0);
}

TEST_F(WrongCallsQuant, PlainMemory) {
    using Memory = mp_quantized_memory;
    const Memory good =
        with(Memory MP_QUANTIZED_MEMORY_INIT, &Memory::dtype, MP_DTYPE_FP8_E4M3, &Memory::rows,
             kRows, &Memory::columns, kColumns, &Memory::codes, codes, &Memory::scale_inv, scale);
    const auto from = [&](const void* source, int32_t dtype, auto... fields) {
        const Memory memory = with(good, fields...);
        return mp_tensor_quantize_pointers(context, nullptr, source, dtype, nullptr, &memory,
                                           nullptr);
    };
    const auto into = [&](auto... fields) { return from(values.data(), MP_DTYPE_FP32, fields...); };
    const auto grid = [](int32_t scaling, int64_t rows) {
        const mp_quant_desc quant = scaled(scaling);
        int64_t grid_rows = 0, grid_columns = 0;
        int32_t dtype = 0;
        return mp_tensor_get_scale_grid(&quant, rows, 1, &grid_rows, &grid_columns, &dtype);
    };
    expect_refused<MP_STATUS_NULL_ARGUMENT>({
        {"nothing", into(&Memory::codes, nullptr, &Memory::scale_inv, nullptr), {"codes"}},
        {"no scales", into(&Memory::scale_inv, nullptr), {"scale_inv"}},
        {"no source", from(nullptr, MP_DTYPE_FP32), {"source"}},
    });
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"not aligned", into(&Memory::scale_inv, scale + 1), {"16 bytes"}},
        {"scales on codes", into(&Memory::scale_inv, codes), {"scale_inv", "overlaps"}},
        {"amax on scales", into(&Memory::amax, scale), {"amax", "overlaps"}},
        {"unknown scaling", grid(99, 1), {"99"}},
    });
    expect_refused<MP_STATUS_INVALID_SHAPE>({
        {"-1 rows", into(&Memory::rows, -1), {"memory"}},
        {"a grid of -1 rows", grid(MP_SCALING_NVFP4, -1), {"matrix"}},
    });
    expect_refused<MP_STATUS_INVALID_DTYPE>({
        {"to bf16", into(&Memory::dtype, MP_DTYPE_BF16), {"bf16"}},
        {"from fp8", from(values.data(), MP_DTYPE_FP8_E4M3), {"source"}},
    });
    MP_OK(into());
}
