// SPDX-License-Identifier: Apache-2.0
// Memory runs out in calls of layers with adapters: what an earlier forward keeps in lent memory is whole, or known to be gone.
#include "adapters.hpp"
#include "memory.hpp"
#include "running_out.hpp"

using namespace mp_test;
using namespace mp_test::adapters;
using namespace mp_test::running_out;

namespace {

// A base with two adapters, the second with dropout, and two batches of other sizes.
struct Adapted {
    Context context = own_context();
    Recipe recipe;
    Tensor w, x, few, dy, dx, y, small;
    Linear layer;
    Lora one, two;

    explicit Adapted(const char* recipe_name)
        : recipe(make_recipe(context, recipe_name)),
          w(make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}, numbers(kOut * kIn, 1))),
          x(make_tensor(context, MP_DTYPE_FP32, {kRows, kIn}, numbers(kRows * kIn, 2))),
          few(make_tensor(context, MP_DTYPE_FP32, {kRows / 2, kIn}, numbers(kRows / 2 * kIn, 3))),
          dy(make_tensor(context, MP_DTYPE_FP32, {kRows, kOut}, numbers(kRows * kOut, 4))),
          dx(make_tensor(context, MP_DTYPE_FP32, {kRows, kIn})),
          y(make_tensor(context, MP_DTYPE_FP32, {kRows, kOut})),
          small(make_tensor(context, MP_DTYPE_FP32, {kRows / 2, kOut})),
          layer(make_base(context, recipe, w)), one(context, layer, recipe, 8.0, 10, "one"),
          two(context, layer, recipe, 8.0, 20, "two") {}

    [[nodiscard]] std::vector<Bytes> gradients() const {
        return {bytes_of(one.da), bytes_of(one.db), bytes_of(two.da), bytes_of(two.db),
                bytes_of(dx)};
    }
    mp_status backward(mp_saved* saved) const {
        return mp_linear_backward_saved(layer, nullptr, saved, dy, dx, nullptr, nullptr, 0);
    }
};

} // namespace

TEST(AllocationFailure, OfAnAdapter) {
    const Context context = own_context();
    const Recipe recipe = make_recipe(context, "fp8_delayed");
    const Tensor w = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn}),
                 a = make_tensor(context, MP_DTYPE_FP32, {kRank, kIn}),
                 b = make_tensor(context, MP_DTYPE_FP32, {kOut, kRank});
    const Linear layer = make_base(context, recipe, w);
    each_allocation("create an adapter", [&](int64_t k, bool for_ever) {
        mp_adapter* made = nullptr;
        const bool failed = fails_at(
            k, for_ever, [&] { return mp_adapter_create(layer, recipe, nullptr, a, b, &made); });
        mp_adapter_destroy(made);
        const Adapter again = make_adapter(layer, recipe, adapter_desc(0), a, b);
        return failed;
    });
}

// After a forward of other rows that has failed, a backward of the one before gives its gradients, or says that it cannot.
TEST(AllocationFailure, OfAForwardOverLentMemory) {
    for (const char* const recipe : {"fp32", "bf16_mixed", "fp8_current"}) {
        const Adapted model(recipe);
        std::size_t bytes = 0;
        MP_OK(mp_linear_get_saved_bytes(model.layer, kRows, &bytes));
        const Block memory(bytes);
        const Saved first = make_saved(model.layer);
        MP_OK(mp_saved_set_memory(first, memory.memory.get(), bytes));
        // Products are made here: what runs out inside oneDNN then keeps its cache from making the same one again.
        MP_OK(mp_linear_forward_saved(model.layer, nullptr, model.few, model.small, first, 0));
        MP_OK(mp_linear_forward_saved(model.layer, nullptr, model.x, model.y, first, 0));
        EXPECT_TRUE(done(model.backward(first)));
        const std::vector<Bytes> expected = model.gradients();
        each_allocation(recipe, [&](int64_t k, bool for_ever) {
            EXPECT_TRUE(succeeded(
                mp_linear_forward_saved(model.layer, nullptr, model.x, model.y, first, 0)));
            mp_status status = MP_STATUS_OK;
            const bool failed = fails_at(k, for_ever, [&] {
                return status = mp_linear_forward_saved(model.layer, nullptr, model.few,
                                                        model.small, first, 0);
            });
            if (status != MP_STATUS_OK && model.backward(first) >= 0) {
                EXPECT_EQ(model.gradients(), expected);
            }
            return failed;
        });
    }
}
