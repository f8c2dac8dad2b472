// SPDX-License-Identifier: Apache-2.0
// Causal attention on separate heads, [batch * heads, context, head_dim], by batched products of the library.
//
// The context is cut into at most 4 blocks of rows. A row never looks to the right of its own block, so each product
// covers one block of rows and the columns up to its end: 10/16 of the work of the full square.
#pragma once

#include <vector>

#include "kernels.h"
#include "support.hpp"

namespace train {

inline constexpr int64_t kMaxBlocks = 4;

// One array of heads or of [context, context] matrices, with the tensors that begin at each block of rows (and, for
// matrices, at the block on the diagonal).
struct Blocked {
    Array whole;
    std::vector<Array> rows;
    std::vector<Array> diagonal;

    [[nodiscard]] float* floats() const { return whole.floats(); }
};

class Attention {
  public:
    Attention(mp_context* context, AttentionShape shape, bool backward);

    AttentionShape shape;
    [[nodiscard]] Blocked heads() const { return make(shape.head_dim, false); }
    [[nodiscard]] Blocked matrices() const { return make(shape.context, true); }

    // prob = causal softmax(q k^T), out = prob v; q comes with its factor 1 / sqrt(head_dim).
    void forward(const Blocked& out, const Blocked& prob, const Blocked& q, const Blocked& k,
                 const Blocked& v) const;
    // Gradients of q, k and v, overwritten; dscores is scratch.
    void backward(const Blocked& dq, const Blocked& dk, const Blocked& dv, const Blocked& dscores,
                  const Blocked& dout, const Blocked& prob, const Blocked& q, const Blocked& k,
                  const Blocked& v) const;

  private:
    // The products of one block of rows.
    struct Products {
        Gemm scores; // q k^T
        Gemm mix;    // prob v
        Gemm dprob;  // dout v^T
        Gemm dv;     // prob^T dout
        Gemm dq;     // dscores k
        Gemm dk;     // dscores^T q
    };
    [[nodiscard]] int64_t start(size_t block) const {
        return static_cast<int64_t>(block) * shape.block;
    }
    [[nodiscard]] Blocked make(int64_t width, bool diagonal) const;

    mp_context* context_;
    std::vector<Products> blocks_;
};

} // namespace train
