// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that backends/cuda uses, as its documentation describes them, for the simulated runtime. A call
// of cublasLtMatmul that is refused is a misuse: what the heuristics took is all that may be asked of it.
#include <atomic>
#include <cstring>
#include <iterator>
#include <utility>

#include "cublaslt.hpp"
#include "numerics/philox.hpp"

namespace mp::simulated {

namespace {

constexpr uint64_t kMagic = 0x6d69786564707263;
constexpr uint64_t kWorkspace = uint64_t{1} << 20;

template <typename T, typename Opaque> cublasStatus_t make(Opaque** out, const T& value) {
    *out = reinterpret_cast<Opaque*>(new T(value));
    ++std::atomic_ref(control().handles); // of any rank's thread
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Opaque> cublasStatus_t destroy(Opaque* handle) {
    delete reinterpret_cast<T*>(handle);
    --std::atomic_ref(control().handles);
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t set(T& field, const void* value, std::size_t bytes) {
    if (bytes != sizeof field) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

Problem problem_of(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
    const auto layout = [](cublasLtMatrixLayout_t x) {
        return *reinterpret_cast<const Layout*>(x);
    };
    return {*reinterpret_cast<const Product*>(product), layout(a), layout(b), layout(c), layout(d)};
}

// How the heuristics may say that they have nothing.
struct Refusal {
    cublasStatus_t answer;
    int found;
    cublasStatus_t state;
};
constexpr Refusal kRefusals[] = {
    {CUBLAS_STATUS_NOT_SUPPORTED, 0, CUBLAS_STATUS_SUCCESS},
    {CUBLAS_STATUS_INVALID_VALUE, 0, CUBLAS_STATUS_SUCCESS},
    {CUBLAS_STATUS_ARCH_MISMATCH, 0, CUBLAS_STATUS_SUCCESS},
    {CUBLAS_STATUS_SUCCESS, 0, CUBLAS_STATUS_SUCCESS},
    {CUBLAS_STATUS_SUCCESS, 1, CUBLAS_STATUS_NOT_SUPPORTED},
};

// By the test's seed; null: no refusal.
const Refusal* refusal() {
    LtControl& c = lt_control();
    if (c.refused_percent == 0) {
        return nullptr;
    }
    const uint64_t draw = numerics::splitmix64(c.seed++);
    if (draw % 100 >= c.refused_percent) {
        return nullptr;
    }
    ++c.refusals;
    return &kRefusals[(draw >> 32) % std::size(kRefusals)];
}

Algorithm algorithm_for(const Problem& x, const Preference& preference) {
    Algorithm algorithm = {};
    algorithm.magic = kMagic;
    algorithm.workspace = preference.workspace < kWorkspace ? 0 : kWorkspace;
    std::memcpy(algorithm.alignments, preference.alignments, sizeof algorithm.alignments);
    if (has_bias(x.p)) {
        const auto address = reinterpret_cast<uintptr_t>(x.p.bias);
        algorithm.bias_alignment = address & (~address + 1);
    }
    algorithm.problem = hash_of(x);
    algorithm.pointers = pointers_of(x.p);
    return algorithm;
}

// What cublasLtMatmul answers before it enqueues anything.
cublasStatus_t check_call(const Call& call, const Algorithm& algorithm,
                          std::size_t workspace_bytes) {
    const Problem& x = call.problem;
    if (const cublasStatus_t status = check_problem(x, true); status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    // cublasLtMatmulAlgoCheck(): the descriptors are those that the algorithm is for.
    const bool is_searched = algorithm.magic == kMagic && algorithm.problem == hash_of(x) &&
                             (pointers_of(x.p) & ~algorithm.pointers) == 0;
    const bool is_whole = call.a != nullptr && call.b != nullptr && call.d != nullptr &&
                          (call.c != nullptr || call.beta == 0.0F) &&
                          (x.p.bias != nullptr || !has_bias(x.p));
    // Release notes of CUDA 13.0 update 2: a result over its own C must have C's layout, read or not.
    const bool is_in_place = call.c == nullptr || call.c != call.d || x.c == x.d;
    return is_searched && is_whole && is_in_place && workspace_bytes >= algorithm.workspace
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

} // namespace

LtControl& lt_control() noexcept {
    static LtControl instance;
    return instance;
}

} // namespace mp::simulated

using namespace mp::simulated;

#pragma GCC visibility push(default)
extern "C" {

LtControl* mp_simulated_cublaslt() { return &lt_control(); }

size_t cublasLtGetVersion() { return CUBLAS_VER_MAJOR * 10000 + 902; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    default:
        return "CUBLAS_STATUS_SIMULATED";
    }
}
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
    auto& p = *reinterpret_cast<Product*>(x);
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
    LtControl& test = lt_control();
    ++std::atomic_ref(test.searches);
    if (test.next_answer != CUBLAS_STATUS_SUCCESS) {
        return std::exchange(test.next_answer, CUBLAS_STATUS_SUCCESS);
    }
    const Problem problem = problem_of(desc, a, b, c, d);
    const auto& preference = *reinterpret_cast<const Preference*>(x);
    // Other schemes round parts of a sum to the type of the result.
    if (preference.reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) {
        complain("sums may be rounded to the result's type");
    }
    if (has_bias(problem.p) && problem.p.bias == nullptr) {
        complain("the heuristics are not told how the bias is aligned");
    }
    const cublasStatus_t status =
        requested < 1 ? CUBLAS_STATUS_INVALID_VALUE : check_problem(problem, false);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (!check_alignments(problem, preference.alignments)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    results[0] = {};
    if (const Refusal* refused = refusal(); refused != nullptr) {
        *returned = refused->found;
        results[0].state = refused->state;
        return refused->answer;
    }
    const Algorithm algorithm = algorithm_for(problem, preference);
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
    if (handle == nullptr) {
        complain("no handle");
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    const Call call = {problem_of(desc, a_layout, b_layout, c_layout, d_layout),
                       a,
                       b,
                       c,
                       d,
                       *static_cast<const float*>(alpha),
                       *static_cast<const float*>(beta)};
    Algorithm algorithm = {};
    std::memcpy(&algorithm, algo, sizeof algorithm);
    if (const cublasStatus_t status = check_call(call, algorithm, workspace_bytes);
        status != CUBLAS_STATUS_SUCCESS) {
        complain("a product that the heuristics did not take");
        return status;
    }
    if (!check_memory(call, algorithm, workspace)) {
        return CUBLAS_STATUS_EXECUTION_FAILED; // on a device a fault of the kernel, or wrong numbers
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
