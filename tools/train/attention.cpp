// SPDX-License-Identifier: Apache-2.0
// Attention's products: plans, views of blocks, forward and backward.
#include "attention.hpp"

#include <algorithm>

namespace train {
namespace {

// One product for every head; an operand is an array of heads or of matrices.
struct Product {
    uint32_t flags;
    int64_t m, n, k;
    bool a_matrix, b_matrix, d_matrix;
};

Gemm plan(mp_context* context, const AttentionShape& s, const Product& p) {
    const int64_t heads = s.context * s.head_dim, matrix = s.context * s.context;
    mp_gemm_desc d = MP_GEMM_DESC_INIT;
    d.flags = p.flags;
    d.m = p.m;
    d.n = p.n;
    d.k = p.k;
    d.lda = p.a_matrix ? s.context : s.head_dim;
    d.ldb = p.b_matrix ? s.context : s.head_dim;
    d.ldd = p.d_matrix ? s.context : s.head_dim;
    d.batch_count = s.batch * s.heads;
    d.batch_stride_a = p.a_matrix ? matrix : heads;
    d.batch_stride_b = p.b_matrix ? matrix : heads;
    d.batch_stride_d = p.d_matrix ? matrix : heads;
    d.dtype_a = MP_DTYPE_FP32;
    d.dtype_b = MP_DTYPE_FP32;
    d.dtype_d = MP_DTYPE_FP32;
    Gemm gemm;
    MP_CHECK(mp_gemm_create(context, &d, out(gemm)));
    return gemm;
}

void run(const Gemm& gemm, const Array& a, const Array& b, const Array& d) {
    MP_CHECK(mp_gemm_run(gemm.get(), nullptr, a.tensor.get(), b.tensor.get(), nullptr, nullptr,
                         d.tensor.get()));
}

} // namespace

Attention::Attention(mp_context* context, AttentionShape s, bool backward)
    : shape(s), context_(context) {
    const int64_t n = s.head_dim;
    for (int64_t begin = 0; begin < s.context; begin += s.block) {
        const int64_t end = std::min(begin + s.block, s.context), rows = end - begin;
        const int64_t below = s.context - begin; // rows that see the columns of this block
        const Product scores{MP_GEMM_TRANS_B, rows, end, n, false, false, true};
        const Product mix{0, rows, n, end, true, false, false};
        const Product transposed{MP_GEMM_TRANS_A, rows, n, below, true, false, false};
        Products& block = blocks_.emplace_back();
        block.scores = plan(context, s, scores);
        block.mix = plan(context, s, mix);
        if (backward) {
            block.dprob = plan(context, s, scores);
            block.dq = plan(context, s, mix);
            block.dv = plan(context, s, transposed);
            block.dk = plan(context, s, transposed);
        }
    }
}

Blocked Attention::make(int64_t width, bool diagonal) const {
    const int64_t count = shape.batch * shape.heads * shape.context * width;
    Blocked made{make_array(context_, MP_DTYPE_FP32, count), {}, {}};
    for (size_t i = 0; i < blocks_.size(); i++) {
        const int64_t row = start(i) * width, corner = row + start(i);
        made.rows.push_back(wrap_array(context_, made.floats() + row, count - row));
        if (diagonal) {
            made.diagonal.push_back(wrap_array(context_, made.floats() + corner, count - corner));
        }
    }
    return made;
}

void Attention::forward(const Blocked& to, const Blocked& prob, const Blocked& q, const Blocked& k,
                        const Blocked& v) const {
    for (size_t i = 0; i < blocks_.size(); i++) {
        run(blocks_[i].scores, q.rows[i], k.whole, prob.rows[i]);
    }
    causal_softmax(prob.floats(), &shape);
    for (size_t i = 0; i < blocks_.size(); i++) {
        run(blocks_[i].mix, prob.rows[i], v.whole, to.rows[i]);
    }
}

void Attention::backward(const Blocked& dq, const Blocked& dk, const Blocked& dv,
                         const Blocked& dscores, const Blocked& dout, const Blocked& prob,
                         const Blocked& q, const Blocked& k, const Blocked& v) const {
    for (size_t i = 0; i < blocks_.size(); i++) {
        run(blocks_[i].dprob, dout.rows[i], v.whole, dscores.rows[i]);
        run(blocks_[i].dv, prob.diagonal[i], dout.rows[i], dv.rows[i]);
    }
    causal_softmax_backward(dscores.floats(), prob.floats(), &shape);
    for (size_t i = 0; i < blocks_.size(); i++) {
        run(blocks_[i].dq, dscores.rows[i], k.whole, dq.rows[i]);
        run(blocks_[i].dk, dscores.diagonal[i], q.rows[i], dk.rows[i]);
    }
}

} // namespace train
