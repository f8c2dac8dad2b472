// SPDX-License-Identifier: Apache-2.0
// Mistakes that once went through: memory that two arguments of a layer share, sizes that ended oneDNN, names that are taken, a
// background save that failed unheard, and counting that a monitor's end ended too.
#include <array>

#include "layers.hpp"
#include "optimizers.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

struct Layer {
    Context context = make_context(1);
    Recipe recipe;
    Tensor memory, weight, bias, x, dy, dx, dw, dbias;
    Linear linear;

    explicit Layer(const char* name = "fp32") {
        recipe = make_recipe(context, name);
        memory = make_tensor(context, MP_DTYPE_FP32, {4096});
        weight = view(0, {8, 16});
        bias = view(128, {8});
        x = view(256, {4, 16});
        dy = view(512, {4, 8});
        dx = view(768, {4, 16});
        dw = view(1024, {8, 16});
        dbias = view(1280, {8});
        linear =
            make_noted_linear(context, recipe, linear_desc(16, 8, MP_LINEAR_STATS), weight, bias);
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
    MP_FAILS(l.backward(nullptr, l.dw, nullptr), MP_STATUS_BAD_STATE, "dx was written over it");
}

namespace {

// What a monitor does to its own layer, and how often it and the one after it were called.
struct Told {
    mp_linear* layer = nullptr;
    mp_optimizer* optimizer = nullptr;
    mp_linear_monitor_fn next = nullptr; // null: ends the monitoring
    std::string name;                    // as it was told last
    int first = 0, second = 0;
    mp_status status = MP_STATUS_OK;
};
void tell_second(void* payload, const char*, const mp_linear_stats*, const char*) {
    ++static_cast<Told*>(payload)->second;
}
void tell_first(void* payload, const char* name, const mp_linear_stats*, const char*) {
    Told& told = *static_cast<Told*>(payload);
    ++told.first;
    if (told.optimizer != nullptr) {
        told.status = mp_optimizer_set_linears(told.optimizer, nullptr, 0);
    }
    if (told.status == MP_STATUS_OK) {
        told.status = mp_linear_set_monitor(told.layer, "a name that is longer than the first one",
                                            told.next == nullptr ? 0 : 1, told.next, payload);
    }
    told.name = name;
}

} // namespace

TEST(Refusals, AMonitorEndsItselfOrSetsAnother) {
    for (const bool by_optimizer : {false, true}) {
        for (const mp_linear_monitor_fn next : {mp_linear_monitor_fn{nullptr}, &tell_second}) {
            const Layer l("fp8_current");
            const Optimizer optimizer = make_optimizer(l.context, l.recipe);
            Told told;
            told.layer = l.linear;
            told.next = next;
            told.optimizer = by_optimizer ? optimizer.owned.get() : nullptr;
            mp_linear* const layer = l.linear;
            MP_OK(mp_linear_set_monitor(layer, "h0", 1, &tell_first, &told));
            if (by_optimizer) {
                MP_OK(mp_optimizer_set_linears(optimizer, &layer, 1));
                EXPECT_TRUE(done(mp_optimizer_step(optimizer, nullptr, nullptr)));
            } else {
                MP_OK(mp_linear_end_step(&layer, 1, nullptr, nullptr));
            }
            MP_OK(told.status);
            EXPECT_EQ(told.first, 1); // no more, as its payload may be gone
            EXPECT_EQ(told.second, 0);
            EXPECT_EQ(told.name, "h0");
            MP_OK(mp_linear_end_step(&layer, 1, nullptr, nullptr));
            EXPECT_EQ(told.first, 1);
            EXPECT_EQ(told.second, next == nullptr ? 0 : MP_OPERAND_COUNT);
        }
    }
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
    const Checkpoint checkpoint = make_checkpoint(l.context);
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
    MP_FAILS(mp_checkpoint_wait(checkpoint), MP_STATUS_IO_ERROR, "/proc/");
}

TEST(Refusals, CodesOfAWeightNeedAProductInFp8) {
    const Context context = make_context(1);
    const int64_t shape[] = {16, 16};
    for (const char* json :
         {R"({"recipe": "fp32"})", R"({"recipe": "fp8_current", "gemm.fprop.quantized": "off"})",
          R"({"recipe": "mxfp8"})"}) {
        const Recipe recipe = recipe_of(context, json);
        mp_tensor* weight = nullptr;
        MP_FAILS(mp_recipe_create_weight_codes(context, recipe, 2, shape, nullptr, &weight),
                 MP_STATUS_UNSUPPORTED, "gemm.scaling");
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
