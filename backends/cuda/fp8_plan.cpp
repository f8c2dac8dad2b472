// SPDX-License-Identifier: Apache-2.0
#include "cuda/fp8_plan.hpp"

#include <initializer_list>
#include <new>

#include "cuda/candidates.hpp"
#include "cuda/codes.hpp"
#include "cuda/error.hpp"
#include "cuda/fp8_caps.hpp"
#include "cuda/lt_addend.hpp"
#include "device/gemm_scales.hpp"
#include "dtype/divide.hpp"

namespace mp::backends::cuda {

namespace {

constexpr int64_t kMultiple = 16; // of sizes and, in bytes, of addresses and distances
constexpr int64_t kPart = 256;    // of scratch memory

bool is_even(int64_t size) { return size % kMultiple == 0; }
bool is_even(const void* address) { return is_aligned(address, kMultiple); }

} // namespace

Fp8Plan::Fp8Plan(cublasLtHandle_t handle, const GemmDesc& desc) noexcept
    : given_(desc), desc_(desc), bias_is_first_(bias_comes_first(desc)), product_(handle, desc_),
      padded_n_(round_up(desc.n, kMultiple)), padded_k_(round_up(desc.k, kMultiple)) {
    if (bias_is_first_) {
        desc_.dtype_bias = DType::none;
        desc_.beta = 1.0F;
    } else if (desc.dtype_bias != DType::none) {
        desc_.dtype_bias = fp8_bias_of(desc);
    }
}

// Only what these copies need, besides vectors, which may have to be copied for their address.
Fp8Plan::ScratchOffsets Fp8Plan::offsets_of(uint32_t copies) const noexcept {
    ScratchOffsets parts;
    const auto part = [&parts](bool is_needed, int64_t bytes) {
        const std::size_t at = parts.bytes;
        parts.bytes += is_needed ? static_cast<std::size_t>(round_up(bytes, kPart)) : 0;
        return at;
    };
    constexpr int64_t kFloat = sizeof(float);
    parts.a = part((copies & kCopyA) != 0, desc_.m * padded_k_);
    parts.b = part((copies & kCopyB) != 0, padded_n_ * padded_k_);
    parts.d = part((copies & kCopyD) != 0, desc_.m * padded_n_ * dtype_size(desc_.dtype_d));
    parts.bias = part(given_.dtype_bias != DType::none, padded_n_ * kFloat);
    parts.scale_a = part(has_vectors(desc_), desc_.m * kFloat);
    parts.scale_b = part(has_vectors(desc_), padded_n_ * kFloat);
    parts.amax = part(is_fp8(desc_.dtype_d), kFloat);
    return parts;
}

Status Fp8Plan::make(const CudaDevice& device, const GemmDesc& desc, Fp8Plan** out) noexcept {
    *out = nullptr;
    cublasLtHandle_t handle = nullptr;
    if (Status status = device.cublaslt_handle(&handle); !status.ok()) {
        return status;
    }
    auto* plan = new (std::nothrow) Fp8Plan(handle, desc);
    if (plan == nullptr) {
        return Status::error(Code::out_of_memory, "cuda: no memory for a gemm plan");
    }
    Status status = plan->describe();
    if (status.ok()) { // for aligned buffers; what others need is asked for when they come
        status = plan->choose_usable(plan->copies_for({})).status;
    }
    if (!status.ok()) {
        delete plan;
        return status;
    }
    *out = plan;
    return {};
}

// As in gemm_plan.cpp our row-major matrices change places: D^T = op(B)^T op(A)^T.
Status Fp8Plan::describe() noexcept {
    Status status = describe_product();
    const struct {
        cublasLtMatrixLayout_t* layout;
        DType dtype;
        int64_t rows, columns;
    } matrices[] = {{&product_.a, desc_.dtype_b, padded_n_, padded_k_},
                    {&product_.b, desc_.dtype_a, desc_.m, padded_k_},
                    {&product_.c, fp8_c_of(desc_), desc_.m, padded_n_},
                    {&product_.d, desc_.dtype_d, desc_.m, padded_n_}};
    for (const auto& matrix : matrices) {
        if (status.ok()) {
            status = make_layout({matrix.dtype, matrix.rows, matrix.columns, matrix.columns, 0}, 1,
                                 matrix.layout);
        }
    }
    return status;
}

Status Fp8Plan::describe_product() noexcept {
    Status status = product_.describe(CUBLAS_OP_T, CUBLAS_OP_N);
    const int8_t is_fast = desc_.fast_accumulation ? 1 : 0;
    if (status.ok()) {
        status = product_.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, is_fast);
    }
#if CUBLAS_VERSION >= 120900
    if (has_vectors(desc_)) {
        const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        for (const auto attribute :
             {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE}) {
            if (status.ok()) {
                status = product_.set(attribute, mode);
            }
        }
    }
#endif
    return status;
}

// `buffers` null: of which nothing is known but that they are aligned.
uint32_t Fp8Plan::copies_for(const GemmBuffers& buffers) const noexcept {
    const GemmDesc& d = desc_;
    const int64_t size_d = dtype_size(d.dtype_d);
    uint32_t copies = 0;
    if (d.trans_a || !is_even(d.k) || !is_even(d.lda) || !is_even(buffers.a)) {
        copies |= kCopyA;
    }
    if (!d.trans_b || !is_even(d.k) || !is_even(d.n) || !is_even(d.ldb) || !is_even(buffers.b)) {
        copies |= kCopyB;
    }
    const bool reads_c = d.beta != 0.0F && !bias_is_first_;
    const bool takes_c = !reads_c || (is_even(d.ldc * size_d) && is_even(buffers.c));
    if (!is_even(d.n) || !is_even(d.ldd * size_d) || !is_even(buffers.d) || !takes_c) {
        copies |= kCopyD;
    }
    return copies;
}

Status Fp8Plan::set_strides(uint32_t copies) noexcept {
    const GemmDesc& d = desc_;
    const bool in_scratch = (copies & kCopyD) != 0;
    const int64_t of_d = in_scratch ? padded_n_ : d.ldd;
    const struct {
        cublasLtMatrixLayout_t layout;
        int64_t stride;
    } matrices[] = {{product_.a, (copies & kCopyB) != 0 ? padded_k_ : d.ldb},
                    {product_.b, (copies & kCopyA) != 0 ? padded_k_ : d.lda},
                    {product_.c, in_scratch || bias_is_first_ || d.beta == 0.0F ? of_d : d.ldc},
                    {product_.d, of_d}};
    for (const auto& matrix : matrices) {
        const cublasStatus_t status = cublaslt().MatrixLayoutSetAttribute(
            matrix.layout, CUBLASLT_MATRIX_LAYOUT_LD, &matrix.stride, sizeof matrix.stride);
        if (status != CUBLAS_STATUS_SUCCESS) {
            return cublas_status(status, "describing a matrix");
        }
    }
    return {};
}

Status Fp8Plan::set_pointers(const GemmBuffers& buffers) noexcept {
    Status status;
    const auto set = [&](bool is_there, cublasLtMatmulDescAttributes_t attribute,
                         const void* pointer) {
        if (is_there && status.ok()) {
            status = product_.set(attribute, pointer);
        }
    };
    set(desc_.dtype_bias != DType::none, CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.bias);
    set(desc_.scale_b.exists(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, buffers.scale_b);
    set(desc_.scale_a.exists(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, buffers.scale_a);
    set(is_fp8(desc_.dtype_d), CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, buffers.multiply_d);
    set(is_fp8(desc_.dtype_d), CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, buffers.amax_d);
    return status;
}

// Where there is no algorithm for these copies, there may be one with everything in scratch memory.
Fp8Plan::Usable Fp8Plan::choose_usable(uint32_t copies) noexcept {
    constexpr uint32_t kAll = kCopyA | kCopyB | kCopyD;
    Status status = choose(copies);
    if (!status.ok() && algorithms_[copies].is_refused()) {
        copies = kAll;
        status = choose(copies);
    }
    return {status, copies};
}

Status Fp8Plan::choose(uint32_t copies) noexcept {
    Status status = set_strides(copies);
    if (!status.ok() || algorithms_[copies].is_known) {
        return status;
    }
    // Not read, but what there is, and its alignment, counts.
    GemmBuffers some;
    some.bias = some.scale_a = some.scale_b = some.multiply_d =
        reinterpret_cast<const float*>(uintptr_t{kMultiple});
    some.amax_d = reinterpret_cast<float*>(uintptr_t{kMultiple});
    status = set_pointers(some);
    constexpr auto kAligned = static_cast<uint32_t>(kMultiple);
    return status.ok()
               ? product_.choose({kAligned, kAligned, kAligned, kAligned}, algorithms_[copies])
               : status;
}

Status Fp8Plan::bring_vectors(CudaDevice& device, CudaQueue& queue, const ScratchOffsets& parts,
                              char* scratch, GemmBuffers& buffers) const noexcept {
    const GemmDesc& d = desc_;
    Status status;
    // A vector of so many elements, with zeros behind it.
    const auto bring_vector = [&](const void* from, DType given, std::size_t part, DType dtype,
                                  int64_t count, int64_t padded) -> const void* {
        if (given == dtype && count == padded && is_even(from)) {
            return from;
        }
        const auto all = static_cast<std::size_t>(padded * dtype_size(dtype));
        if (status.ok()) {
            status = cuda_status(cudaMemsetAsync(scratch + part, 0, all, queue.stream()), "gemm");
        }
        if (status.ok()) {
            status = convert(device, queue, {const_cast<void*>(from), count, given},
                             {scratch + part, count, dtype});
        }
        return scratch + part;
    };
    if (given_.dtype_bias != DType::none) {
        buffers.bias = bring_vector(buffers.bias, given_.dtype_bias, parts.bias,
                                    bias_is_first_ ? DType::fp32 : d.dtype_bias, d.n, padded_n_);
    }
    if (has_vectors(d)) {
        constexpr DType kScale = DType::fp32;
        buffers.scale_a = bring_vector(buffers.scale_a, kScale, parts.scale_a, kScale, d.m, d.m);
        buffers.scale_b =
            bring_vector(buffers.scale_b, kScale, parts.scale_b, kScale, d.n, padded_n_);
    }
    return status;
}

// Replaces what cuBLASLt does not take by copies in scratch memory.
Status Fp8Plan::bring_in(CudaDevice& device, CudaQueue& queue, uint32_t copies, char* scratch,
                         GemmBuffers& buffers) noexcept {
    const GemmDesc& d = desc_;
    const ScratchOffsets parts = offsets_of(copies);
    Status status;
    const auto arrange = [&](const void*& codes, std::size_t part, int64_t stride, bool transposed,
                             int64_t rows, int64_t padded_rows) {
        auto* destination = reinterpret_cast<uint8_t*>(scratch + part);
        if (status.ok()) {
            status = arrange_codes(device, queue,
                                   {static_cast<const uint8_t*>(codes), stride, transposed, rows,
                                    d.k, destination, padded_rows, padded_k_});
        }
        codes = destination;
    };
    if ((copies & kCopyA) != 0) {
        arrange(buffers.a, parts.a, d.lda, d.trans_a, d.m, d.m);
    }
    if ((copies & kCopyB) != 0) {
        arrange(buffers.b, parts.b, d.ldb, !d.trans_b, d.n, padded_n_);
    }
    if (status.ok()) {
        status = bring_vectors(device, queue, parts, scratch, buffers);
    }
    if (buffers.amax_d != nullptr) {
        buffers.amax_d = reinterpret_cast<float*>(scratch + parts.amax);
        if (status.ok()) {
            status = cuda_status(cudaMemsetAsync(buffers.amax_d, 0, sizeof(float), queue.stream()),
                                 "gemm");
        }
    }
    if ((copies & kCopyD) != 0) {
        const auto size = static_cast<std::size_t>(dtype_size(d.dtype_d));
        if (d.beta != 0.0F && !bias_is_first_ && status.ok()) {
            status = cuda_status(
                cudaMemcpy2DAsync(
                    scratch + parts.d, static_cast<std::size_t>(padded_n_) * size, buffers.c,
                    static_cast<std::size_t>(d.ldc) * size, static_cast<std::size_t>(d.n) * size,
                    static_cast<std::size_t>(d.m), cudaMemcpyDeviceToDevice, queue.stream()),
                "gemm");
        }
        buffers.d = scratch + parts.d;
        buffers.c = bias_is_first_ ? buffers.c : buffers.d;
    }
    return status.ok() && bias_is_first_ ? bring_addend(device, queue, copies, buffers) : status;
}

// From here on D is the product's C.
Status Fp8Plan::bring_addend(CudaDevice& device, CudaQueue& queue, uint32_t copies,
                             GemmBuffers& buffers) const noexcept {
    AddendWork work;
    work.bias = static_cast<const float*>(buffers.bias);
    work.c = static_cast<const float*>(buffers.c);
    work.c_stride = given_.ldc;
    work.beta = given_.beta;
    work.rows = given_.m;
    work.columns = given_.n;
    work.d = static_cast<float*>(buffers.d);
    work.d_stride = (copies & kCopyD) != 0 ? padded_n_ : given_.ldd;
    work.padded_columns = padded_n_;
    buffers.c = buffers.d;
    return write_addend(device, queue, work);
}

Status Fp8Plan::multiply(CudaQueue& queue, uint32_t copies, const GemmBuffers& buffers) noexcept {
    const Status status = set_pointers(buffers);
    return status.ok() ? product_.multiply(queue, algorithms_[copies], buffers) : status;
}

Status Fp8Plan::take_out(CudaQueue& queue, uint32_t copies, const GemmBuffers& from,
                         const GemmBuffers& to) noexcept {
    Status status;
    if ((copies & kCopyD) != 0) {
        const auto size = static_cast<std::size_t>(dtype_size(desc_.dtype_d));
        status = cuda_status(cudaMemcpy2DAsync(to.d, static_cast<std::size_t>(desc_.ldd) * size,
                                               from.d, static_cast<std::size_t>(padded_n_) * size,
                                               static_cast<std::size_t>(desc_.n) * size,
                                               static_cast<std::size_t>(desc_.m),
                                               cudaMemcpyDeviceToDevice, queue.stream()),
                             "gemm");
    }
    if (status.ok() && to.amax_d != nullptr) {
        status = raise_amax(queue, to.amax_d, from.amax_d);
    }
    return status;
}

Status Fp8Plan::run(CudaDevice& device, CudaQueue& queue, const GemmBuffers& buffers) noexcept {
    const std::lock_guard lock(mutex_);
    const auto [chosen, copies] = choose_usable(copies_for(buffers));
    if (!chosen.ok()) {
        return chosen;
    }
    ScratchMemory scratch(queue);
    if (Status status = scratch.take(offsets_of(copies).bytes); !status.ok()) {
        return status;
    }
    GemmBuffers brought = buffers;
    Status status = bring_in(device, queue, copies, static_cast<char*>(scratch.data()), brought);
    if (status.ok()) {
        status = multiply(queue, copies, brought);
    }
    return status.ok() ? take_out(queue, copies, brought, buffers) : status;
}

} // namespace mp::backends::cuda
