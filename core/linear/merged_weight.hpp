// SPDX-License-Identifier: Apache-2.0
// The weight that a layer and its adapters are together, w + scale b a, as fp32 numbers.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "linear/linear.hpp"

namespace mp::linear {

// Rows of a matrix in any format as fp32 numbers.
void widen(Stream& stream, const Tensor& matrix, int64_t first, int64_t rows, float* to);

// sqrt of the sum of squares of each row of [rows, columns].
void row_norms(Stream& stream, const float* matrix, int64_t rows, int64_t columns, float* to);

class MergedWeight {
  public:
    struct Factors {
        const Linear* a;
        const Linear* b;
    };
    // Scratch memory for the adapters' numbers, and for rows that are asked for.
    MergedWeight(Stream& stream, const Linear& base, std::span<const Factors> adapters);

    // Rows [first, first + rows) to [rows, in].
    void read(int64_t first, int64_t rows, float* to);
    // Of each row: row_norms().
    void norms(float* to);

  private:
    struct Numbers {
        Scratch memory;
        const float* a;
        const float* b;
        int64_t rank;
        float scale;
        std::map<int64_t, gemm::GemmPlan> products; // by rows
    };
    Stream& stream_;
    const Linear& base_;
    std::vector<std::unique_ptr<Numbers>> adapters_;
};

} // namespace mp::linear
