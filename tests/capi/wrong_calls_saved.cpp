// SPDX-License-Identifier: Apache-2.0
// Wrong calls of what takes kept inputs, memory for them and codes (saved.h).
#include "memory.hpp"
#include "saved.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;
using namespace mp_test::saved;

namespace {

struct WrongCallsSaved : SavedTest {
    const Layer layer{context, "fp8_current", 3}, other{context, "bf16_mixed", 4};
    const Saved saved = make_saved(layer.linear);
    const Tensor x = activation(1), dy = activation(2), y = empty(), dx = empty();
    const Tensor e5m2 = make_quantized(context, MP_DTYPE_FP8_E5M2, {kSize, kSize}, nullptr);

    mp_status forward(mp_tensor* from, mp_tensor* to, mp_saved* kept, uint32_t flags = 0) const {
        return mp_linear_forward_saved(layer.linear, nullptr, from, to, kept, flags);
    }
    mp_status backward(mp_saved* kept, mp_tensor* from, mp_tensor* to_dx, mp_tensor* to_dw) const {
        return mp_linear_backward_saved(layer.linear, nullptr, kept, from, to_dx, to_dw, nullptr,
                                        0);
    }
};

} // namespace

TEST_F(WrongCallsSaved, BeforeAnyForward) {
    const Saved foreign = make_saved(other.linear);
    constexpr uint32_t kBoth = MP_FORWARD_DROP | MP_FORWARD_RECOMPUTE;
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"inputs of another layer", forward(x, y, foreign), {"another layer"}},
        {"unknown flags", forward(x, y, saved, 4), {"flags"}},
        {"drops and recomputes", forward(x, y, saved, kBoth), {"exclude"}},
        {"drops nothing", forward(x, y, nullptr, MP_FORWARD_DROP), {"saved is NULL"}},
        {"backward to nowhere", backward(nullptr, dy, nullptr, nullptr), {"dx", "dw"}},
    });
    expect_refused<MP_STATUS_NULL_ARGUMENT>({
        {"no y", forward(x, nullptr, saved), {"y"}},
        {"dw of no inputs", backward(nullptr, dy, dx, layer.dw), {"saved"}},
    });
    expect_refused<MP_STATUS_BAD_STATE>({
        {"recomputes", forward(x, y, saved, MP_FORWARD_RECOMPUTE), {"before any forward"}},
        {"backward", backward(saved, dy, dx, layer.dw), {"before any forward"}},
    });
}

TEST_F(WrongCallsSaved, AfterAForward) {
    MP_OK(forward(x, y, saved));
    const Tensor few = make_tensor(context, MP_DTYPE_FP32, {kRows / 2, kSize});
    const Block block(64 * 1024);
    unsigned char* const memory = block.memory.get();
    const Saved fresh = make_saved(layer.linear), tiny = make_saved(layer.linear);
    MP_OK(mp_saved_set_memory(tiny, memory, 16));
    size_t bytes = 0;
    expect_refused<MP_STATUS_INVALID_SHAPE>({
        {"recomputes other rows", forward(few, few, saved, MP_FORWARD_RECOMPUTE), {"rows"}},
        {"backward of other rows", backward(saved, few, nullptr, layer.dw), {"rows"}},
        {"bytes of -1 rows", mp_linear_get_saved_bytes(layer.linear, -1, &bytes), {"rows"}},
    });
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"memory not aligned", mp_saved_set_memory(fresh, memory + 64, 1024), {"256"}},
        {"bytes of no memory", mp_saved_set_memory(fresh, nullptr, 8), {"NULL"}},
        {"too little memory", forward(x, y, tiny), {"16", "mp_linear_get_saved_bytes"}},
    });
    MP_FAILS(mp_saved_set_memory(saved, memory, block.bytes), MP_STATUS_BAD_STATE,
             "library's memory");
}

TEST_F(WrongCallsSaved, Operands) {
    int32_t dtype = 0;
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    const auto format = [&](mp_linear* linear, int32_t product, int32_t operand) {
        return mp_linear_get_operand_format(linear, product, operand, &dtype, &quant);
    };
    const auto quantize = [&](mp_linear* linear) {
        return mp_linear_quantize(linear, nullptr, MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, e5m2);
    };
    MP_OK(format(other.linear, MP_PRODUCT_WGRAD, MP_OPERAND_INPUT));
    EXPECT_EQ(dtype, MP_DTYPE_BF16);
    EXPECT_EQ(quant.scaling, 0);
    mp_tensor* none = nullptr;
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"unknown product", format(layer.linear, 3, MP_OPERAND_INPUT), {"product"}},
        {"no operand of it",
         format(layer.linear, MP_PRODUCT_FPROP, MP_OPERAND_GRAD_OUTPUT),
         {"fprop", "grad_output"}},
        {"quantizes what is cast", quantize(other.linear), {"mp_tensor_cast"}},
    });
    expect_refused<MP_STATUS_INVALID_DTYPE>({
        {"weights in e5m2",
         mp_linear_set_weight_codes(layer.linear, e5m2, nullptr),
         {"fp8_e5m2", "fp8_e4m3"}},
        {"quantizes to e5m2", quantize(layer.linear), {"fp8_e5m2"}},
    });
    MP_FAILS(mp_linear_get_multiply_tensor(layer.linear, MP_OPERAND_INPUT, &none),
             MP_STATUS_BAD_STATE, "delayed");
}

TEST_F(WrongCallsSaved, Rounding) {
    MP_OK(forward(x, y, saved));
    const auto round = [&](auto field, auto value) {
        const mp_cast_desc rounding = with(mp_cast_desc MP_CAST_DESC_INIT, field, value);
        return mp_linear_set_gradient_rounding(layer.linear, &rounding);
    };
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"unknown", round(&mp_cast_desc::rounding, 9), {"rounding"}},
        {"flags", round(&mp_cast_desc::flags, MP_CAST_SATURATE), {"flags"}},
    });
    MP_OK(round(&mp_cast_desc::rounding, MP_ROUND_STOCHASTIC));
    MP_FAILS(backward(saved, dy, nullptr, e5m2), MP_STATUS_UNSUPPORTED, "quantized", "nearest");
}

// Where dx alone is wanted x is not read, but it may be by the next call.
TEST_F(WrongCallsSaved, AWorkspaceIsNeverOverTheXThatIsKept) {
    alignas(256) char room[64 * 1024];
    const Saved kept = make_saved(other.linear);
    MP_OK(mp_saved_set_memory(kept, room, sizeof room / 2));
    MP_OK(mp_linear_forward_saved(other.linear, nullptr, x, y, kept, 0));
    const Queue queue = make_queue(context);
    MP_OK(mp_queue_set_workspace(queue, room, sizeof room));
    MP_FAILS(mp_linear_backward_saved(other.linear, queue, kept, dy, dx, nullptr, nullptr, 0),
             MP_STATUS_INVALID_ARGUMENT, "workspace", "the x of forward");
}
