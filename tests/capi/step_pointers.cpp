// SPDX-License-Identifier: Apache-2.0
// The step on the caller's own pointers: the same bits as the optimizer object, skipping, clipping, wrong slots.
#include <cmath>
#include <limits>

#include "optimizers.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

struct Arrays {
    std::vector<float> p, g, m, v;
    explicit Arrays(std::size_t count)
        : p(numbers(count, 1)), g(numbers(count, 2)), m(count, 0.0F), v(count, 0.0F) {}

    mp_step_slot slot() {
        mp_step_slot s{};
        s.struct_size = sizeof s;
        s.count = static_cast<int64_t>(p.size());
        s.param.data = p.data();
        s.grad.data = g.data();
        s.states[0].data = m.data();
        s.states[1].data = v.data();
        s.param.dtype = s.grad.dtype = s.states[0].dtype = s.states[1].dtype = MP_DTYPE_FP32;
        return s;
    }
};

// A step over two slots, of which a test changes the second or the arguments.
struct WrongStep {
    Context context = make_context();
    Arrays good{8}, bad{8}, before{8};

    template <typename Change> mp_status operator()(Change change) {
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.lr = 1e-3;
        mp_step_slot slots[2] = {good.slot(), bad.slot()};
        change(args, slots[1]);
        return mp_optimizer_step_pointers(context, nullptr, &args, slots, 2, nullptr, nullptr);
    }
    void expect_nothing_changed() const {
        EXPECT_EQ(good.p, before.p);
        EXPECT_EQ(good.m, before.m);
    }
};

} // namespace

TEST(StepPointers, SameBitsAsTheObject) {
    const Context context = make_context();
    Arrays arrays(5000);
    const Recipe recipe = make_recipe(context, "fp32");
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.max_grad_norm = 1.0;
    const Optimizer optimizer = make_optimizer(context, recipe, desc);
    int32_t group = 0;
    MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
    const Tensor param = make_tensor(context, MP_DTYPE_FP32, {5000}, arrays.p);
    const Tensor grad = make_tensor(context, MP_DTYPE_FP32, {5000}, arrays.g);
    MP_OK(add_param(optimizer, group, "p", param, grad));

    mp_step_args args{}; // zeros: every default but lr
    args.struct_size = sizeof args;
    args.lr = 1e-3;
    args.max_grad_norm = 1.0;
    const mp_step_slot slot = arrays.slot();
    for (args.step = 1; args.step <= 3; ++args.step) {
        mp_optimizer_stats stats{};
        stats.struct_size = sizeof stats;
        MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, &stats));
        EXPECT_EQ(stats.step, args.step);
        EXPECT_GT(stats.grad_norm, 1.0);
        MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
    }
    EXPECT_EQ(values_of(context, param), arrays.p);
}

TEST(StepPointers, ScalerSkipsAndUnscales) {
    const Context context = make_context();
    Arrays arrays(100);
    const Arrays before = arrays;
    const Scaler scaler = make_scaler(context);
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    arrays.g[57] = std::numeric_limits<float>::quiet_NaN();
    const mp_step_slot slot = arrays.slot();
    mp_optimizer_stats stats{};
    stats.struct_size = sizeof stats;
    MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, scaler, &stats));
    EXPECT_EQ(stats.found_inf, 1U);
    EXPECT_EQ(stats.step, 0);
    EXPECT_EQ(arrays.p, before.p);
    EXPECT_EQ(arrays.m, before.m);
    MP_OK(mp_scaler_update(scaler, nullptr));
    arrays.g[57] = 1.0F;
    MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, scaler, &stats));
    EXPECT_EQ(stats.grad_mul, 1.0 / 32768.0);
    EXPECT_NE(arrays.p, before.p);
}

TEST(StepPointers, SeveralSlotsOfDifferentTypesAndAFutureSize) {
    const Context context = make_context();
    struct FutureSlot { // what a newer header might declare
        mp_step_slot known;
        uint64_t unknown;
    };
    Arrays first(10), second(20000);
    FutureSlot slots[2] = {{first.slot(), 0}, {second.slot(), 0}};
    slots[0].known.struct_size = slots[1].known.struct_size = sizeof(FutureSlot);
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    MP_OK(
        mp_optimizer_step_pointers(context, nullptr, &args, &slots[0].known, 2, nullptr, nullptr));
    EXPECT_NE(second.p[19999], numbers(20000, 1)[19999]);
    slots[1].unknown = 1;
    MP_FAILS(
        mp_optimizer_step_pointers(context, nullptr, &args, &slots[0].known, 2, nullptr, nullptr),
        MP_STATUS_STRUCT_TOO_NEW, "slot 1", "newer library");
    slots[1].unknown = 0;
    slots[1].known.struct_size = sizeof(mp_step_slot);
    MP_FAILS(
        mp_optimizer_step_pointers(context, nullptr, &args, &slots[0].known, 2, nullptr, nullptr),
        MP_STATUS_INVALID_ARGUMENT, "slot 1.struct_size");
}

TEST(StepPointers, WrongSlotsChangeNothing) {
    WrongStep step;
    MP_FAILS(step([](auto&, auto& s) { s.param.data = nullptr; }), MP_STATUS_NULL_ARGUMENT,
             "slot 1", "param");
    MP_FAILS(step([](auto&, auto& s) { s.states[0].data = nullptr; }), MP_STATUS_NULL_ARGUMENT,
             "exp_avg");
    MP_FAILS(step([](auto&, auto& s) { s.count = -1; }), MP_STATUS_INVALID_ARGUMENT, "count", "-1");
    MP_FAILS(step([](auto&, auto& s) { s.grad.dtype = MP_DTYPE_INT8; }), MP_STATUS_INVALID_DTYPE,
             "grad", "int8");
    MP_FAILS(step([](auto&, auto& s) { s.param.dtype = 0; }), MP_STATUS_INVALID_DTYPE,
             "slot 1: param.dtype");
    MP_FAILS(step([](auto&, auto& s) { s.param.data = static_cast<char*>(s.param.data) + 2; }),
             MP_STATUS_INVALID_ARGUMENT, "aligned");
    step.expect_nothing_changed();
}

TEST(StepPointers, WrongCodingsChangeNothing) {
    WrongStep step;
    MP_FAILS(step([](auto&, auto& s) { s.master.data = s.states[0].data; }),
             MP_STATUS_INVALID_ARGUMENT, "master", "none");
    MP_FAILS(step([](auto&, auto& s) { s.master.dtype = MP_DTYPE_FP32; }), MP_STATUS_NULL_ARGUMENT,
             "master");
    MP_FAILS(step([](auto&, auto& s) { s.compensation.coding = MP_CODING_DYNAMIC8; }),
             MP_STATUS_INVALID_ARGUMENT, "compensation", "coding");
    MP_FAILS(step([](auto&, auto& s) { s.compensation.coding = 99; }), MP_STATUS_INVALID_ARGUMENT,
             "slot 1: compensation.coding is 99");
    MP_FAILS(step([](auto&, auto& s) { s.grad.coding = MP_CODING_DYNAMIC8; }),
             MP_STATUS_INVALID_ARGUMENT, "slot 1: grad.coding is 3");
    MP_FAILS(step([](auto&, auto& s) { s.states[2] = s.states[0]; }), MP_STATUS_INVALID_ARGUMENT,
             "slot 1: states[2]");
    MP_FAILS(step([](auto&, auto& s) { s.states[3].coding = MP_CODING_DYNAMIC8; }),
             MP_STATUS_INVALID_ARGUMENT, "slot 1: states[3]");
    float scale = 1.0F;
    MP_FAILS(step([&](auto&, auto& s) { s.states[3].amax = &scale; }), MP_STATUS_UNSUPPORTED,
             "slot 1: an amax");
    const auto compensate = [&scale](mp_step_slot& s, int32_t coding) {
        s.compensation.data = &scale;
        s.compensation.dtype = MP_DTYPE_UINT8;
        s.compensation.coding = coding;
        s.compensation.scale_inv = &scale;
    };
    MP_FAILS(step([&](auto&, auto& s) { compensate(s, MP_CODING_DYNAMIC4); }),
             MP_STATUS_INVALID_DTYPE, "compensation", "int8_companded32");
    MP_FAILS(step([&](auto&, auto& s) {
                 compensate(s, MP_CODING_DYNAMIC8);
                 s.compensation.scale_inv = nullptr;
             }),
             MP_STATUS_NULL_ARGUMENT, "compensation", "scales are NULL");
    MP_FAILS(step([&](auto&, auto& s) {
                 s.master.data = &scale;
                 s.master.dtype = MP_DTYPE_INT16;
                 s.master.coding = MP_CODING_REMAINDER;
                 s.master.scale_inv = &scale;
             }),
             MP_STATUS_INVALID_DTYPE, "remainder");
    step.expect_nothing_changed();
}

TEST(StepPointers, WrongArgumentsChangeNothing) {
    WrongStep step;
    MP_FAILS(step([](auto&, auto& s) { s.flags = 1; }), MP_STATUS_INVALID_ARGUMENT, "flags");
    MP_FAILS(step([](auto& a, auto&) { a.step = 0; }), MP_STATUS_INVALID_ARGUMENT, "step");
    MP_FAILS(step([](auto& a, auto&) { a.beta2 = 1.0; }), MP_STATUS_INVALID_ARGUMENT, "beta2");
    MP_FAILS(step([](auto& a, auto&) { a.eps = -1; }), MP_STATUS_INVALID_ARGUMENT, "eps");
    MP_FAILS(step([](auto& a, auto&) { a.grad_scale = -1; }), MP_STATUS_INVALID_ARGUMENT,
             "grad_scale");
    MP_FAILS(step([](auto& a, auto&) { a.max_grad_norm = NAN; }), MP_STATUS_INVALID_ARGUMENT,
             "max_grad_norm");
    MP_FAILS(step([](auto& a, auto&) { a.flags |= 1u << 30; }), MP_STATUS_INVALID_ARGUMENT,
             "flags");
    step.expect_nothing_changed();
    mp_context* const context = step.context;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    MP_FAILS(mp_optimizer_step_pointers(context, nullptr, &args, nullptr, 1, nullptr, nullptr),
             MP_STATUS_NULL_ARGUMENT, "slots");
    MP_FAILS(mp_optimizer_step_pointers(context, nullptr, nullptr, nullptr, 0, nullptr, nullptr),
             MP_STATUS_NULL_ARGUMENT, "args");
    MP_FAILS(mp_optimizer_step_pointers(context, nullptr, &args, nullptr, -1, nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "slot_count");
    MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, nullptr, 0, nullptr, nullptr));
}

// fp16 parameters with the eps that fp16 itself cannot hold, and gradients of zero: no 0/0.
TEST(StepPointers, Fp16WithZeroGradientsStaysFinite) {
    const Context context = make_context();
    uint16_t p[3] = {0x3c00, 0x0001, 0xbc00}, g[3] = {}, m[3] = {}, v[3] = {};
    mp_step_slot slot{};
    slot.struct_size = sizeof slot;
    slot.count = 3;
    slot.param.data = p;
    slot.grad.data = g;
    slot.states[0].data = m;
    slot.states[1].data = v;
    slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
        MP_DTYPE_FP16;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.lr = 1e-3;
    MP_FAILS(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr),
             MP_STATUS_WARNING, "fp16 second moments");
    for (args.step = 2; args.step < 10; ++args.step) {
        MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr));
    }
    EXPECT_EQ(p[0], 0x3c00);
    EXPECT_EQ(p[1], 0x0001);
    EXPECT_EQ(v[2], 0);
}

// At the first step alone, and where nothing else is said to round them.
TEST(StepPointers, SecondMomentsThatOnlyGrowAreSaid) {
    const Context context = make_context();
    std::vector<float> p(8), g(8), m(8);
    std::vector<uint16_t> v(8);
    mp_step_slot slot{};
    slot.struct_size = sizeof slot;
    slot.count = 8;
    slot.param.data = p.data();
    slot.grad.data = g.data();
    slot.states[0].data = m.data();
    slot.states[1].data = v.data();
    slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = MP_DTYPE_FP32;
    slot.states[1].dtype = MP_DTYPE_BF16;
    const auto step = [&](int64_t number, double beta2, uint32_t flags) {
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.lr = 1e-3;
        args.step = number;
        args.beta2 = beta2;
        args.flags |= flags;
        return mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr);
    };
    EXPECT_EQ(step(1, 0.999, 0), MP_STATUS_WARNING);
    EXPECT_NE(std::strstr(mp_last_error_message(), "MP_STEP_SR_STATE << 1"), nullptr);
    EXPECT_EQ(step(2, 0.999, 0), MP_STATUS_OK);
    EXPECT_EQ(step(1, 0.95, 0), MP_STATUS_OK);
    EXPECT_EQ(step(1, 0.999, MP_STEP_SR_STATE << 1), MP_STATUS_OK);
}

// Arrays need only be aligned to their elements: wherever they begin, the bits are those of aligned ones.
TEST(StepPointers, WhereAnArrayBeginsDoesNotMatter) {
    constexpr std::size_t kCount = 5000;
    constexpr std::size_t kRoom = 64; // bytes to move within
    const Context context = make_context();
    const Tensor narrow_param = make_tensor(context, MP_DTYPE_BF16, {kCount}, numbers(kCount, 1));
    const Tensor narrow_grad = make_tensor(context, MP_DTYPE_BF16, {kCount}, numbers(kCount, 2));
    const std::vector<unsigned char> param = bytes_of(narrow_param);
    const std::vector<unsigned char> grad = bytes_of(narrow_grad);
    const std::size_t scales = (kCount + 255) / 256;
    std::vector<std::vector<unsigned char>> results;
    for (std::size_t shift = 0; shift < 16; ++shift) {
        // p, g and c of bf16; m of fp32; v of 8-bit codes with fp32 scales
        std::vector<unsigned char> p(2 * kCount + kRoom), g(p), c(p), m(4 * kCount + kRoom);
        std::vector<unsigned char> v(kCount + kRoom), v_scales(4 * scales + kRoom);
        std::memcpy(p.data() + 2 * shift, param.data(), param.size());
        std::memcpy(g.data() + 2 * (15 - shift), grad.data(), grad.size());
        mp_step_slot slot{};
        slot.struct_size = sizeof slot;
        slot.count = kCount;
        slot.param.data = p.data() + 2 * shift;
        slot.grad.data = g.data() + 2 * (15 - shift);
        slot.states[0].data = m.data() + 4 * (shift % 5);
        slot.states[1].data = v.data() + 3 * shift;
        slot.compensation.data = c.data() + 2 * (shift % 3);
        slot.states[1].scale_inv = reinterpret_cast<float*>(v_scales.data() + 4 * (shift % 4));
        slot.param.dtype = slot.grad.dtype = slot.compensation.dtype = MP_DTYPE_BF16;
        slot.states[0].dtype = MP_DTYPE_FP32;
        slot.states[1].dtype = MP_DTYPE_UINT8;
        slot.states[1].coding = MP_CODING_DYNAMIC8;
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.lr = 1e-3;
        for (args.step = 1; args.step <= 2; ++args.step) {
            MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr));
        }
        std::vector<unsigned char> bits;
        const auto keep = [&bits](const void* data, std::size_t bytes) {
            const auto* begin = static_cast<const unsigned char*>(data);
            bits.insert(bits.end(), begin, begin + bytes);
        };
        keep(slot.param.data, 2 * kCount);
        keep(slot.compensation.data, 2 * kCount);
        keep(slot.states[0].data, 4 * kCount);
        keep(slot.states[1].data, kCount);
        keep(slot.states[1].scale_inv, 4 * scales);
        results.push_back(bits);
        EXPECT_EQ(results.front(), bits) << shift;
    }
    EXPECT_NE(std::memcmp(results.front().data(), param.data(), param.size()), 0);
}

// What two threads may write in any order has no right result.
TEST(StepPointers, ArraysThatOverlapAreRefused) {
    const Context context = make_context();
    mp_step_args args{};
    args.struct_size = sizeof args;
    args.lr = 1e-3;
    args.step = 1;
    Arrays first(100);
    Arrays second(100);
    mp_step_slot slots[2] = {first.slot(), second.slot()};
    const auto step = [&] {
        return mp_optimizer_step_pointers(context, nullptr, &args, slots, 2, nullptr, nullptr);
    };
    const std::vector<float> before = first.p;
    slots[1].param.data = first.p.data();
    MP_FAILS(step(), MP_STATUS_INVALID_ARGUMENT, "slot 1: param overlaps param of slot 0");
    slots[1] = second.slot();
    slots[1].states[0].data = first.v.data() + 99;
    slots[1].count = 50;
    MP_FAILS(step(), MP_STATUS_INVALID_ARGUMENT, "exp_avg", "exp_avg_sq");
    slots[1] = second.slot();
    slots[0].states[1].data = slots[0].states[0].data;
    MP_FAILS(step(), MP_STATUS_INVALID_ARGUMENT, "slot 0", "own");
    slots[0] = first.slot();
    slots[1].grad.data = slots[0].param.data;
    MP_FAILS(step(), MP_STATUS_INVALID_ARGUMENT, "grad", "param");
    EXPECT_EQ(first.p, before);
    // One gradient for two parameters is read only, until the step is to zero it.
    slots[1].grad.data = slots[0].grad.data;
    MP_OK(step());
    args.flags = MP_OPTIMIZER_ZERO_GRAD;
    MP_FAILS(step(), MP_STATUS_INVALID_ARGUMENT, "grad");
    // Neighbours do not overlap.
    slots[1] = second.slot();
    slots[0].count = slots[1].count = 50;
    slots[1].param.data = first.p.data() + 50;
    MP_OK(step());
}
