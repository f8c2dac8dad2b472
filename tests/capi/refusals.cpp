// SPDX-License-Identifier: Apache-2.0
// Mistakes that once went through: memory that two arguments of a layer share, sizes that ended oneDNN, names that are taken, a
// background save that failed unheard, and counting that a monitor's end ended too.
#include <array>

#include "support.hpp"

using namespace mp_test;

namespace {

struct Layer {
    Context context = make_context(1);
    Recipe recipe;
    Tensor memory, weight, bias, x, dy, dx, dw, dbias;
    Linear linear;

    explicit Layer(const char* name = "fp32") {
        mp_recipe* raw = nullptr;
        EXPECT_TRUE(succeeded(mp_recipe_create(context, name, &raw)));
        recipe = Recipe(raw);
        memory = make_tensor(context, MP_DTYPE_FP32, {4096});
        weight = view(0, {8, 16});
        bias = view(128, {8});
        x = view(256, {4, 16});
        dy = view(512, {4, 8});
        dx = view(768, {4, 16});
        dw = view(1024, {8, 16});
        dbias = view(1280, {8});
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.in_features = 16;
        desc.out_features = 8;
        desc.flags = MP_LINEAR_STATS;
        mp_linear* layer = nullptr;
        EXPECT_TRUE(done(mp_linear_create(context, recipe, &desc, weight, bias, &layer)));
        linear = Linear(layer);
    }
    Tensor view(int64_t offset, const std::vector<int64_t>& shape) const {
        mp_tensor* out = nullptr;
        EXPECT_TRUE(succeeded(mp_tensor_create_view(
            memory, offset, static_cast<int32_t>(shape.size()), shape.data(), &out)));
        return Tensor(out);
    }
    mp_status backward(mp_tensor* to_dx, mp_tensor* to_dw, mp_tensor* to_dbias) const {
        return mp_linear_backward(linear, nullptr, dy, to_dx, to_dw, to_dbias, 0);
    }
};

} // namespace

TEST(Refusals, ArgumentsOfALayerShareNoMemory) {
    const Layer l;
    MP_FAILS(mp_linear_forward(l.linear, nullptr, l.x, l.view(130, {4, 8})),
             MP_STATUS_INVALID_ARGUMENT, "bias");
    MP_OK(mp_linear_forward(l.linear, nullptr, l.x, l.view(2000, {4, 8})));
    MP_OK(l.backward(l.dx, l.dw, l.dbias));
    // The fp32 recipe keeps no copy of x.
    MP_FAILS(l.backward(nullptr, l.view(250, {8, 16}), nullptr), MP_STATUS_INVALID_ARGUMENT,
             "x of forward");
    MP_FAILS(l.backward(l.view(300, {4, 16}), l.dw, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "x of forward");
    MP_FAILS(l.backward(nullptr, l.view(64, {8, 16}), nullptr), MP_STATUS_INVALID_ARGUMENT,
             "weight");
    MP_FAILS(l.backward(nullptr, l.dw, l.view(128, {8})), MP_STATUS_INVALID_ARGUMENT, "bias");
    MP_FAILS(l.backward(l.view(1020, {4, 16}), l.dw, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "overlap");
    MP_FAILS(l.backward(nullptr, l.dw, l.view(1030, {8})), MP_STATUS_INVALID_ARGUMENT, "overlap");
    MP_FAILS(l.backward(l.view(1276, {4, 16}), l.dw, l.dbias), MP_STATUS_INVALID_ARGUMENT,
             "overlap");
    MP_FAILS(mp_linear_backward_data(l.linear, nullptr, l.dy, l.view(100, {4, 16})),
             MP_STATUS_INVALID_ARGUMENT, "weight");
    // Alone dx may take the place of x, which nobody reads any more.
    MP_OK(mp_linear_backward_data(l.linear, nullptr, l.dy, l.x));
}

TEST(Refusals, SizesThatEndOnednnAreNotPlannedByIt) {
    const Context context = make_context(1);
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{int64_t{1} << 34, 5, 2},
                                  {3, 5, int64_t{1} << 32},
                                  {2, int64_t{1} << 33, 2}}) {
        mp_gemm_desc desc = MP_GEMM_DESC_INIT;
        desc.m = m;
        desc.n = n;
        desc.k = k;
        desc.dtype_a = desc.dtype_b = MP_DTYPE_FP32;
        mp_gemm* raw = nullptr;
        const mp_status status = mp_gemm_create(context, &desc, &raw);
        EXPECT_TRUE(status == MP_STATUS_OK || status == MP_STATUS_UNSUPPORTED ||
                    status == MP_STATUS_OUT_OF_MEMORY)
            << mp_last_error_message();
        const Gemm gemm(raw);
    }
}

TEST(Refusals, NamesInACheckpointAreTakenOnce) {
    const Layer l("fp8_delayed");
    mp_checkpoint* raw = nullptr;
    MP_OK(mp_checkpoint_create(l.context, nullptr, nullptr, &raw));
    const Checkpoint checkpoint(raw);
    int64_t data = 0;
    MP_OK(mp_checkpoint_add_linear(checkpoint, "a", l.linear));
    MP_FAILS(mp_checkpoint_add_linear(checkpoint, "a", l.linear), MP_STATUS_INVALID_ARGUMENT,
             "'a'");
    MP_OK(mp_checkpoint_add_data(checkpoint, "a", &data, sizeof(data)));
    MP_FAILS(mp_checkpoint_add_data(checkpoint, "a", &data, sizeof(data)),
             MP_STATUS_INVALID_ARGUMENT, "'a'");
    MP_FAILS(mp_checkpoint_add_data(checkpoint, "b", nullptr, 8), MP_STATUS_NULL_ARGUMENT);
    MP_OK(mp_checkpoint_add_data(checkpoint, "b", &data,
                                 sizeof(data))); // what failed has taken no name

    // A save in the background that fails is told of, also where something was added meanwhile.
    MP_OK(mp_checkpoint_save(checkpoint, "/proc", 1, MP_SAVE_BACKGROUND));
    MP_OK(mp_checkpoint_add_data(checkpoint, "c", &data, sizeof(data)));
    MP_FAILS(mp_checkpoint_wait(checkpoint), MP_STATUS_IO_ERROR, "/proc/none");
}

TEST(Refusals, CodesOfAWeightNeedAProductInFp8) {
    const Context context = make_context(1);
    const int64_t shape[] = {16, 16};
    for (const char* json :
         {R"({"recipe": "fp32"})", R"({"recipe": "fp8_current", "fp8.fprop": "off"})",
          R"({"recipe": "mxfp8"})"}) {
        mp_recipe* raw = nullptr;
        MP_OK(mp_recipe_create_from_json(context, json, SIZE_MAX, &raw));
        const Recipe recipe(raw);
        mp_tensor* weight = nullptr;
        MP_FAILS(mp_recipe_create_weight_codes(context, recipe, 2, shape, nullptr, &weight),
                 MP_STATUS_UNSUPPORTED, "fp8.scaling");
    }
}

TEST(Refusals, TheEndOfAMonitorEndsNoCounting) {
    const Layer l("fp8_current");
    mp_linear_stats stats = MP_LINEAR_STATS_INIT;
    const auto ignore = [](void*, const char*, const mp_linear_stats*, const char*) {};
    MP_OK(mp_linear_set_monitor(l.linear, "l", 2, ignore, nullptr));
    MP_OK(mp_linear_set_monitor(l.linear, "", 0, nullptr, nullptr));
    MP_OK(mp_linear_get_stats(l.linear, MP_OPERAND_INPUT, &stats)); // made with MP_LINEAR_STATS
}
