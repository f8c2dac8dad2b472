// SPDX-License-Identifier: Apache-2.0
// A plain call of cuBLASLt, with the first algorithm of its heuristics. Opened at run time as the CUDA module opens it.
#include <memory>
#include <stdexcept>

#include "array.hpp"
#include "cuda/cublaslt.hpp"
#include "raw_gemm.hpp"
#include "report.hpp"

namespace mp_bench {
namespace {

using mp::backends::cuda::cublaslt;

void require(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw std::runtime_error(cublaslt().GetStatusName(status));
    }
}

cudaDataType_t type_of(int32_t dtype) {
    switch (dtype) {
    case MP_DTYPE_FP32:
        return CUDA_R_32F;
    case MP_DTYPE_FP16:
        return CUDA_R_16F;
    case MP_DTYPE_BF16:
        return CUDA_R_16BF;
    default:
        return CUDA_R_8F_E4M3;
    }
}

// A stream that every device has, and a queue to wait for it with.
void* const kStream = reinterpret_cast<void*>(1); // cudaStreamLegacy

class Call {
  public:
    Call(mp_context* context, const GemmShape& s)
        : workspace_(context, kWorkspace), a_(make_numbers(context, s.dtype, {s.m * s.k})),
          b_(make_numbers(context, s.dtype, {s.k * s.n})),
          d_(make_tensor(context, MP_DTYPE_FP32, {s.m * s.n})) {
        check(mp_queue_wrap_native(context, &kStream, &queue_));
        require(cublaslt().Create(&handle_));
        require(cublaslt().MatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        // Column-major: D^T = op(B)^T op(A)^T, each matrix its own transpose.
        const cublasOperation_t first = s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
        const cublasOperation_t second = s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
        require(cublaslt().MatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                                  sizeof first));
        require(cublaslt().MatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                                  sizeof second));
        const cudaDataType_t type = type_of(s.dtype);
        layout(first_, type, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n);
        layout(second_, type, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k);
        layout(result_, CUDA_R_32F, s.m, s.n);
        choose();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
        for (cublasLtMatrixLayout_t made : {first_, second_, result_}) {
            if (made != nullptr) {
                (void)cublaslt().MatrixLayoutDestroy(made);
            }
        }
        if (product_ != nullptr) {
            (void)cublaslt().MatmulDescDestroy(product_);
        }
        if (handle_ != nullptr) {
            (void)cublaslt().Destroy(handle_);
        }
        mp_queue_destroy(queue_);
        for (mp_tensor* tensor : {a_, b_, d_}) {
            mp_tensor_destroy(tensor);
        }
    }

    void run() const {
        const float one = 1.0F;
        const float zero = 0.0F;
        require(cublaslt().Matmul(handle_, product_, &one, memory(b_), first_, memory(a_), second_,
                                  &zero, memory(d_), result_, memory(d_), result_, &algorithm_,
                                  workspace_.data(), kWorkspace,
                                  static_cast<cudaStream_t>(kStream)));
    }
    void wait() const { check(mp_queue_sync(queue_)); }

  private:
    static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
    static constexpr uint32_t kReduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

    static void* memory(const mp_tensor* tensor) {
        void* data = nullptr;
        check(mp_tensor_get_data(tensor, &data));
        return data;
    }
    static void layout(cublasLtMatrixLayout_t& out, cudaDataType_t type, int64_t rows,
                       int64_t columns) {
        require(cublaslt().MatrixLayoutCreate(&out, type, static_cast<uint64_t>(columns),
                                              static_cast<uint64_t>(rows), columns));
    }
    void choose() {
        cublasLtMatmulPreference_t preference = nullptr;
        require(cublaslt().MatmulPreferenceCreate(&preference));
        const std::size_t most = kWorkspace;
        cublasLtMatmulHeuristicResult_t best = {};
        int found = 0;
        cublasStatus_t status = cublaslt().MatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
        if (status == CUBLAS_STATUS_SUCCESS) { // parts of sums stay fp32, as ours do
            status = cublaslt().MatmulPreferenceSetAttribute(
                preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kReduction,
                sizeof kReduction);
        }
        if (status == CUBLAS_STATUS_SUCCESS) {
            status = cublaslt().MatmulAlgoGetHeuristic(handle_, product_, first_, second_, result_,
                                                       result_, preference, 1, &best, &found);
        }
        (void)cublaslt().MatmulPreferenceDestroy(preference);
        require(status);
        require(found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : best.state);
        algorithm_ = best.algo;
    }

    Array workspace_;
    mp_tensor* a_;
    mp_tensor* b_;
    mp_tensor* d_;
    mp_queue* queue_ = nullptr;
    cublasLtHandle_t handle_ = nullptr;
    cublasLtMatmulDesc_t product_ = nullptr;
    cublasLtMatrixLayout_t first_ = nullptr;
    cublasLtMatrixLayout_t second_ = nullptr;
    cublasLtMatrixLayout_t result_ = nullptr;
    cublasLtMatmulAlgo_t algorithm_ = {};
};

} // namespace

RawGemm raw_gemm_cuda(mp_context* context, const GemmShape& shape) {
    RawGemm raw = {"cuBLASLt", {}, {}};
    if (!cublaslt().is_there()) {
        return raw;
    }
    try {
        const auto call = std::make_shared<Call>(context, shape);
        call->run(); // some refuse here only
        raw.run = [call] { call->run(); };
        raw.wait = [call] { call->wait(); };
    } catch (const std::runtime_error&) {
        // fp8 that is not A times B transposed, say
    }
    return raw;
}

} // namespace mp_bench
