// SPDX-License-Identifier: Apache-2.0
// The network for one batch size: its layers over shared parameters, its activations, forward and backward passes.
//
//   x = wte[tokens] + wpe[positions]
//   each block:  x += proj(attention(qkv(layernorm(x))));  x += fc2(gelu(fc(layernorm(x))))
//   logits = head(layernorm(x))
#pragma once

#include "attention.hpp"
#include "params.hpp"

namespace train {

class Network {
  public:
    // With inference there is no backward pass, and blocks share what they can.
    Network(Params& params, int64_t batch, bool inference);

    // tokens and targets hold batch * context bytes. Fills logits; with targets, the mean cross-entropy comes back and
    // logits become its gradient times scale (unless scale is 0).
    double forward(const uint8_t* tokens, const uint8_t* targets, float scale);
    // After a forward pass with a scale. Gradients overwrite the main gradients in the first pass of a step and are added
    // later. After the last pass ranks may begin to add them up.
    void backward(const uint8_t* tokens, bool first, bool last);

    [[nodiscard]] const float* logits() const { return logits_.floats(); }
    // All linear layers: four for each block, then the head.
    [[nodiscard]] const std::vector<mp_linear*>& linears() const { return linears_; }
    [[nodiscard]] std::string linear_name(size_t index) const; // "h3.fc", say

    // The layers' scales and amax histories, where the recipe has such: to use another network in the state of this.
    [[nodiscard]] std::vector<std::string> scaling() const;
    void set_scaling(const std::vector<std::string>& saved);

  private:
    struct Block {
        LayerNorm ln1{}, ln2{};
        Linear qkv, proj, fc, fc2;
        Array x1, x2; // what each half of the block adds to
        // Inputs of the linear layers. One array for all blocks where the library keeps copies in its own types.
        Array h1, attended, h2, activated;
        Blocked q, k, v, prob;
        Array derivative; // first the input of GELU, then its derivative
        Array statistics; // of both normalizations
    };
    [[nodiscard]] Array make(int64_t rows, int64_t cols = 0) const;
    [[nodiscard]] Array make_input(const Array& first, int64_t cols) const;
    Linear make_linear(const std::string& name, const Param& weight, const Param* bias,
                       uint32_t flags);
    void make_linears(int64_t index);
    void make_block(int64_t index);
    void make_backward();
    void use(int64_t group);
    void forward_block(Block& b);
    void backward_block(int64_t index, bool first);
    void backward_head(bool first, bool last);

    Params& params_;
    int64_t batch_, context_, dim_, layers_, rows_;
    bool inference_, shared_inputs_, cached_weights_;
    Attention attention_;
    std::vector<Block> blocks_;
    LayerNorm lnf_{};
    Linear head_;
    std::vector<mp_linear*> linears_;
    Array xf_, hf_, statistics_, logits_;
    Array qkv_, delta_; // used again and again
    Blocked heads_;
    // Backward only.
    Array dx_, dh_, dwide_, ln_scratch_;
    Blocked dq_, dk_, dv_, dscores_;
};

} // namespace train
