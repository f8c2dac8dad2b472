// SPDX-License-Identifier: Apache-2.0
// The pieces of a blocked matrix product that are compiled once for each instruction set: operands are
// packed into the order in which the inner loop reads them, multiplied, and finished into D (after
// K. Goto, R. van de Geijn: "Anatomy of high-performance matrix multiplication", ACM TOMS 34, 2008).
// No threads here: each thread has jobs of its own.
//
// Packed words have 32 bits. A word is one k as fp32, whatever the operand's type was (widening is
// exact), or for the bf16 dot instruction two consecutive k as bf16, the lower k in the lower half.
//   op(A): groups of kGroupRows rows,       [group][word of k][row]
//   op(B): panels of kPanelColumns columns, [panel][word of k][column]
// Rows and columns that do not exist are 0.
//
// Each element of a product is one chain of fused multiply-adds in the order of k, started from 0, so its
// bits do not depend on how the work was cut. (The baseline has no fused multiply-add and rounds twice.)
#pragma once

#include <cstdint>

#include "device/ops.hpp"

namespace mp::backends::host {

inline constexpr int64_t kGroupRows = 12;
inline constexpr int64_t kPanelColumns = 32;
// Words that may be written behind a packed group: whole vectors are stored.
inline constexpr int64_t kGroupSlack = 16;

// Packs `count` rows of op(A), or columns of op(B), over `depth` values of k. fp8 codes are multiplied by
// `fold`, if there is one: for each fold_depth values of k, one factor for each line (LineScales).
struct PackJob {
    DType dtype;
    const void* source; // the first element of the first row or column
    int64_t stride;     // elements between the stored rows
    bool k_contiguous;  // a stored row runs along k; otherwise it holds one k
    int64_t count;
    int64_t depth;
    uint32_t* packed;
    int64_t unit_stride; // words from group to group, or from panel to panel
    const float* fold = nullptr;
    int64_t fold_stride = 0; // floats from block of k to block of k
    int64_t fold_depth = 0;  // a multiple of kFoldDepth
};
inline constexpr int64_t kFoldDepth = 32;

// D = alpha * (product + old) + bias over packed operands; `old` is D where `accumulate`, otherwise 0.
// alpha and bias are those of the last of several jobs along k; otherwise 1 and null. With scales:
//   block_words 0:  D = alpha * ((product + old) * scale_a) * scale_b + bias
//   otherwise:      D = alpha * (old + the sum over blocks of (product * scale_a) * scale_b) + bias
struct MultiplyJob {
    const uint32_t* a;
    int64_t group_stride;
    const uint32_t* b;
    int64_t panel_stride;
    int64_t words;
    int64_t rows;
    int64_t columns;
    float* d;
    int64_t stride_d;
    bool accumulate;
    float alpha;
    const float* bias;
    const float* scale_a; // one for each row, or null; then scale_b is null too
    const float* scale_b; // one for each column
    int64_t block_words;  // words that share scales; those of the next are scale_stride further
    int64_t scale_stride_a;
    int64_t scale_stride_b;
};

// D = round(gelu(alpha * sums + beta * C + bias)), each step rounded to fp32. Pointers are to element
// [0][0] of the block. At most kFinishColumns columns. fp8: rounds before_fp8(..., multiply), and amax becomes
// the maximum of itself and the patterns of |...|.
inline constexpr int64_t kFinishColumns = 1024;
struct FinishJob {
    const float* sums;
    int64_t stride;
    int64_t rows;
    int64_t columns;
    float alpha;
    float beta;
    bool gelu;
    DType dtype_d;
    DType dtype_bias;
    const void* bias;
    const void* c;
    int64_t stride_c;
    void* d;
    int64_t stride_d;
    float multiply;
    uint32_t amax;
    const float* scale_a; // where sums are multiplied by scales first, one for each row; or null
    const float* scale_b; // one for each column
};

// All of it but the sums and the extent, from one element of D on.
FinishJob finish_job(const GemmDesc& desc, const GemmBuffers& buffers, int64_t batch, int64_t row,
                     int64_t column) noexcept;

// bf16 numbers from fp8 codes, times a factor for each if there are any.
struct DecodeJob {
    DType dtype;
    const void* codes;
    int64_t count;
    const float* factors;
    void* out;
};

// Rows of B in blocks, each k elements, by rows of A as fp32: out[i * stride + j] = A's row i by B's row j, whose numbers are
// rounded to a type first.
inline constexpr int64_t kMostDotRows = 8;
struct DotJob {
    DType dtype;
    const void* blocks;
    int64_t rows;
    int64_t k;
    DType rounded_to;
    const float* a;
    int64_t rows_a; // at most kMostDotRows
    float* out;
    int64_t stride;
};

// One instruction set's compiled bodies. `pairs` are words of two bf16.
struct PanelTable {
    const char* name;
    void (*pack_a)(const PackJob& job) noexcept;
    void (*pack_b)(const PackJob& job) noexcept;
    void (*multiply)(const MultiplyJob& job) noexcept;
    void (*pack_a_pairs)(const PackJob& job) noexcept;
    void (*pack_b_pairs)(const PackJob& job) noexcept;
    void (*multiply_pairs)(const MultiplyJob& job) noexcept; // null: no such instruction
    void (*widen)(DType dtype, const void* source, int64_t count, float* out) noexcept;
    void (*finish)(FinishJob& job) noexcept;
    void (*decode)(const DecodeJob& job) noexcept;
    void (*dot)(const DotJob& job) noexcept;
};

// The table for the instruction set in use (active_isa()).
const PanelTable& active_panel_table() noexcept;

} // namespace mp::backends::host
