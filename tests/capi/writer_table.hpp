// SPDX-License-Identifier: Apache-2.0
// Every way in which the library writes to memory that may be a layer's weight: once each, into a Place. tests/abi/
// check_writers.py wants each function of the headers that can write here, or in its list of those that cannot.
#pragma once

#include <algorithm>
#include <functional>
#include <thread>

#include "layers.hpp"
#include "optimizers.hpp"
#include "ranks.hpp"
#include "support.hpp"

namespace mp_test {

constexpr int64_t kSide = 32;
constexpr int64_t kArea = kSide * kSide;
constexpr int64_t kAreaBytes = kArea * 4;

// A weight [kSide, kSide] in fp32 in memory of the test's, and what writers need.
struct Place {
    mp_context* context;
    mp_tensor* target; // over the memory: the weight's own tensor, a view of it, or another one
    float* memory;
    Recipe fp32 = make_recipe(context, "fp32");
    Tensor numbers_ = matrix(11); // the values that are written

    Tensor matrix(uint64_t seed, int32_t dtype = MP_DTYPE_FP32) const {
        return make_tensor(context, dtype, {kSide, kSide},
                           numbers(static_cast<std::size_t>(kArea), seed, 3.0F));
    }
    // Some of the target's first elements.
    Tensor first(int64_t count) const { return view_of(target, 0, {count}); }
    Tensor codes() const {
        Tensor made = make_quantized(context, MP_DTYPE_FP8_E4M3, {kSide, kSide}, nullptr);
        EXPECT_TRUE(
            succeeded(mp_tensor_quantize(numbers_, nullptr, made, nullptr, nullptr, nullptr)));
        return made;
    }
    // Another layer, whose results are written; fp32 keeps no copy of what it is given.
    Linear other(mp_tensor* weight, mp_tensor* bias = nullptr) const {
        return make_linear(context, fp32, linear_desc(kSide, kSide), weight, bias);
    }
    Optimizer optimizer(const char* name, mp_recipe* recipe, mp_tensor* param, mp_tensor* grad,
                        uint32_t flags = 0, mp_tensor* init = nullptr,
                        mp_comm* comm = nullptr) const {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.flags = flags;
        Optimizer made = make_optimizer_on(comm, context, recipe, &desc);
        EXPECT_TRUE(done(mp_optimizer_add_group(made, nullptr, nullptr)));
        EXPECT_TRUE(succeeded(add_param(made, 0, name, param, grad, init)));
        return made;
    }
};

struct Writer {
    const char* function;
    std::function<mp_status(const Place&)> write;
};

inline void add_tensor_writers(std::vector<Writer>& all) {
    all.push_back({"mp_tensor_write", [](const Place& p) {
                       return mp_tensor_write(p.target, nullptr, bytes_of(p.numbers_).data(),
                                              kAreaBytes);
                   }});
    all.push_back({"mp_tensor_read", [](const Place& p) {
                       return mp_tensor_read(p.numbers_, nullptr, p.memory, kAreaBytes);
                   }});
    all.push_back({"mp_tensor_copy",
                   [](const Place& p) { return mp_tensor_copy(p.numbers_, nullptr, p.target); }});
    all.push_back(
        {"mp_tensor_zero", [](const Place& p) { return mp_tensor_zero(p.target, nullptr); }});
    all.push_back({"mp_tensor_cast", [](const Place& p) {
                       return mp_tensor_cast(p.matrix(1, MP_DTYPE_BF16), nullptr, p.target,
                                             nullptr);
                   }});
    all.push_back({"mp_tensor_cast_pointers", [](const Place& p) {
                       return mp_tensor_cast_pointers(p.context, nullptr, data_of(p.numbers_),
                                                      MP_DTYPE_FP32, p.memory, MP_DTYPE_FP32, kArea,
                                                      nullptr);
                   }});
    all.push_back({"mp_tensor_amax",
                   [](const Place& p) { return mp_tensor_amax(p.numbers_, nullptr, p.first(1)); }});
    all.push_back({"mp_tensor_dequantize", [](const Place& p) {
                       return mp_tensor_dequantize(p.codes(), nullptr, p.target);
                   }});
}

inline mp_quantized_memory memory_of(mp_tensor* codes) {
    const Tensor scales = scales_of(codes);
    mp_quantized_memory memory = MP_QUANTIZED_MEMORY_INIT;
    memory.dtype = MP_DTYPE_FP8_E4M3;
    memory.rows = memory.columns = kSide;
    memory.codes = data_of(codes);
    memory.scale_inv = data_of(scales);
    return memory;
}

inline void add_quantizers(std::vector<Writer>& all) {
    all.push_back({"mp_tensor_dequantize_pointers", [](const Place& p) {
                       const Tensor codes = p.codes();
                       const mp_quantized_memory memory = memory_of(codes);
                       return mp_tensor_dequantize_pointers(p.context, nullptr, &memory, nullptr,
                                                            p.memory, MP_DTYPE_FP32);
                   }});
    // Its amax, the codes and the scale are put into the weight's memory.
    for (const int part : {0, 1, 2, 3}) {
        all.push_back({"mp_tensor_quantize_pointers", [part](const Place& p) {
                           const Tensor codes = p.codes();
                           mp_quantized_memory memory = memory_of(codes);
                           (part == 0   ? memory.codes
                            : part == 1 ? memory.scale_inv
                                        : memory.transposed) = part == 3 ? nullptr : p.memory;
                           memory.amax = part == 3 ? p.memory : nullptr;
                           return mp_tensor_quantize_pointers(p.context, nullptr,
                                                              data_of(p.numbers_), MP_DTYPE_FP32,
                                                              nullptr, &memory, nullptr);
                       }});
    }
    all.push_back({"mp_tensor_quantize", [](const Place& p) { // the amax is marked as taken
                       mp_quantize_args args = MP_QUANTIZE_ARGS_INIT;
                       args.flags = MP_QUANTIZE_CHECK_AMAX;
                       args.amax_pointer = p.memory;
                       p.memory[0] = 1.0F;
                       return mp_tensor_quantize(p.numbers_, nullptr, p.codes(), nullptr, &args,
                                                 nullptr);
                   }});
    all.push_back(
        {"mp_tensor_wrap_quantized", [](const Place& p) {
             const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP8_E4M3, {kSide, kSide});
             mp_tensor* raw = nullptr;
             alignas(16) float scale[4] = {1, 1, 1, 1};
             EXPECT_TRUE(succeeded(mp_tensor_wrap_quantized(
                 p.context, &desc, nullptr, p.memory, scale, nullptr, nullptr, nullptr, &raw)));
             const Tensor over(raw);
             return mp_tensor_quantize(p.numbers_, nullptr, over, nullptr, nullptr, nullptr);
         }});
}

inline void add_gemms(std::vector<Writer>& all) {
    for (const bool scaled : {false, true}) {
        all.push_back({scaled ? "mp_gemm_run_scaled" : "mp_gemm_run", [scaled](const Place& p) {
                           mp_gemm_desc desc = MP_GEMM_DESC_INIT;
                           desc.m = desc.n = desc.k = kSide;
                           desc.dtype_a = desc.dtype_b = MP_DTYPE_FP32;
                           const Gemm gemm = make_gemm(p.context, desc);
                           const Tensor a = p.matrix(2), b = p.matrix(3);
                           mp_gemm_args args = MP_GEMM_ARGS_INIT;
                           args.a = a;
                           args.b = b;
                           args.d = p.target;
                           return scaled ? mp_gemm_run_scaled(gemm, nullptr, &args)
                                         : mp_gemm_run(gemm, nullptr, a, b, nullptr, nullptr,
                                                       p.target);
                       }});
    }
}

// `run` has another layer after a forward of its second argument, and a gradient.
using OfLayer = mp_status(const Place&, mp_linear*, mp_tensor*, mp_tensor*);
inline void add_of_layer(std::vector<Writer>& all, const char* function,
                         const std::function<OfLayer>& run) {
    all.push_back({function, [run](const Place& p) {
                       const Tensor w = p.matrix(4),
                                    bias = make_tensor(p.context, MP_DTYPE_FP32, {kSide});
                       const Linear other = p.other(w, bias);
                       const Tensor x = p.matrix(5), y = p.matrix(6), g = p.matrix(7);
                       EXPECT_TRUE(succeeded(mp_linear_forward(other, nullptr, x, y)));
                       return run(p, other, x, g);
                   }});
}

inline void add_forwards(std::vector<Writer>& all) {
    const auto add = [&all](const char* function, const std::function<OfLayer>& run) {
        add_of_layer(all, function, run);
    };
    add("mp_linear_forward", [](const Place& p, mp_linear* l, mp_tensor* x, mp_tensor*) {
        return mp_linear_forward(l, nullptr, x, p.target);
    });
    add("mp_linear_forward_pointers", [](const Place& p, mp_linear* l, mp_tensor* x, mp_tensor*) {
        return mp_linear_forward_pointers(l, nullptr, kSide, data_of(x), p.memory, MP_DTYPE_FP32);
    });
    add("mp_linear_forward_saved", [](const Place& p, mp_linear* l, mp_tensor* x, mp_tensor*) {
        return mp_linear_forward_saved(l, nullptr, x, p.target, nullptr, 0);
    });
    add("mp_saved_set_memory", [](const Place& p, mp_linear* l, mp_tensor* x, mp_tensor* y) {
        const Saved saved = make_saved(l);
        EXPECT_TRUE(succeeded(mp_saved_set_memory(saved, p.memory, kAreaBytes)));
        return mp_linear_forward_saved(l, nullptr, x, y, saved, 0);
    });
}

inline void add_backwards(std::vector<Writer>& all) {
    const auto add = [&all](const char* function, const std::function<OfLayer>& run) {
        add_of_layer(all, function, run);
    };
    add("mp_linear_backward_data", [](const Place& p, mp_linear* l, mp_tensor*, mp_tensor* g) {
        return mp_linear_backward_data(l, nullptr, g, p.target);
    });
    add("mp_linear_backward_weight", [](const Place& p, mp_linear* l, mp_tensor*, mp_tensor* g) {
        return mp_linear_backward_weight(l, nullptr, g, p.target, nullptr, 0);
    });
    add("mp_linear_backward", [](const Place& p, mp_linear* l, mp_tensor*, mp_tensor* g) {
        return mp_linear_backward(l, nullptr, g, p.target, p.matrix(8), nullptr, 0);
    });
    add("mp_linear_backward", [](const Place& p, mp_linear* l, mp_tensor*, mp_tensor* g) {
        return mp_linear_backward(l, nullptr, g, nullptr, p.matrix(8), p.first(kSide), 0);
    });
    add("mp_linear_backward_saved", [](const Place& p, mp_linear* l, mp_tensor*, mp_tensor* g) {
        return mp_linear_backward_saved(l, nullptr, nullptr, g, p.target, nullptr, nullptr, 0);
    });
    for (const int part : {0, 1, 2}) {
        add("mp_linear_backward_pointers", [part](const Place& p, mp_linear* l, mp_tensor*,
                                                  mp_tensor* g) {
            std::vector<float> dw(static_cast<std::size_t>(kArea));
            return mp_linear_backward_pointers(
                l, nullptr, kSide, data_of(g), part == 0 ? p.memory : nullptr, MP_DTYPE_FP32,
                part == 1 ? p.memory : dw.data(), part == 2 ? p.memory : nullptr, MP_DTYPE_FP32, 0);
        });
    }
}

} // namespace mp_test
