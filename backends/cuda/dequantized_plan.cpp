// SPDX-License-Identifier: Apache-2.0
#include "cuda/dequantized_plan.hpp"

#include <new>

#include "cuda/candidates.hpp"
#include "device/gemm_scales.hpp"

namespace mp::backends::cuda {

namespace {

// One operand as stored, from its first to its last element.
struct StoredOperand {
    StoredOperand(const GemmDesc& d, const ScaleGrid& scales, DType codes, const Extent& stored,
                  int64_t leading, int64_t batch_stride)
        : grid(scales), dtype(codes), extent(stored),
          count((d.batch_count - 1) * batch_stride + (stored.rows - 1) * leading + stored.columns) {
    }
    const ScaleGrid& grid;
    DType dtype;
    Extent extent;
    int64_t count;
};

StoredOperand operand_a(const GemmDesc& d) {
    return {d, d.scale_a, d.dtype_a, stored_a(d), d.lda, d.batch_stride_a};
}
StoredOperand operand_b(const GemmDesc& d) {
    return {d, d.scale_b, d.dtype_b, stored_b(d), d.ldb, d.batch_stride_b};
}

// The product of what the operands are worth, which lie as their codes do.
GemmDesc wide(const GemmDesc& codes) {
    GemmDesc d = codes;
    d.dtype_a = d.dtype_b = is_fp8(codes.dtype_a) ? DType::bf16 : DType::fp32;
    d.scale_a = d.scale_b = {};
    return d;
}

// The whole operand, with what is between its rows.
Status dequantize(CudaDevice& device, CudaQueue& queue, const StoredOperand& from,
                  const void* codes, const void* scales, const TensorRef& to) noexcept {
    const TensorRef source = {const_cast<void*>(codes), from.count, from.dtype};
    if (!from.grid.exists()) {
        return convert(device, queue, source, to);
    }
    DequantizeDesc op{};
    op.kind = OpKind::dequantize;
    const Extent extent = from.grid.is_one() ? Extent{1, from.count} : from.extent;
    op.source = {source.data, const_cast<void*>(scales),
                 nullptr,     {from.dtype, from.grid, {}},
                 extent.rows, extent.columns};
    op.window = whole_of(op.source);
    op.destination = to;
    const Candidate& candidate = *device.candidates(OpKind::dequantize).items;
    Reason reason;
    return candidate.supports(device, op, reason)
               ? candidate.run(device, queue, op)
               : Status::error(Code::unsupported, "cuda: gemm: dequantizing an operand: %s",
                               reason.c_str());
}

std::size_t part_bytes(const StoredOperand& operand, DType dtype) {
    return static_cast<std::size_t>(operand.count * dtype_size(dtype) + 255) / 256 * 256;
}

} // namespace

void explain_dequantized(const CudaDevice& device, const GemmDesc& desc, Reason& reason) noexcept {
    if (has_coded_b(desc) || (!is_fp8(desc.dtype_a) && !has_scales(desc))) {
        reason.set("operands with scales or of fp8 only");
    } else if (is_fp8(desc.dtype_d)) {
        reason.set("no fp8 results");
    } else {
        explain_gemm(device, wide(desc), reason);
    }
}

Status DequantizedPlan::make(const CudaDevice& device, const GemmDesc& desc,
                             DequantizedPlan** out) noexcept {
    *out = nullptr;
    CublasLtPlan* product = nullptr;
    if (Status status = CublasLtPlan::make(device, wide(desc), &product); !status.ok()) {
        return status;
    }
    *out = new (std::nothrow) DequantizedPlan(desc, product);
    if (*out == nullptr) {
        delete product;
        return Status::error(Code::out_of_memory, "cuda: no memory for a gemm plan");
    }
    return {};
}

Status DequantizedPlan::run(CudaDevice& device, CudaQueue& queue,
                            const GemmBuffers& buffers) noexcept {
    const DType dtype = wide(desc_).dtype_a;
    const StoredOperand a = operand_a(desc_);
    const StoredOperand b = operand_b(desc_);
    ScratchMemory scratch(queue);
    if (Status status = scratch.take(part_bytes(a, dtype) + part_bytes(b, dtype)); !status.ok()) {
        return status;
    }
    void* wide_a = scratch.data();
    void* wide_b = static_cast<char*>(wide_a) + part_bytes(a, dtype);
    Status status =
        dequantize(device, queue, a, buffers.a, buffers.scale_a, {wide_a, a.count, dtype});
    if (status.ok()) {
        status = dequantize(device, queue, b, buffers.b, buffers.scale_b, {wide_b, b.count, dtype});
    }
    if (!status.ok()) {
        return status;
    }
    GemmBuffers values = buffers;
    values.a = wide_a;
    values.b = wide_b;
    return product_->run(device, queue, values);
}

} // namespace mp::backends::cuda
