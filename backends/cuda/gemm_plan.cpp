// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm_plan.hpp"

#include <climits>
#include <initializer_list>
#include <new>

#include "interface/gemm_scales.hpp"

namespace mp::backends::cuda {

namespace {

struct Cap {
    DType input;
    DType output;
    DType bias;
    int32_t capability;
};

constexpr Cap kCaps[] = {
#define X(input, output, bias, capability) {DType::input, DType::output, DType::bias, capability},
#include "cuda/gemm_caps.def"
#undef X
};

const Cap* find_cap(const GemmDesc& desc) noexcept {
    for (const Cap& cap : kCaps) {
        if (cap.input == desc.dtype_a && cap.input == desc.dtype_b && cap.output == desc.dtype_d) {
            return &cap;
        }
    }
    return nullptr;
}

} // namespace

void explain_gemm(const CudaDevice& device, const GemmDesc& desc, Reason& reason) noexcept {
    const Cap* cap = find_cap(desc);
    if (has_scales(desc)) {
        reason.set("operands without scales only");
        return;
    }
    if (cap == nullptr) {
        reason.set("no %s x %s into %s", dtype_name(desc.dtype_a), dtype_name(desc.dtype_b),
                   dtype_name(desc.dtype_d));
        return;
    }
    if (device.compute_capability() < cap->capability) {
        reason.set("%s needs compute capability %d.%d", dtype_name(desc.dtype_a),
                   static_cast<int>(cap->capability / 10), static_cast<int>(cap->capability % 10));
        return;
    }
    if (desc.dtype_bias != DType::none && desc.dtype_bias != cap->bias) {
        reason.set("with %s results the bias must be %s, not %s", dtype_name(desc.dtype_d),
                   dtype_name(cap->bias), dtype_name(desc.dtype_bias));
        return;
    }
    for (const int64_t size : {desc.m, desc.n, desc.k, desc.batch_count}) {
        if (size == 0) {
            reason.set("no empty products");
            return;
        }
    }
    for (const int64_t size :
         {desc.m, desc.n, desc.k, desc.batch_count, desc.lda, desc.ldb, desc.ldc, desc.ldd}) {
        if (size > INT_MAX) {
            reason.set("sizes and strides of rows are below 2^31, not %lld",
                       static_cast<long long>(size));
            return;
        }
    }
    if (!cublaslt().is_there()) {
        reason.set("%s", cublaslt().reason.c_str());
    }
}

Status CublasLtPlan::make(const CudaDevice& device, const GemmDesc& desc,
                          CublasLtPlan** out) noexcept {
    *out = nullptr;
    cublasLtHandle_t handle = nullptr;
    if (Status status = device.cublaslt_handle(&handle); !status.ok()) {
        return status;
    }
    auto* plan = new (std::nothrow) CublasLtPlan(handle, desc);
    if (plan == nullptr) {
        return Status::error(Code::out_of_memory, "cuda: no memory for a gemm plan");
    }
    Status status = plan->describe();
    // Both ends of what buffers may come later; what lies between is asked for when it comes.
    for (const Alignment alignment : {k256, kElement}) {
        if (status.ok()) {
            status = plan->choose(alignment);
        }
    }
    if (!status.ok()) {
        delete plan;
        return status;
    }
    *out = plan;
    return {};
}

// cuBLASLt is column-major, where our row-major D is D^T = op(B)^T op(A)^T: the operands change
// places, every matrix is its own transpose, and the bias, one value for each of our columns, is one
// for each row of D^T, which is what its epilogue adds.
Status CublasLtPlan::describe() noexcept {
    const GemmDesc& d = desc_;
    const cublasOperation_t first = d.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = d.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (Status status = product_.describe(first, second); !status.ok()) {
        return status;
    }
    const Stored a = {d.dtype_a, d.trans_a ? d.k : d.m, d.trans_a ? d.m : d.k, d.lda,
                      d.batch_stride_a};
    const Stored b = {d.dtype_b, d.trans_b ? d.n : d.k, d.trans_b ? d.k : d.n, d.ldb,
                      d.batch_stride_b};
    // Where C is not read, D stands in for it.
    const bool has_c = d.beta != 0.0F;
    const Stored c = {d.dtype_d, d.m, d.n, has_c ? d.ldc : d.ldd,
                      has_c ? d.batch_stride_c : d.batch_stride_d};
    const Stored result = {d.dtype_d, d.m, d.n, d.ldd, d.batch_stride_d};
    Status status = make_layout(b, d.batch_count, &product_.a);
    if (status.ok()) {
        status = make_layout(a, d.batch_count, &product_.b);
    }
    if (status.ok()) {
        status = make_layout(c, d.batch_count, &product_.c);
    }
    if (status.ok()) {
        status = make_layout(result, d.batch_count, &product_.d);
    }
    return status;
}

Status CublasLtPlan::set_bias_pointer(const void* bias) noexcept {
    if (desc_.dtype_bias == DType::none) {
        return {};
    }
    return product_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

uint32_t CublasLtPlan::bytes_of(Alignment alignment, DType dtype) const noexcept {
    switch (alignment) {
    case k256:
        return 256;
    case k16:
        return 16;
    default:
        return static_cast<uint32_t>(dtype_size(dtype));
    }
}

CublasLtPlan::Alignment CublasLtPlan::alignment_of(const GemmBuffers& buffers) const noexcept {
    uintptr_t addresses = 0;
    for (const void* buffer :
         {buffers.a, buffers.b, buffers.bias, buffers.c, static_cast<const void*>(buffers.d)}) {
        addresses |= reinterpret_cast<uintptr_t>(buffer);
    }
    if (addresses % 256 == 0) {
        return k256;
    }
    return addresses % 16 == 0 ? k16 : kElement;
}

Status CublasLtPlan::choose(Alignment alignment) noexcept {
    LtAlgorithm& chosen = algorithms_[alignment];
    if (chosen.is_known) {
        return {};
    }
    // Not read, but its alignment counts.
    const Status status = set_bias_pointer(
        reinterpret_cast<const void*>(uintptr_t{bytes_of(alignment, desc_.dtype_bias)}));
    if (!status.ok()) {
        return status;
    }
    const uint32_t of_result = bytes_of(alignment, desc_.dtype_d);
    return product_.choose({bytes_of(alignment, desc_.dtype_b), bytes_of(alignment, desc_.dtype_a),
                            of_result, of_result},
                           chosen);
}

Status CublasLtPlan::run(CudaQueue& queue, const GemmBuffers& buffers) noexcept {
    const std::lock_guard lock(mutex_);
    const Alignment alignment = alignment_of(buffers);
    Status status = choose(alignment);
    if (status.ok()) {
        status = set_bias_pointer(buffers.bias);
    }
    return status.ok() ? product_.multiply(queue, algorithms_[alignment], buffers) : status;
}

} // namespace mp::backends::cuda
