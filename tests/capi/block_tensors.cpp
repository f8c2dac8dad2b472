// SPDX-License-Identifier: Apache-2.0
// Tensors of codes in blocks: made, moved and cut between blocks; every call that computes on elements refuses them.
#include "coded.hpp"
#include "optimizers.hpp"

using namespace mp_test;
using namespace mp_test::coded;

namespace {

mp_tensor_desc desc_of(int32_t dtype, int64_t rows, int64_t columns) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = 2;
    desc.shape[0] = rows;
    desc.shape[1] = columns;
    return desc;
}

} // namespace

TEST(BlockTensors, HaveTheirBytesAndKeepThem) {
    for (const char* backend : kHostBackends) {
        const Context context = make_context(2, backend);
        for (const Blocks& type : block_types()) {
            SCOPED_TRACE(std::string(backend) + ", " + mp_dtype_name(type.dtype));
            constexpr int64_t kRows = 3, kColumns = 512;
            auto bytes = codes_of(type, kRows, kColumns, 1);
            const Tensor made = make_blocks(context, type, kRows, kColumns, 1);
            EXPECT_EQ(bytes_of(made), bytes);
            EXPECT_EQ(mp_dtype_bytes(type.dtype, kRows * kColumns), bytes.size());
            EXPECT_EQ(mp_dtype_bytes(type.dtype, type.elements / 2), 0U);
            const auto desc = desc_of(type.dtype, kRows, kColumns);
            mp_tensor* out = nullptr;
            // At any byte, as in a file that is mapped.
            bytes.insert(bytes.begin(), 0x55);
            MP_OK(mp_tensor_wrap(context, &desc, bytes.data() + 1, nullptr, nullptr, &out));
            const Tensor wrapped(out);
            EXPECT_EQ(bytes_of(wrapped), bytes_of(made));
            const Tensor copied = make_tensor(context, type.dtype, {kRows * 2, kColumns / 2});
            MP_OK(mp_tensor_copy(wrapped, nullptr, copied));
            EXPECT_EQ(bytes_of(copied), bytes_of(made));
            const Tensor wide = numbers_of(context, made, MP_DTYPE_FP32, kRows, kColumns);
            const Tensor second = view_of(made, kColumns, {1, kColumns});
            const auto all = values_of(context, wide);
            EXPECT_EQ(values_of(context, numbers_of(context, second, MP_DTYPE_FP32, 1, kColumns)),
                      std::vector<float>(all.begin() + kColumns, all.begin() + 2 * kColumns));
        }
    }
}

TEST(BlockTensors, AreCutBetweenBlocks) {
    const Context context = make_context();
    mp_tensor* out = nullptr;
    for (const Blocks& type : block_types()) {
        SCOPED_TRACE(mp_dtype_name(type.dtype));
        const std::string elements = std::to_string(type.elements);
        const auto odd = desc_of(type.dtype, 4, type.elements / 2);
        MP_FAILS(mp_tensor_create(context, &odd, &out), MP_STATUS_INVALID_SHAPE, elements);
        auto scalar = desc_of(type.dtype, 1, 1);
        scalar.ndim = 0;
        MP_FAILS(mp_tensor_create(context, &scalar, &out), MP_STATUS_INVALID_SHAPE, elements);
        const Tensor made = make_blocks(context, type, 2, 512, 1);
        const int64_t shape[] = {1, 256}, half[] = {type.elements / 2};
        MP_FAILS(mp_tensor_create_view(made, 16, 2, shape, &out), MP_STATUS_INVALID_SHAPE,
                 "between blocks");
        MP_FAILS(mp_tensor_create_view(made, 0, 1, half, &out), MP_STATUS_INVALID_SHAPE, elements);
        MP_FAILS(mp_tensor_create_view(made, 1024, 2, shape, &out), MP_STATUS_INVALID_SHAPE,
                 "not inside");
        const auto empty = desc_of(type.dtype, 0, 256);
        MP_OK(mp_tensor_create(context, &empty, &out));
        mp_tensor_destroy(out);
    }
}

TEST(BlockTensors, OtherCallsRefuseThem) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    const Optimizer optimizer = make_optimizer_on(nullptr, context, recipe);
    (void)add_group(optimizer);
    for (const Blocks& type : block_types()) {
        const char* const name = mp_dtype_name(type.dtype);
        SCOPED_TRACE(name);
        const Tensor codes = make_blocks(context, type, 2, 256, 1),
                     wide = make_tensor(context, MP_DTYPE_FP32, {2, 256}),
                     fp8 = make_quantized(context, MP_DTYPE_FP8_E4M3, {2, 256}, nullptr),
                     one = make_tensor(context, MP_DTYPE_FP32, {1});
        MP_FAILS(mp_tensor_cast(codes, nullptr, wide, nullptr), MP_STATUS_INVALID_DTYPE, name);
        MP_FAILS(mp_tensor_cast(wide, nullptr, codes, nullptr), MP_STATUS_INVALID_DTYPE, name);
        MP_FAILS(mp_tensor_amax(codes, nullptr, one), MP_STATUS_INVALID_DTYPE, name);
        MP_FAILS(mp_tensor_copy(codes, nullptr, wide), MP_STATUS_INVALID_DTYPE, name);
        MP_FAILS(mp_tensor_quantize(codes, nullptr, fp8, nullptr, nullptr, nullptr),
                 MP_STATUS_INVALID_DTYPE, name);
        EXPECT_EQ(mp_tensor_quantize(wide, nullptr, codes, nullptr, nullptr, nullptr),
                  MP_STATUS_INVALID_ARGUMENT);
        MP_FAILS(mp_tensor_dequantize(codes, nullptr, codes), MP_STATUS_INVALID_DTYPE, name);
        DLManagedTensorVersioned* exported = nullptr;
        MP_FAILS(mp_dlpack_export(codes, &exported), MP_STATUS_UNSUPPORTED, name);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        mp_tensor* out = nullptr;
        const auto desc = desc_of(type.dtype, 2, 256);
        MP_FAILS(mp_tensor_create_quantized(context, &desc, &quant, &out), MP_STATUS_INVALID_DTYPE,
                 name);
        mp_param_desc trained = MP_PARAM_DESC_INIT;
        trained.name = name;
        trained.param = wide;
        trained.grad = codes;
        MP_FAILS(mp_optimizer_add_param(optimizer, 0, &trained, nullptr), MP_STATUS_INVALID_DTYPE,
                 "grad", name);
        for (const uint32_t flags : {0U, static_cast<uint32_t>(MP_PARAM_FROZEN)}) {
            mp_param_desc param = MP_PARAM_DESC_INIT;
            param.name = name;
            param.param = codes;
            param.grad = flags == 0 ? static_cast<mp_tensor*>(wide) : nullptr;
            param.flags = flags;
            MP_FAILS(mp_optimizer_add_param(optimizer, 0, &param, nullptr), MP_STATUS_INVALID_DTYPE,
                     name);
        }
    }
}
