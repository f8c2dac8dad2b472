// SPDX-License-Identifier: Apache-2.0
// What adapters write: gradients, magnitudes, merged weights.
#pragma once

#include "writer_table.hpp"

namespace mp_test {

// `run` has a frozen layer with an adapter, whose gradients no one wants yet.
using OfAdapter = mp_status(const Place&, mp_linear*, mp_adapter*);
inline void add_of_adapter(std::vector<Writer>& all, const char* function,
                           const std::function<OfAdapter>& run) {
    all.push_back({function, [run](const Place& p) {
                       const Tensor w = p.matrix(4), a = p.matrix(5), b = p.matrix(6);
                       const Linear base = make_linear(
                           p.context, p.fp32, linear_desc(kSide, kSide, MP_LINEAR_FROZEN), w);
                       mp_adapter* raw = nullptr;
                       EXPECT_TRUE(succeeded(mp_adapter_create(base, p.fp32, nullptr, a, b, &raw)));
                       const Adapter adapter(raw);
                       return run(p, base, adapter);
                   }});
}

// A forward, and a backward for what is wanted beside dx.
inline mp_status pass_of(const Place& p, mp_linear* base) {
    const Tensor x = p.matrix(7), y = p.matrix(8);
    EXPECT_TRUE(succeeded(mp_linear_forward(base, nullptr, x, y)));
    return mp_linear_backward_weight(base, nullptr, y, nullptr, nullptr, 0);
}

inline void add_adapters(std::vector<Writer>& all) {
    const auto add = [&all](const char* function, const std::function<OfAdapter>& run) {
        add_of_adapter(all, function, run);
    };
    for (const bool is_a : {true, false}) {
        add("mp_adapter_set_grads", [is_a](const Place& p, mp_linear* base, mp_adapter* adapter) {
            EXPECT_TRUE(succeeded(mp_adapter_set_grads(adapter, is_a ? p.target : nullptr,
                                                       is_a ? nullptr : p.target)));
            return pass_of(p, base);
        });
        add("mp_adapter_set_grads_pointers",
            [is_a](const Place& p, mp_linear* base, mp_adapter* adapter) {
                EXPECT_TRUE(succeeded(mp_adapter_set_grads_pointers(
                    adapter, is_a ? p.memory : nullptr, is_a ? nullptr : p.memory, MP_DTYPE_FP32)));
                return pass_of(p, base);
            });
    }
    add("mp_adapter_set_magnitude", [](const Place& p, mp_linear* base, mp_adapter* adapter) {
        const Tensor magnitude = make_tensor(p.context, MP_DTYPE_FP32, {kSide},
                                             numbers(static_cast<std::size_t>(kSide), 9));
        EXPECT_TRUE(succeeded(mp_adapter_set_magnitude(adapter, magnitude, p.first(kSide))));
        return pass_of(p, base);
    });
    add("mp_adapter_set_magnitude_pointers",
        [](const Place& p, mp_linear* base, mp_adapter* adapter) {
            std::vector<float> magnitude = numbers(static_cast<std::size_t>(kSide), 9);
            EXPECT_TRUE(succeeded(mp_adapter_set_magnitude_pointers(adapter, magnitude.data(),
                                                                    p.memory, MP_DTYPE_FP32)));
            return pass_of(p, base);
        });
    add("mp_adapter_init_magnitude", [](const Place& p, mp_linear*, mp_adapter* adapter) {
        EXPECT_TRUE(succeeded(mp_adapter_set_magnitude(adapter, p.first(kSide), nullptr)));
        return mp_adapter_init_magnitude(adapter, nullptr);
    });
    add("mp_linear_merge_adapters", [](const Place& p, mp_linear* base, mp_adapter*) {
        return mp_linear_merge_adapters(base, nullptr, 0, p.target, 0, nullptr);
    });
}

} // namespace mp_test
