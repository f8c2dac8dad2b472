// SPDX-License-Identifier: Apache-2.0
// The forward and the backward pass. Read them side by side: the second undoes the first, line by line.
#include <cmath>

#include "network.hpp"

namespace train {

static void multiply(const Linear& linear, const Array& x, const Array& y) {
    MP_CHECK(mp_linear_forward(linear.get(), nullptr, x.tensor.get(), y.tensor.get()));
}

// Scores are products of queries and keys over the square root of their length.
static float query_factor(const AttentionShape* s) {
    return 1.0F / std::sqrt(static_cast<float>(s->head_dim));
}

void Network::forward_block(Block& b) {
    const AttentionShape* s = &attention_.shape;
    multiply(b.qkv, b.h1, qkv_);
    heads_from_rows(b.q.floats(), qkv_.floats(), 3 * dim_, query_factor(s), s);
    heads_from_rows(b.k.floats(), qkv_.floats() + dim_, 3 * dim_, 1.0F, s);
    heads_from_rows(b.v.floats(), qkv_.floats() + 2 * dim_, 3 * dim_, 1.0F, s);
    attention_.forward(heads_, b.prob, b.q, b.k, b.v);
    rows_from_heads(b.attended.floats(), heads_.floats(), dim_, 1.0F, s);
    multiply(b.proj, b.attended, delta_);
    add_layernorm(b.h2.floats(), b.x2.floats(), b.x1.floats(), delta_.floats(), &b.ln2, rows_,
                  dim_);
    multiply(b.fc, b.h2, b.derivative);
    gelu(b.activated.floats(), b.derivative.floats(), rows_ * 4 * dim_);
    multiply(b.fc2, b.activated, delta_);
}

static void bind(LayerNorm& ln, const Param* gain) {
    ln.gain = gain[0].value();
    ln.bias = gain[1].value();
}

// Waits until a group of parameters is there, and finds where.
void Network::use(int64_t group) {
    params_.gather_wait(group);
    if (group == layers_) {
        bind(lnf_, params_.behind() + kLnfGain);
    } else {
        Block& b = blocks_[size(group)];
        bind(b.ln1, params_.block(group) + kLn1Gain);
        bind(b.ln2, params_.block(group) + kLn2Gain);
    }
}

double Network::forward(const uint8_t* tokens, const uint8_t* targets, float scale) {
    double loss = 0.0;
    params_.gather_begin(kEmbeddings);
    params_.gather_begin(0);
    params_.gather_wait(kEmbeddings);
    embed(blocks_[0].x1.floats(), params_.list[kWte].value(), params_.list[kWpe].value(), tokens,
          batch_, context_, dim_);
    params_.release(kEmbeddings);
    use(0);
    add_layernorm(blocks_[0].h1.floats(), nullptr, blocks_[0].x1.floats(), nullptr, &blocks_[0].ln1,
                  rows_, dim_);
    for (int64_t i = 0; i < layers_; i++) {
        Block& b = blocks_[size(i)];
        Block* next = i + 1 < layers_ ? &b + 1 : nullptr;
        params_.gather_begin(i + 1);
        forward_block(b);
        use(i + 1);
        // The second addition of a block is done together with the next normalization.
        add_layernorm((next != nullptr ? next->h1 : hf_).floats(),
                      (next != nullptr ? next->x1 : xf_).floats(), b.x2.floats(), delta_.floats(),
                      next != nullptr ? &next->ln1 : &lnf_, rows_, dim_);
        params_.release(i);
    }
    multiply(head_, hf_, logits_);
    if (targets != nullptr) {
        loss = cross_entropy(logits_.floats(), targets, rows_, 256, scale);
    }
    if (targets == nullptr || scale == 0.0F) { // no backward pass follows
        params_.release(layers_);
    }
    return loss;
}

static void undo(const Linear& linear, const Array& dy, const Array& dx, const Param& weight,
                 const Param* bias, bool first) {
    MP_CHECK(mp_linear_backward(
        linear.get(), nullptr, dy.tensor.get(), dx.tensor.get(), weight.grad.tensor.get(),
        bias != nullptr ? bias->grad.tensor.get() : nullptr, first ? 0 : MP_BACKWARD_ACCUMULATE));
}

// dx_ holds the gradient of the block's output and becomes that of its input.
void Network::backward_block(int64_t index, bool first) {
    const AttentionShape* s = &attention_.shape;
    const Param* p = params_.block(index);
    Block& b = blocks_[size(index)];
    undo(b.fc2, dx_, dwide_, p[kFc2Weight], &p[kFc2Bias], first);
    gelu_backward(dwide_.floats(), b.derivative.floats(), rows_ * 4 * dim_);
    undo(b.fc, dwide_, dh_, p[kFcWeight], &p[kFcBias], first);
    layernorm_backward(dx_.floats(), p[kLn2Gain].gradient(), p[kLn2Bias].gradient(),
                       ln_scratch_.floats(), dh_.floats(), b.x2.floats(), &b.ln2, rows_, dim_,
                       true);
    undo(b.proj, dx_, dh_, p[kProjWeight], &p[kProjBias], first);
    heads_from_rows(heads_.floats(), dh_.floats(), dim_, 1.0F, s);
    attention_.backward(dq_, dk_, dv_, dscores_, heads_, b.prob, b.q, b.k, b.v);
    rows_from_heads(qkv_.floats(), dq_.floats(), 3 * dim_, query_factor(s), s);
    rows_from_heads(qkv_.floats() + dim_, dk_.floats(), 3 * dim_, 1.0F, s);
    rows_from_heads(qkv_.floats() + 2 * dim_, dv_.floats(), 3 * dim_, 1.0F, s);
    undo(b.qkv, qkv_, dh_, p[kQkvWeight], &p[kQkvBias], first);
    layernorm_backward(dx_.floats(), p[kLn1Gain].gradient(), p[kLn1Bias].gradient(),
                       ln_scratch_.floats(), dh_.floats(), b.x1.floats(), &b.ln1, rows_, dim_,
                       true);
}

void Network::backward_head(bool first, bool last) {
    params_.begin_gradients(layers_, first);
    const Param* p = params_.behind();
    undo(head_, logits_, dh_, p[kHeadWeight], nullptr, first);
    layernorm_backward(dx_.floats(), p[kLnfGain].gradient(), p[kLnfBias].gradient(),
                       ln_scratch_.floats(), dh_.floats(), xf_.floats(), &lnf_, rows_, dim_, false);
    params_.release(layers_);
    params_.end_gradients(layers_, first, last);
}

void Network::backward(const uint8_t* tokens, bool first, bool last) {
    params_.gather_begin(layers_ - 1);
    backward_head(first, last);
    for (int64_t i = layers_ - 1; i >= 0; i--) {
        use(i);
        if (i > 0) {
            params_.gather_begin(i - 1);
        }
        params_.begin_gradients(i, first);
        backward_block(i, first);
        params_.release(i);
        params_.end_gradients(i, first, last);
    }
    params_.begin_gradients(kEmbeddings, first);
    embed_backward(params_.list[kWte].gradient(), params_.list[kWpe].gradient(), dx_.floats(),
                   tokens, batch_, context_, dim_);
    params_.end_gradients(kEmbeddings, first, last);
    params_.end_pass();
}

} // namespace train
