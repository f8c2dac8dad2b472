// SPDX-License-Identifier: Apache-2.0
// Memory and layers of the network. The passes are in passes.cpp.
#include "network.hpp"

#include <algorithm>

namespace train {

Array Network::make(int64_t rows, int64_t cols) const {
    return make_array(params_.context, MP_DTYPE_FP32, rows, cols);
}

// A second reference to the first block's array instead of memory of its own, where blocks can share.
Array Network::make_input(const Array& first, int64_t cols) const {
    return first.tensor && (shared_inputs_ || inference_)
               ? wrap_array(params_.context, first.floats(), rows_, cols)
               : make(rows_, cols);
}

Linear Network::make_linear(const std::string& name, const Param& weight, const Param* bias,
                            uint32_t flags) {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.name = name.c_str();
    desc.flags = flags | (inference_ ? MP_LINEAR_INFERENCE : 0) |
                 (cached_weights_ ? MP_LINEAR_CACHE_WEIGHT : 0);
    desc.in_features = weight.cols;
    desc.out_features = weight.rows;
    Linear linear;
    MP_CHECK(mp_linear_create(params_.context, params_.recipe, &desc, weight.weight.tensor.get(),
                              bias != nullptr ? bias->weight.tensor.get() : nullptr, out(linear)));
    linears_.push_back(linear.get());
    return linear;
}

// Layers look at their weights when they are made, so these must be there.
void Network::make_linears(int64_t index) {
    params_.gather_begin(index);
    params_.gather_wait(index);
    if (index == layers_) {
        head_ =
            make_linear("head", params_.behind()[kHeadWeight], nullptr, MP_LINEAR_FIRST_OR_LAST);
    } else {
        Block& b = blocks_[size(index)];
        const Param* p = params_.block(index);
        const std::string h = block_name(size(index));
        b.qkv = make_linear(h + ".qkv", p[kQkvWeight], &p[kQkvBias], 0);
        b.proj = make_linear(h + ".proj", p[kProjWeight], &p[kProjBias], 0);
        b.fc = make_linear(h + ".fc", p[kFcWeight], &p[kFcBias], 0);
        b.fc2 = make_linear(h + ".fc2", p[kFc2Weight], &p[kFc2Bias], 0);
    }
    params_.release(index);
}

// Gain and bias come with use().
static LayerNorm make_layernorm(float* statistics, int64_t rows) {
    return {nullptr, nullptr, statistics, statistics + rows};
}

void Network::make_block(int64_t index) {
    Block& b = blocks_[size(index)];
    const Block& first = blocks_[0];
    make_linears(index);
    b.statistics = make(4 * rows_);
    b.ln1 = make_layernorm(b.statistics.floats(), rows_);
    b.ln2 = make_layernorm(b.statistics.floats() + 2 * rows_, rows_);
    b.x1 = make(rows_, dim_);
    b.x2 = make(rows_, dim_);
    b.h1 = make_input(first.h1, dim_);
    b.attended = make_input(first.attended, dim_);
    b.h2 = make_input(first.h2, dim_);
    b.activated = make_input(first.activated, 4 * dim_);
    b.derivative = make(rows_, 4 * dim_);
    b.q = attention_.heads();
    b.k = attention_.heads();
    b.v = attention_.heads();
    b.prob = attention_.matrices();
}

void Network::make_backward() {
    dx_ = make(rows_, dim_);
    dh_ = make(rows_, dim_);
    dwide_ = make(rows_, 4 * dim_);
    ln_scratch_ = make(LAYERNORM_PARTS, 2 * dim_);
    dq_ = attention_.heads();
    dk_ = attention_.heads();
    dv_ = attention_.heads();
    dscores_ = attention_.matrices();
    // The optimizer's step ends theirs. On ranks their amaxes then travel in its agreement.
    MP_CHECK(mp_optimizer_set_linears(params_.optimizer.get(), linears_.data(),
                                      static_cast<int32_t>(linears_.size())));
}

static AttentionShape attention_shape(const Options& o, int64_t batch) {
    const int64_t quarter = (o.context + kMaxBlocks - 1) / kMaxBlocks;
    return {batch, o.heads, o.context, o.dim / o.heads, std::max<int64_t>(quarter, 64)};
}

Network::Network(Params& params, int64_t batch, bool inference)
    : params_(params), batch_(batch), context_(params.options.context), dim_(params.options.dim),
      layers_(params.options.layers), rows_(batch * context_), inference_(inference),
      // Then every layer keeps a copy: of this type, or of fp8 codes. Rules may leave one the caller's own.
      shared_inputs_(recipe_string(params.recipe, MP_RECIPE_GEMM_WGRAD_DTYPE) != "fp32" &&
                     recipe_string(params.recipe, MP_RECIPE_LAYERS).empty()),
      cached_weights_(!params.come_and_go() && (inference || params.options.accum > 1)),
      attention_(params.context, attention_shape(params.options, batch), !inference),
      blocks_(size(layers_)) {
    for (int64_t i = 0; i < layers_; i++) {
        make_block(i);
    }
    make_linears(layers_);
    statistics_ = make(2 * rows_);
    lnf_ = make_layernorm(statistics_.floats(), rows_);
    xf_ = make(rows_, dim_);
    hf_ = make(rows_, dim_);
    logits_ = make(rows_, 256);
    qkv_ = make(rows_, 3 * dim_);
    delta_ = make(rows_, dim_);
    heads_ = attention_.heads();
    if (!inference) {
        make_backward();
    }
}

std::string Network::linear_name(size_t index) const {
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    MP_CHECK(mp_linear_get_desc(linears_[index], &desc));
    return desc.name;
}

std::vector<std::string> Network::scaling() const {
    std::vector<std::string> saved;
    for (const mp_linear* linear : linears_) {
        size_t bytes = 0;
        MP_CHECK(mp_linear_get_scaling(linear, nullptr, 0, &bytes));
        saved.emplace_back(bytes, '\0');
        MP_CHECK(mp_linear_get_scaling(linear, saved.back().data(), bytes, &bytes));
    }
    return saved;
}

void Network::set_scaling(const std::vector<std::string>& saved) {
    for (size_t i = 0; i < saved.size(); i++) {
        MP_CHECK(mp_linear_set_scaling(linears_[i], saved[i].data(), saved[i].size()));
    }
}

} // namespace train
