// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm_plan.hpp"

#include <climits>
#include <initializer_list>
#include <new>

#include "cuda/candidates.hpp"
#include "cuda/error.hpp"
#include "device/gemm_scales.hpp"
#include "dtype/divide.hpp"

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

// The type a bias must have; another is converted to it.
DType bias_of(const GemmDesc& desc) noexcept {
    const Cap* cap = find_cap(desc);
    return desc.dtype_bias == DType::none || cap == nullptr ? desc.dtype_bias : cap->bias;
}

constexpr int64_t kPackedRow = 16; // elements: rows begin at multiples of 16 bytes at least
int64_t packed_row(int64_t columns) { return round_up(columns, kPackedRow); }

// The bias as cuBLASLt takes it.
GemmDesc direct(GemmDesc d) {
    d.dtype_bias = bias_of(d);
    return d;
}

// The same in memory of our own: matrices one after another, C in D's place.
GemmDesc packed(const GemmDesc& given) {
    GemmDesc d = direct(given);
    d.lda = packed_row(stored_a(d).columns);
    d.ldb = packed_row(stored_b(d).columns);
    d.ldc = d.ldd = packed_row(d.n);
    d.batch_stride_a = stored_a(d).rows * d.lda;
    d.batch_stride_b = stored_b(d).rows * d.ldb;
    d.batch_stride_c = d.batch_stride_d = d.m * d.ldd;
    return d;
}

uint32_t bytes_of(int alignment, DType dtype) noexcept {
    constexpr uint32_t kBytes[] = {256, 16};
    return alignment < 2 ? kBytes[alignment] : static_cast<uint32_t>(dtype_size(dtype));
}

// Rows of matrices at one distance, to those at another.
struct Copy {
    void* to;
    int64_t to_row, to_matrix;
    const void* from;
    int64_t from_row, from_matrix;
    Extent extent;
    DType dtype;
};

Status enqueue_copy(CudaQueue& queue, const Copy& c, int64_t count) noexcept {
    const int64_t size = dtype_size(c.dtype);
    const auto bytes = [size](int64_t elements) {
        return static_cast<std::size_t>(elements * size);
    };
    for (int64_t i = 0; i < count; ++i) {
        const cudaError_t error = cudaMemcpy2DAsync(
            static_cast<char*>(c.to) + bytes(i * c.to_matrix), bytes(c.to_row),
            static_cast<const char*>(c.from) + bytes(i * c.from_matrix), bytes(c.from_row),
            bytes(c.extent.columns), static_cast<std::size_t>(c.extent.rows),
            cudaMemcpyDeviceToDevice, queue.stream());
        if (error != cudaSuccess) {
            return cuda_status(error, "gemm");
        }
    }
    return {};
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

CublasLtPlan::CublasLtPlan(cublasLtHandle_t handle, const GemmDesc& desc) noexcept
    : given_bias_(desc.dtype_bias), direct_(handle, direct(desc)), packed_(handle, packed(desc)) {}

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
    // For aligned buffers. Others may need another algorithm, which is asked for when they come.
    Use use;
    if (Status status = plan->choose({}, use); !status.ok()) {
        delete plan;
        return status;
    }
    *out = plan;
    return {};
}

// cuBLASLt is column-major, where our row-major D is D^T = op(B)^T op(A)^T: the operands change
// places, every matrix is its own transpose, and the bias, one value for each of our columns, is one
// for each row of D^T, which is what its epilogue adds.
Status CublasLtPlan::Form::describe() noexcept {
    if (is_described) {
        return {};
    }
    const GemmDesc& d = desc;
    const cublasOperation_t first = d.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = d.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (Status status = product.describe(first, second); !status.ok()) {
        return status;
    }
    const Stored a = {d.dtype_a, stored_a(d).rows, stored_a(d).columns, d.lda, d.batch_stride_a};
    const Stored b = {d.dtype_b, stored_b(d).rows, stored_b(d).columns, d.ldb, d.batch_stride_b};
    // Where C is not read, D stands in for it.
    const bool has_c = d.beta != 0.0F;
    const Stored c = {d.dtype_d, d.m, d.n, has_c ? d.ldc : d.ldd,
                      has_c ? d.batch_stride_c : d.batch_stride_d};
    const Stored result = {d.dtype_d, d.m, d.n, d.ldd, d.batch_stride_d};
    Status status = make_layout(b, d.batch_count, &product.a);
    if (status.ok()) {
        status = make_layout(a, d.batch_count, &product.b);
    }
    if (status.ok()) {
        status = make_layout(c, d.batch_count, &product.c);
    }
    if (status.ok()) {
        status = make_layout(result, d.batch_count, &product.d);
    }
    is_described = status.ok();
    return status;
}

Status CublasLtPlan::Form::set_bias_pointer(const void* bias) noexcept {
    if (desc.dtype_bias == DType::none) {
        return {};
    }
    return product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

Status CublasLtPlan::Form::choose(Alignment alignment) noexcept {
    if (algorithms[alignment].is_known) {
        return {};
    }
    if (Status status = describe(); !status.ok()) {
        return status;
    }
    // Not read, but its alignment counts.
    const Status status = set_bias_pointer(
        reinterpret_cast<const void*>(uintptr_t{bytes_of(alignment, desc.dtype_bias)}));
    if (!status.ok()) {
        return status;
    }
    const uint32_t of_result = bytes_of(alignment, desc.dtype_d);
    return product.choose({bytes_of(alignment, desc.dtype_b), bytes_of(alignment, desc.dtype_a),
                           of_result, of_result},
                          algorithms[alignment]);
}

bool CublasLtPlan::converts_bias() const noexcept { return given_bias_ != direct_.desc.dtype_bias; }

CublasLtPlan::Alignment CublasLtPlan::alignment_of(const GemmBuffers& buffers) const noexcept {
    uintptr_t addresses = 0;
    const void* bias = converts_bias() ? nullptr : buffers.bias;
    for (const void* buffer :
         {buffers.a, buffers.b, bias, buffers.c, static_cast<const void*>(buffers.d)}) {
        addresses |= reinterpret_cast<uintptr_t>(buffer);
    }
    if (addresses % 256 == 0) {
        return k256;
    }
    return addresses % 16 == 0 ? k16 : kElement;
}

// As the buffers lie where cuBLASLt can, else packed.
Status CublasLtPlan::choose(const GemmBuffers& buffers, Use& use) noexcept {
    use = {&direct_, alignment_of(buffers)};
    Status status = direct_.choose(use.alignment);
    if (!status.ok() && direct_.algorithms[use.alignment].is_refused()) {
        use = {&packed_, k256};
        status = packed_.choose(k256);
    }
    return status;
}

CublasLtPlan::ScratchOffsets CublasLtPlan::offsets_of(const Use& use) const noexcept {
    ScratchOffsets parts;
    const auto part = [&parts](bool is_needed, int64_t elements, DType dtype) {
        const std::size_t at = parts.bytes;
        const auto bytes = static_cast<std::size_t>(elements * dtype_size(dtype));
        parts.bytes += is_needed ? (bytes + 255) / 256 * 256 : 0;
        return at;
    };
    const GemmDesc& d = packed_.desc;
    const bool is_packed = use.form == &packed_;
    parts.a = part(is_packed, d.batch_count * d.batch_stride_a, d.dtype_a);
    parts.b = part(is_packed, d.batch_count * d.batch_stride_b, d.dtype_b);
    parts.d = part(is_packed, d.batch_count * d.batch_stride_d, d.dtype_d);
    parts.bias =
        part(d.dtype_bias != DType::none && (is_packed || converts_bias()), d.n, d.dtype_bias);
    return parts;
}

Status CublasLtPlan::bring_in(CudaDevice& device, CudaQueue& queue, const Use& use, char* scratch,
                              GemmBuffers& buffers) const noexcept {
    const GemmDesc& g = direct_.desc;
    const GemmDesc& p = packed_.desc;
    const ScratchOffsets parts = offsets_of(use);
    Status status;
    if (use.form == &packed_) {
        status = enqueue_copy(queue,
                              {scratch + parts.a, p.lda, p.batch_stride_a, buffers.a, g.lda,
                               g.batch_stride_a, stored_a(g), g.dtype_a},
                              g.batch_count);
        if (status.ok()) {
            status = enqueue_copy(queue,
                                  {scratch + parts.b, p.ldb, p.batch_stride_b, buffers.b, g.ldb,
                                   g.batch_stride_b, stored_b(g), g.dtype_b},
                                  g.batch_count);
        }
        if (status.ok() && g.beta != 0.0F) {
            status = enqueue_copy(queue,
                                  {scratch + parts.d,
                                   p.ldd,
                                   p.batch_stride_d,
                                   buffers.c,
                                   g.ldc,
                                   g.batch_stride_c,
                                   {g.m, g.n},
                                   g.dtype_d},
                                  g.batch_count);
        }
        buffers.a = scratch + parts.a;
        buffers.b = scratch + parts.b;
        buffers.c = buffers.d = scratch + parts.d;
    }
    if (status.ok() && g.dtype_bias != DType::none && (use.form == &packed_ || converts_bias())) {
        status = convert(device, queue, {const_cast<void*>(buffers.bias), g.n, given_bias_},
                         {scratch + parts.bias, g.n, g.dtype_bias});
        buffers.bias = scratch + parts.bias;
    }
    return status;
}

Status CublasLtPlan::take_out(CudaQueue& queue, const void* from, void* to) const noexcept {
    const GemmDesc& g = direct_.desc;
    const GemmDesc& p = packed_.desc;
    return enqueue_copy(
        queue, {to, g.ldd, g.batch_stride_d, from, p.ldd, p.batch_stride_d, {g.m, g.n}, g.dtype_d},
        g.batch_count);
}

Status CublasLtPlan::run(CudaDevice& device, CudaQueue& queue,
                         const GemmBuffers& buffers) noexcept {
    const std::lock_guard lock(mutex_);
    Use use;
    if (Status status = choose(buffers, use); !status.ok()) {
        return status;
    }
    ScratchMemory scratch(queue);
    if (Status status = scratch.take(offsets_of(use).bytes); !status.ok()) {
        return status;
    }
    GemmBuffers brought = buffers;
    Status status = bring_in(device, queue, use, static_cast<char*>(scratch.data()), brought);
    if (status.ok()) {
        status = use.form->set_bias_pointer(brought.bias);
    }
    if (status.ok()) {
        status = use.form->product.multiply(queue, use.form->algorithms[use.alignment], brought);
    }
    return status.ok() && use.form == &packed_ ? take_out(queue, brought.d, buffers.d) : status;
}

} // namespace mp::backends::cuda
