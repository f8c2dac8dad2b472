// SPDX-License-Identifier: Apache-2.0
// ggml computes, the library updates: AdamW with 8-bit moments (torchao's dynamic map) on ggml's own tensors, all of them in one
// call, with clipping. ggml's own AdamW keeps both moments in fp32: half of the 16 bytes that a weight costs.
//
//   c++ -std=c++17 ggml.cpp $(pkg-config --cflags --libs mixedprec) -lggml -lggml-base -lggml-cpu
#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstdio>
#include <mixedprec.hpp>

namespace {

constexpr int inputs = 16, hidden = 256, outputs = 4, batch = 64;
constexpr std::int64_t block = 256; // of the 8-bit codes

// What the library keeps of one parameter: two bytes an element, and a scale for 256.
struct Moments {
    explicit Moments(std::int64_t count)
        : m(static_cast<std::size_t>(count)), v(m),
          m_scales(static_cast<std::size_t>((count + block - 1) / block)), v_scales(m_scales) {}
    std::vector<std::uint8_t> m, v;
    std::vector<float> m_scales, v_scales;
};

mp_step_slot slot_of(ggml_tensor* param, ggml_tensor* grad, Moments& moments, std::uint64_t uid) {
    mixedprec::StepSlot slot;
    slot.count = ggml_nelements(param);
    slot.uid = uid;
    slot.param.data = param->data, slot.param.dtype = MP_DTYPE_FP32;
    slot.grad.data = grad->data, slot.grad.dtype = MP_DTYPE_FP32;
    slot.states[0].data = moments.m.data(), slot.states[1].data = moments.v.data();
    slot.states[0].dtype = slot.states[1].dtype = MP_DTYPE_UINT8;
    slot.states[0].coding = slot.states[1].coding = MP_CODING_DYNAMIC8;
    slot.states[0].scale_inv = moments.m_scales.data(),
    slot.states[1].scale_inv = moments.v_scales.data();
    return slot;
}

std::int64_t random_state = 1234;
float uniform() {
    random_state = random_state * 48271 % 2147483647;
    return static_cast<float>(2.0 * static_cast<double>(random_state) / 2147483647.0 - 1.0);
}

// A batch of random numbers, each row with its class.
void draw(float* x, float* labels) {
    for (int r = 0; r < batch; ++r) {
        float* row = x + r * inputs;
        for (int i = 0; i < inputs; ++i)
            row[i] = uniform();
        const int target = (row[0] * row[1] > 0.0f ? 1 : 0) + (row[2] > row[3] ? 2 : 0);
        for (int j = 0; j < outputs; ++j)
            labels[r * outputs + j] = j == target ? 1.0f : 0.0f;
    }
}

} // namespace

int main() {
    ggml_context* ggml = ggml_init({64u << 20, nullptr, false});
    ggml_tensor* x = ggml_new_tensor_2d(ggml, GGML_TYPE_F32, inputs, batch);
    ggml_tensor* labels = ggml_new_tensor_2d(ggml, GGML_TYPE_F32, outputs, batch);
    ggml_tensor* params[] = {ggml_new_tensor_2d(ggml, GGML_TYPE_F32, inputs, hidden),
                             ggml_new_tensor_1d(ggml, GGML_TYPE_F32, hidden),
                             ggml_new_tensor_2d(ggml, GGML_TYPE_F32, hidden, outputs),
                             ggml_new_tensor_1d(ggml, GGML_TYPE_F32, outputs)};
    for (ggml_tensor* param : params) {
        ggml_set_param(param);
        const float bound =
            param->ne[1] > 1 ? 1.0f / std::sqrt(static_cast<float>(param->ne[0])) : 0.0f;
        for (std::int64_t i = 0; i < ggml_nelements(param); ++i)
            static_cast<float*>(param->data)[i] = bound * uniform();
    }
    ggml_tensor* h = ggml_relu(ggml, ggml_add(ggml, ggml_mul_mat(ggml, params[0], x), params[1]));
    ggml_tensor* logits = ggml_add(ggml, ggml_mul_mat(ggml, params[2], h), params[3]);
    ggml_tensor* loss = ggml_cross_entropy_loss(ggml, logits, labels);
    ggml_set_loss(loss);
    ggml_cgraph* graph = ggml_new_graph_custom(ggml, 256, true);
    ggml_build_forward_expand(graph, loss);
    ggml_build_backward_expand(ggml, graph, nullptr);

    const auto context = mixedprec::Context::create();
    mixedprec::StepArgs args;
    args.lr = 3e-3;
    args.beta2 = 0.99;
    args.max_grad_norm = 1.0;
    std::vector<Moments> moments;
    std::int64_t weights = 0;
    for (ggml_tensor* param : params)
        moments.emplace_back(ggml_nelements(param)), weights += ggml_nelements(param);
    std::vector<mp_step_slot> slots;
    for (std::size_t i = 0; i < moments.size(); ++i) {
        slots.push_back(slot_of(params[i], ggml_graph_get_grad(graph, params[i]), moments[i], i));
    }

    double mean = 0.0;
    for (int step = 1; step <= 200; ++step) {
        draw(static_cast<float*>(x->data), static_cast<float*>(labels->data));
        ggml_graph_reset(graph); // gradients to zero, the loss's to one
        ggml_graph_compute_with_ctx(ggml, graph, 1);
        args.step = step;
        mixedprec::step(context, args, slots);
        if (step > 180)
            mean += static_cast<double>(*static_cast<float*>(loss->data)) / 20.0;
    }
    std::printf(
        "%lld weights, %lld bytes of moments, loss of the last 20 steps %.4f (by chance %.4f)\n",
        static_cast<long long>(weights),
        static_cast<long long>(2 * (weights + weights / block * 4)), mean,
        std::log(static_cast<double>(outputs)));
    ggml_free(ggml);
    return mean < 0.7 ? 0 : 1; // a test runs this
}
