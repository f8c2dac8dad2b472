// SPDX-License-Identifier: Apache-2.0
// What a call writes shares memory with nothing else of the call. For each call every two of its arguments are laid over one
// another: it is refused where one of them is written, changes nothing then, and goes on where both are only read.
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "layers.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kWide = kSide * kSide * 4; // bytes of a matrix in fp32
constexpr std::size_t kPlace = 8192;
constexpr std::size_t kPlaces = 16;
constexpr std::size_t kArena = kPlace * kPlaces;

struct Piece {
    const char* name;
    int64_t bytes;
    bool is_written;
};
using Pointers = std::vector<char*>;
struct Call {
    std::string name;
    std::vector<Piece> pieces;
    std::function<mp_status(const Pointers&)> run;
};

struct Arena {
    std::unique_ptr<char, decltype(&std::free)> memory{
        static_cast<char*>(std::aligned_alloc(4096, kArena)), &std::free};

    // Ones, which every argument takes.
    void fill() const {
        auto* values = reinterpret_cast<float*>(memory.get());
        std::fill(values, values + kArena / 4, 1.0F);
    }
    [[nodiscard]] Pointers apart(std::size_t count) const {
        Pointers at;
        for (std::size_t i = 0; i < count; ++i) {
            at.push_back(memory.get() + i * kPlace);
        }
        return at;
    }
};

int cases = 0;

void check_pair(const Arena& arena, const Call& call, std::size_t i, std::size_t j,
                std::size_t offset) {
    const Piece& a = call.pieces[i];
    const Piece& b = call.pieces[j];
    SCOPED_TRACE(call.name + ": " + a.name + " over " + b.name + " + " + std::to_string(offset));
    arena.fill();
    const std::vector<char> before(arena.memory.get(), arena.memory.get() + kArena);
    Pointers at = arena.apart(call.pieces.size());
    at[i] = at[j] + offset;
    const mp_status status = call.run(at);
    ++cases;
    if (a.is_written || b.is_written) {
        EXPECT_EQ(status, MP_STATUS_INVALID_ARGUMENT) << mp_last_error_message();
        EXPECT_EQ(std::memcmp(before.data(), arena.memory.get(), kArena), 0) << "it has written";
    } else {
        EXPECT_TRUE(done(status));
    }
}

void check_call(const Arena& arena, const Call& call) {
    arena.fill();
    ASSERT_LE(call.pieces.size(), kPlaces);
    ASSERT_TRUE(done(call.run(arena.apart(call.pieces.size())))) << call.name;
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
        for (std::size_t j = 0; j < call.pieces.size(); ++j) {
            if (i == j) {
                continue;
            }
            check_pair(arena, call, i, j, 0);
            const auto last = static_cast<std::size_t>(call.pieces[j].bytes - 1) / 256 * 256;
            if (last > 0) {
                check_pair(arena, call, i, j, last);
            }
        }
    }
}

template <typename T = float> T* as(char* data) { return reinterpret_cast<T*>(data); }

Tensor over(mp_context* context, char* data, int32_t dtype, const std::vector<int64_t>& shape) {
    return wrap_tensor(context, dtype, shape, data);
}
Tensor matrix(mp_context* context, char* data) {
    return over(context, data, MP_DTYPE_FP32, {kSide, kSide});
}

mp_quantized_memory codes_at(char* codes, char* scale) {
    mp_quantized_memory memory = MP_QUANTIZED_MEMORY_INIT;
    memory.dtype = MP_DTYPE_FP8_E4M3;
    memory.rows = memory.columns = kSide;
    memory.codes = codes;
    memory.scale_inv = scale;
    return memory;
}

Call quantize(mp_context* context, bool checks) {
    return {"mp_tensor_quantize_pointers",
            {{"source", kWide, false},
             {"codes", kWide / 4, true},
             {"scale_inv", 4, true},
             {"transposed", kWide / 4, true},
             {"amax", 4, true},
             {"amax_pointer", 4, true}},
            [=](const Pointers& at) {
                mp_quantized_memory memory = codes_at(at[1], at[2]);
                memory.transposed = at[3];
                memory.amax = as(at[4]);
                mp_quantize_args args = MP_QUANTIZE_ARGS_INIT;
                args.amax_pointer = as(at[5]);
                args.flags = checks ? MP_QUANTIZE_CHECK_AMAX : 0;
                return mp_tensor_quantize_pointers(context, nullptr, at[0], MP_DTYPE_FP32, nullptr,
                                                   &memory, &args);
            }};
}

Call dequantize(mp_context* context) {
    return {"mp_tensor_dequantize_pointers",
            {{"codes", kWide / 4, true}, // read, but no two pieces of codes may meet
             {"scale_inv", 4, false},
             {"destination", kWide, true}},
            [=](const Pointers& at) {
                const mp_quantized_memory memory = codes_at(at[0], at[1]);
                return mp_tensor_dequantize_pointers(context, nullptr, &memory, nullptr, at[2],
                                                     MP_DTYPE_FP32);
            }};
}

Call copy(mp_context* context) {
    return {"mp_tensor_copy",
            {{"source", kWide, false}, {"destination", kWide, true}},
            [=](const Pointers& at) {
                return mp_tensor_copy(matrix(context, at[0]), nullptr, matrix(context, at[1]));
            }};
}

// Of codes and their scales by rows. What a source reads may not meet either: a tensor's pieces are apart.
Call copy_quantized(mp_context* context) {
    const auto wrapped = [=](char* codes, char* scale, char* amax, mp_tensor** out) {
        const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP8_E4M3, {kSide, kSide});
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = MP_SCALING_ROW;
        return mp_tensor_wrap_quantized(context, &desc, &quant, codes, scale, as(amax), nullptr,
                                        nullptr, out);
    };
    return {"mp_tensor_copy of codes",
            {{"source", kWide / 4, true},
             {"source's scale_inv", kSide * 4, true},
             {"source's amax", 4, true},
             {"destination", kWide / 4, true},
             {"destination's scale_inv", kSide * 4, true},
             {"destination's amax", 4, true}},
            [=](const Pointers& at) {
                mp_tensor* raw[2] = {nullptr, nullptr};
                const mp_status first = wrapped(at[0], at[1], at[2], &raw[0]);
                const Tensor source(raw[0]);
                const mp_status second = wrapped(at[3], at[4], at[5], &raw[1]);
                const Tensor destination(raw[1]);
                return first < 0    ? first
                       : second < 0 ? second
                                    : mp_tensor_copy(source, nullptr, destination);
            }};
}

Call amax(mp_context* context) {
    return {
        "mp_tensor_amax", {{"tensor", kWide, false}, {"amax", 4, true}}, [=](const Pointers& at) {
            return mp_tensor_amax(matrix(context, at[0]), nullptr,
                                  over(context, at[1], MP_DTYPE_FP32, {1}));
        }};
}

Call cast(mp_context* context) {
    return {"mp_tensor_cast_pointers",
            {{"source", kWide, false}, {"destination", kWide / 2, true}},
            [=](const Pointers& at) {
                return mp_tensor_cast_pointers(context, nullptr, at[0], MP_DTYPE_FP32, at[1],
                                               MP_DTYPE_BF16, kSide * kSide, nullptr);
            }};
}

// `how`: 0 at once, 1 as a plan, 2 by the arguments that a plan is given later.
Call step(mp_context* context, int how, bool hyper, bool zero_grad) {
    Call call;
    call.name = "step " + std::to_string(how);
    call.pieces = {{"param", kWide, true},
                   {"grad", kWide, zero_grad},
                   {"exp_avg", kWide, true},
                   {"exp_avg_sq", kWide, true},
                   {"compensation", kWide, true},
                   {"step_pointer", 8, true},
                   {"lr or hyper", hyper ? 40 : 4, false},
                   {"grad_scale", 4, false},
                   {"grad_mul", 4, false},
                   {"param.amax", 4, true}};
    call.run = [=](const Pointers& at) {
        mp_step_slot slot = MP_STEP_SLOT_INIT;
        slot.count = kSide * kSide;
        slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
            slot.compensation.dtype = MP_DTYPE_FP32;
        slot.param.data = at[0], slot.grad.data = at[1], slot.states[0].data = at[2],
        slot.states[1].data = at[3];
        slot.compensation.data = at[4];
        slot.param.amax = as(at[9]);
        mp_step_args plain = MP_STEP_ARGS_INIT;
        plain.lr = 1e-3;
        plain.flags |= zero_grad ? MP_OPTIMIZER_ZERO_GRAD : 0U;
        plain.step = 0;
        mp_step_args args = plain;
        args.step_pointer = as<int64_t>(at[5]);
        (hyper ? args.lr_pointer : args.grad_scale_pointer) = nullptr;
        args.lr_pointer = hyper ? nullptr : as(at[6]);
        args.hyper_pointer = hyper ? as<double>(at[6]) : nullptr;
        args.grad_scale_pointer = as(at[7]);
        args.grad_mul_pointer = as(at[8]);
        if (how == 0) {
            return mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr);
        }
        mp_step_plan* raw = nullptr;
        alignas(8) int64_t none = 0;
        plain.step_pointer = how == 1 ? plain.step_pointer : &none;
        const mp_status made =
            mp_step_plan_create(context, how == 1 ? &args : &plain, &slot, 1, &raw);
        const StepPlan plan(raw);
        return how == 1 || made < 0 ? made : mp_step_plan_set_args(plan, nullptr, &args);
    };
    return call;
}

Call gemm(mp_context* context) {
    return {"mp_gemm_run_scaled",
            {{"a", kWide / 4, false},
             {"b", kWide / 4, false},
             {"scale_a", 4, false},
             {"scale_b", 4, false},
             {"bias", kSide * 4, false},
             {"multiply_d", 4, false},
             {"d", kWide / 4, true},
             {"amax_d", 4, true}},
            [=](const Pointers& at) {
                mp_gemm_desc desc = MP_GEMM_DESC_INIT;
                desc.m = desc.n = desc.k = kSide;
                desc.flags = MP_GEMM_BIAS | MP_GEMM_TRANS_B;
                desc.dtype_a = desc.dtype_b = desc.dtype_d = MP_DTYPE_FP8_E4M3;
                desc.scale_a_dtype = desc.scale_b_dtype = MP_DTYPE_FP32;
                const Gemm plan = make_gemm(context, desc);
                std::vector<Tensor> held;
                const auto made = [&](std::size_t i, int32_t dtype,
                                      const std::vector<int64_t>& shape) {
                    held.push_back(over(context, at[i], dtype, shape));
                    return held.back().owned.get();
                };
                mp_gemm_args args = MP_GEMM_ARGS_INIT;
                args.a = made(0, MP_DTYPE_FP8_E4M3, {kSide, kSide});
                args.b = made(1, MP_DTYPE_FP8_E4M3, {kSide, kSide});
                args.scale_a = made(2, MP_DTYPE_FP32, {1});
                args.scale_b = made(3, MP_DTYPE_FP32, {1});
                args.bias = made(4, MP_DTYPE_FP32, {kSide});
                args.multiply_d = made(5, MP_DTYPE_FP32, {1});
                args.d = made(6, MP_DTYPE_FP8_E4M3, {kSide, kSide});
                args.amax_d = made(7, MP_DTYPE_FP32, {1});
                return mp_gemm_run_scaled(plan, nullptr, &args);
            }};
}

} // namespace

TEST(Overlaps, EveryTwoArgumentsOfACallOnTensorsAndPointers) {
    const Context context = make_context(1);
    const Arena arena;
    cases = 0;
    std::vector<Call> calls = {
        quantize(context, false), quantize(context, true), dequantize(context), copy(context),
        copy_quantized(context),  amax(context),           cast(context),       gemm(context)};
    for (const int how : {0, 1, 2}) {
        for (const bool hyper : {false, true}) {
            for (const bool zero_grad : {false, true}) {
                calls.push_back(step(context, how, hyper, zero_grad));
            }
        }
    }
    for (const Call& call : calls) {
        check_call(arena, call);
    }
    std::printf("%d cases\n", cases);
}

namespace {

// A layer in the arena, with what it keeps: x by reference (fp32), or in memory lent for it; or in the library's.
enum class Kept { by_reference, lent, own };
struct LayerCall {
    mp_context* context;
    const char* recipe;
    Kept kept;

    [[nodiscard]] std::vector<Piece> pieces(bool backward) const {
        const bool lends = kept == Kept::lent;
        const int64_t lent = lends ? kWide / 2 : 4;
        std::vector<Piece> all = {{"weight", kWide, false}, {"bias", kSide * 4, false}};
        if (backward) {
            all.insert(all.end(), {{"dy", kWide, false},
                                   {"dx", kWide, true},
                                   {"dw", kWide, true},
                                   {"dbias", kSide * 4, true}});
        } else {
            all.insert(all.end(), {{"x", kWide, false}, {"y", kWide, true}});
        }
        all.push_back({"workspace", kWide, true});
        if (backward && kept != Kept::own) {
            all.push_back({"kept x", lends ? lent : kWide, false});
        } else if (lends) {
            all.push_back({"lent", lent, true});
        }
        return all;
    }

    mp_status run(const Pointers& at, bool backward) const {
        const Tensor w = matrix(context, at[0]);
        const Tensor b = over(context, at[1], MP_DTYPE_FP32, {kSide});
        const Recipe rules = make_recipe(context, recipe);
        const Linear linear = make_linear(context, rules, linear_desc(kSide, kSide), w, b);
        const Saved saved = make_saved(linear);
        const Queue queue = make_queue(context);
        if (!backward) {
            EXPECT_TRUE(succeeded(mp_queue_set_workspace(queue, at[4], kWide)));
            if (kept == Kept::lent) {
                EXPECT_TRUE(succeeded(mp_saved_set_memory(saved, at[5], kWide / 2)));
            }
            return mp_linear_forward_saved(linear, queue, matrix(context, at[2]),
                                           matrix(context, at[3]), saved, 0);
        }
        // The forward has memory of its own, but for what it keeps.
        const Tensor elsewhere =
            make_tensor(context, MP_DTYPE_FP32, {kSide, kSide},
                        std::vector<float>(static_cast<std::size_t>(kSide * kSide), 1.0F));
        const Tensor y = make_tensor(context, MP_DTYPE_FP32, {kSide, kSide});
        const Tensor referred = kept == Kept::by_reference ? matrix(context, at[7]) : Tensor();
        alignas(256) char room[kWide / 2];
        if (kept == Kept::lent) {
            EXPECT_TRUE(succeeded(mp_saved_set_memory(saved, room, sizeof room)));
        }
        EXPECT_TRUE(succeeded(mp_linear_forward_saved(
            linear, nullptr, referred.owned ? referred : elsewhere, y, saved, 0)));
        if (kept == Kept::lent) { // moved, as if its bytes were copied
            EXPECT_TRUE(succeeded(mp_saved_set_memory(saved, at[7], kWide / 2)));
        }
        EXPECT_TRUE(succeeded(mp_queue_set_workspace(queue, at[6], kWide)));
        return mp_linear_backward_saved(linear, queue, saved, matrix(context, at[2]),
                                        matrix(context, at[3]), matrix(context, at[4]),
                                        over(context, at[5], MP_DTYPE_FP32, {kSide}), 0);
    }
};

} // namespace

TEST(Overlaps, EveryTwoArgumentsOfALayer) {
    const Context context = make_context(1);
    const Arena arena;
    cases = 0;
    for (const auto& [recipe, kept] : {std::pair<const char*, Kept>{"fp32", Kept::by_reference},
                                       {"bf16_mixed", Kept::lent},
                                       {"bf16_mixed", Kept::own}}) {
        const LayerCall layer{context, recipe, kept};
        for (const bool backward : {false, true}) {
            check_call(arena, {std::string(recipe) + (backward ? " backward" : " forward"),
                               layer.pieces(backward), [&, backward](const Pointers& at) {
                                   return layer.run(at, backward);
                               }});
        }
    }
    std::printf("%d cases\n", cases);
}
