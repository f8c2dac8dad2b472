// SPDX-License-Identifier: Apache-2.0
// The simulated cuBLASLt: what its opaque handles are, its rules, and its arithmetic.
#pragma once

#include <cublasLt.h>

#include "numerics/codec.hpp"
#include "runtime.hpp"

namespace mp::simulated {

// What a test sets and reads, through mp_simulated_cublaslt().
struct LtControl {
    int64_t searches = 0; // questions to the heuristics
    // Of the questions that they could answer, so many of a hundred are refused, in one of kRefusals ways, by this seed.
    uint32_t refused_percent = 0;
    uint64_t seed = 0;
    int64_t refusals = 0;
    // Unless success: what the next question is answered with.
    cublasStatus_t next_answer = CUBLAS_STATUS_SUCCESS;
    char complaint[96] = {}; // the last one
    bool is_quiet = false;   // complaints are not printed
};
LtControl& lt_control() noexcept;

struct Layout {
    cudaDataType_t type;
    int64_t rows;
    int64_t columns;
    int64_t leading;
    int32_t batch_count = 1;
    int64_t batch_stride = 0;
    bool operator==(const Layout&) const = default;
};

struct Product {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t trans_a = CUBLAS_OP_N;
    int32_t trans_b = CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    int32_t bias_type = -1;
    const float* scale_a = nullptr;
    const float* scale_b = nullptr;
    const float* scale_d = nullptr;
    float* amax_d = nullptr;
    int32_t mode_a = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    int32_t mode_b = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    int8_t fast = 0;
    bool operator==(const Product&) const = default;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignments[4] = {256, 256, 256, 256};
};

// A product and its matrices: what the heuristics are asked about.
struct Problem {
    Product p;
    Layout a, b, c, d;
};

// What an algorithm was promised, and for what; kept in its opaque words.
struct Algorithm {
    uint64_t magic;
    uint64_t workspace;
    uint32_t alignments[4];
    uint64_t bias_alignment;
    uint64_t problem;  // a hash
    uint64_t pointers; // what there was beside the matrices
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

struct Call {
    Problem problem;
    const void *a, *b, *c;
    void* d;
    float alpha, beta;
};

inline DType dtype_of(int type) noexcept {
    switch (type) {
    case CUDA_R_32F:
        return DType::fp32;
    case CUDA_R_16F:
        return DType::fp16;
    case CUDA_R_16BF:
        return DType::bf16;
    case CUDA_R_8F_E4M3:
        return DType::fp8_e4m3;
    case CUDA_R_8F_E5M2:
        return DType::fp8_e5m2;
    default:
        return DType::none;
    }
}
inline bool is_fp8(int type) noexcept { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
inline bool has_bias(const Product& p) noexcept {
    return (p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}
inline bool has_gelu(const Product& p) noexcept {
    return (p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0;
}
inline bool has_vectors(const Product& p) noexcept {
    return p.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
}
// Of elements, from the first to the last.
inline int64_t extent(const Layout& x) noexcept {
    return (x.batch_count - 1) * x.batch_stride + (x.columns - 1) * x.leading + x.rows;
}
inline int type_of_bias(const Problem& x) noexcept {
    return x.p.bias_type == -1 ? static_cast<int>(x.d.type) : x.p.bias_type;
}

// By cublaslt_tables.def and the documentation's statuses; `at_call`: by cublasLtMatmul itself.
cublasStatus_t check_problem(const Problem& x, bool at_call) noexcept;
// Whether the heuristics have something for buffers that are aligned like this.
bool check_alignments(const Problem& x, const uint32_t (&alignments)[4]) noexcept;
// False, and a misuse, where the real library notices nothing, but a kernel faults or computes wrong numbers.
bool check_memory(const Call& call, const Algorithm& algorithm, const void* workspace) noexcept;
// Of everything but addresses, and which of those of scales and of a maximum there are, as bits.
uint64_t hash_of(const Problem& x) noexcept;
uint64_t pointers_of(const Product& p) noexcept;
// One misuse, in words.
void complain(const char* what) noexcept;

void compute_all(const Call& call);

} // namespace mp::simulated
