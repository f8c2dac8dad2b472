// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that backends/cuda uses, as its documentation describes them, for the
// simulated runtime: column-major products in double. Counts as misuse what the real library would
// not notice but answer with wrong numbers.
#include <cmath>
#include <cstring>
#include <cublasLt.h>

#include "numerics/codec.hpp"
#include "runtime.hpp"

namespace mp::simulated {

namespace {

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
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignments[4] = {256, 256, 256, 256};
};

// What an algorithm was promised; kept in its opaque words.
struct Algorithm {
    uint64_t magic;
    uint64_t workspace;
    uint32_t alignments[4];
    uint64_t bias_alignment;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t kMagic = 0x6d69786564707263;
constexpr uint64_t kWorkspace = uint64_t{1} << 20;

const Layout& layout(cublasLtMatrixLayout_t x) { return *reinterpret_cast<const Layout*>(x); }
Product& product(cublasLtMatmulDesc_t x) { return *reinterpret_cast<Product*>(x); }

DType dtype_of(int type) {
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

bool has_bias(const Product& p) { return (p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }

bool is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

// The documentation's tables for fp8 operands: types, transposition, multiples of 16.
bool fp8_is_supported(const Product& p, const Layout& a, const Layout& b, const Layout& c,
                      const Layout& d) {
    const bool has_e5m2 = a.type != b.type;
    if (!is_fp8(a.type) || !is_fp8(b.type) || (a.type == b.type && a.type == CUDA_R_8F_E5M2) ||
        p.trans_a != CUBLAS_OP_T || p.trans_b != CUBLAS_OP_N) {
        return false;
    }
    const bool to_fp8 = is_fp8(d.type);
    if (to_fp8 ? (c.type != CUDA_R_16BF && c.type != CUDA_R_16F) ||
                     (d.type == CUDA_R_8F_E5M2 && !has_e5m2)
               : c.type != d.type) {
        return false;
    }
    const int bias = (to_fp8 ? c.type : d.type) == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
    const bool has_vectors = p.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    if ((has_bias(p) && p.bias_type != bias) || p.mode_a != p.mode_b || (has_vectors && to_fp8) ||
        (!to_fp8 && (p.scale_d != nullptr || p.amax_d != nullptr))) {
        return false;
    }
    const int64_t size_d = dtype_size(dtype_of(d.type));
    return a.rows % 16 == 0 && a.columns % 16 == 0 && a.leading % 16 == 0 && b.leading % 16 == 0 &&
           d.leading * size_d % 16 == 0 && c.leading * dtype_size(dtype_of(c.type)) % 16 == 0;
}

// The documentation's table for CUBLAS_COMPUTE_32F with CUDA_R_32F scalars, as far as it is used.
bool types_are_supported(const Product& p, const Layout& a, const Layout& b, const Layout& c,
                         const Layout& d) {
    if (is_fp8(a.type)) {
        return p.compute == CUBLAS_COMPUTE_32F && p.scale == CUDA_R_32F &&
               fp8_is_supported(p, a, b, c, d);
    }
    if (p.compute != CUBLAS_COMPUTE_32F || p.scale != CUDA_R_32F || a.type != b.type ||
        c.type != d.type || dtype_of(a.type) == DType::none) {
        return false;
    }
    if (d.type != CUDA_R_32F && d.type != a.type) {
        return false;
    }
    // As heuristics are seen to answer: an epilogue of its own writes whole 16 bytes.
    if ((p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0 &&
        d.leading * dtype_size(dtype_of(d.type)) % 16 != 0) {
        return false;
    }
    return !has_bias(p) || p.bias_type == -1 || p.bias_type == d.type;
}

bool shapes_fit(const Product& p, const Layout& a, const Layout& b, const Layout& c,
                const Layout& d) {
    const bool ta = p.trans_a != CUBLAS_OP_N;
    const bool tb = p.trans_b != CUBLAS_OP_N;
    const int64_t m = ta ? a.columns : a.rows;
    const int64_t k = ta ? a.rows : a.columns;
    for (const Layout* x : {&a, &b, &c, &d}) {
        if (x->rows < 1 || x->columns < 1 || x->leading < x->rows ||
            x->batch_count != d.batch_count) {
            return false;
        }
    }
    return (tb ? b.columns : b.rows) == k && d.rows == m &&
           d.columns == (tb ? b.rows : b.columns) && c.rows == d.rows && c.columns == d.columns;
}

cublasStatus_t check(const Product& p, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
    if (!shapes_fit(p, a, b, c, d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return types_are_supported(p, a, b, c, d) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

double element(const void* data, const Layout& x, int64_t batch, int64_t row, int64_t column) {
    return static_cast<double>(numerics::load_as_float(
        dtype_of(x.type), data, batch * x.batch_stride + column * x.leading + row));
}

struct Call {
    Product p;
    Layout a, b, c, d;
    const void *a_data, *b_data, *c_data;
    void* d_data;
    float alpha, beta;
};

float gelu(float z) { // the tanh form
    const double x = static_cast<double>(z);
    return static_cast<float>(
        0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))));
}

void compute(const Call& call, int64_t batch, int64_t i, int64_t j) {
    const Product& p = call.p;
    const bool ta = p.trans_a != CUBLAS_OP_N;
    const bool tb = p.trans_b != CUBLAS_OP_N;
    const int64_t length = ta ? call.a.rows : call.a.columns;
    double sum = 0.0;
    for (int64_t k = 0; k < length; ++k) {
        sum += element(call.a_data, call.a, batch, ta ? k : i, ta ? i : k) *
               element(call.b_data, call.b, batch, tb ? j : k, tb ? k : j);
    }
    const bool has_vectors = p.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const float scale_a = p.scale_a == nullptr ? 1.0F : p.scale_a[has_vectors ? i : 0];
    const float scale_b = p.scale_b == nullptr ? 1.0F : p.scale_b[has_vectors ? j : 0];
    float z = call.alpha * (static_cast<float>(sum) * scale_a * scale_b);
    if (call.beta != 0.0F) {
        z += call.beta * static_cast<float>(element(call.c_data, call.c, batch, i, j));
    }
    if (has_bias(p)) {
        const int type = p.bias_type == -1 ? static_cast<int>(call.d.type) : p.bias_type;
        z += numerics::load_as_float(dtype_of(type), p.bias, i);
    }
    if ((p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
        z = gelu(z);
    }
    if (p.amax_d != nullptr) {
        const uint32_t magnitude = numerics::bits_from_float(z) & numerics::kFloatMagnitudeMask;
        if (magnitude > numerics::bits_from_float(*p.amax_d)) {
            *p.amax_d = numerics::float_from_bits(magnitude);
        }
    }
    z = p.scale_d == nullptr ? z : z * *p.scale_d;
    // Into fp8 it saturates, infinity too.
    numerics::store_from_float(dtype_of(call.d.type), call.d_data,
                               batch * call.d.batch_stride + j * call.d.leading + i, z,
                               is_fp8(call.d.type));
}

void compute_all(const Call& call) {
    if (call.p.amax_d != nullptr) {
        *call.p.amax_d = 0.0F;
    }
    for (int64_t batch = 0; batch < call.d.batch_count; ++batch) {
        for (int64_t j = 0; j < call.d.columns; ++j) {
            for (int64_t i = 0; i < call.d.rows; ++i) {
                compute(call, batch, i, j);
            }
        }
    }
}

void expect(bool is_kept) { control().misuse += is_kept ? 0 : 1; }

void expect_aligned(const void* pointer, uint64_t alignment) {
    expect(reinterpret_cast<uintptr_t>(pointer) % alignment == 0);
}

template <typename T, typename Opaque> cublasStatus_t make(Opaque** out, const T& value) {
    *out = reinterpret_cast<Opaque*>(new T(value));
    ++control().handles;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Opaque> cublasStatus_t destroy(Opaque* handle) {
    delete reinterpret_cast<T*>(handle);
    --control().handles;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t set(T& field, const void* value, std::size_t bytes) {
    if (bytes != sizeof field) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

} // namespace mp::simulated

using namespace mp::simulated;

#pragma GCC visibility push(default)
extern "C" {

size_t cublasLtGetVersion() { return CUBLAS_VER_MAJOR * 10000 + 902; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_SIMULATED"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "simulated"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    return make<int>(reinterpret_cast<int**>(handle), 0);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
    return make(out,
                Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) { return destroy<Layout>(x); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t x,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
    auto& l = *reinterpret_cast<Layout*>(x);
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(l.batch_count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(l.batch_stride, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return set(l.leading, value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    return make(out, Product{compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) { return destroy<Product>(x); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
    Product& p = product(x);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(p.trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(p.trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(p.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(p.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(p.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return set(p.scale_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return set(p.scale_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
        return set(p.scale_d, value, bytes);
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
        return set(p.amax_d, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
        return set(p.mode_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
        return set(p.mode_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
        return set(p.fast, value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
    return make(out, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) {
    return destroy<Preference>(x);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
    auto& preference = *reinterpret_cast<Preference*>(x);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(preference.alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                   value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t x, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
    *returned = 0;
    const Product& p = product(desc);
    const cublasStatus_t status = check(p, layout(a), layout(b), layout(c), layout(d));
    if (status != CUBLAS_STATUS_SUCCESS || requested < 1) {
        return status;
    }
    const auto& preference = *reinterpret_cast<const Preference*>(x);
    if ((p.epilogue & CUBLASLT_EPILOGUE_GELU) != 0 && preference.alignments[3] % 16 != 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    // Other schemes round parts of a sum to the type of the result.
    expect(preference.reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    Algorithm algorithm = {kMagic, preference.workspace < kWorkspace ? 0 : kWorkspace, {}, 1};
    std::memcpy(algorithm.alignments, preference.alignments, sizeof algorithm.alignments);
    if (has_bias(p)) {
        const auto address = reinterpret_cast<uintptr_t>(p.bias);
        expect(address != 0);
        algorithm.bias_alignment = address & (~address + 1);
    }
    results[0] = {};
    std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = algorithm.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const Call call = {product(desc),
                       layout(a_layout),
                       layout(b_layout),
                       layout(c_layout),
                       layout(d_layout),
                       a,
                       b,
                       c,
                       d,
                       *static_cast<const float*>(alpha),
                       *static_cast<const float*>(beta)};
    const cublasStatus_t status = check(call.p, call.a, call.b, call.c, call.d);
    if (status != CUBLAS_STATUS_SUCCESS || handle == nullptr) {
        return status;
    }
    Algorithm algorithm = {};
    std::memcpy(&algorithm, algo, sizeof algorithm);
    expect(algorithm.magic == kMagic);
    expect(workspace_bytes >= algorithm.workspace);
    expect(algorithm.workspace == 0 || workspace != nullptr);
    expect_aligned(a, algorithm.alignments[0]);
    expect_aligned(b, algorithm.alignments[1]);
    expect_aligned(c, algorithm.alignments[2]);
    expect_aligned(d, algorithm.alignments[3]);
    if (has_bias(call.p)) {
        expect_aligned(call.p.bias, algorithm.bias_alignment);
    }
    // Release notes of CUDA 13.0 update 2: a result over its own C must have C's layout, read or not.
    if (c == nullptr ? call.beta != 0.0F : c == d && !(call.c == call.d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const auto work = [call, workspace, bytes = algorithm.workspace] {
        if (bytes != 0) {
            std::memset(workspace, 0x5a, bytes); // it is the algorithm's to use
        }
        compute_all(call);
    };
    return enqueue(stream, work) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
#pragma GCC visibility pop
