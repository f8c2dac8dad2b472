// SPDX-License-Identifier: Apache-2.0
// gemm.h
#include "boundary.hpp"
#include "device/gemm_scales.hpp"
#include "objects.hpp"
#include "quant_format.hpp"
#include "tensor/memory_ranges.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

ScaleGrid grid_of(int32_t dtype, int32_t rows, int32_t columns, const char* name) {
    if (dtype == MP_DTYPE_NONE) {
        if (rows != 0 || columns != 0) {
            fail(Code::invalid_argument,
                 "gemm: %s is MP_DTYPE_NONE, but its blocks are %d x %d elements; say which type "
                 "the scales have, or leave the blocks 0",
                 name, rows, columns);
        }
        return {};
    }
    return {dtype_of(dtype, name), rows, columns};
}

// What D becomes where it is a quantized tensor; none: it is numbers, or codes under a factor.
Format result_of(const mp_gemm_desc& p) {
    if (p.quant_d == nullptr) {
        return {};
    }
    const Format result = format_of(dtype_of(p.dtype_d, "dtype_d"), p.quant_d);
    check_format(result, "gemm: D with quant_d");
    if (p.beta != 0.0 || p.batch_count > 1 || (p.ldd != 0 && p.ldd != p.n)) {
        fail(Code::invalid_argument,
             "gemm: quant_d is given with beta %g, batch_count %lld and ldd %lld; a quantized D is "
             "one matrix without padding, and codes are not added to: beta 0, batch_count 1, ldd 0",
             p.beta, static_cast<long long>(p.batch_count), static_cast<long long>(p.ldd));
    }
    return result;
}

GemmDesc desc_of(const mp_gemm_desc& public_desc, bool is_quantized) {
    const mp_gemm_desc& p = public_desc;
    check_flags(p.flags,
                MP_GEMM_TRANS_A | MP_GEMM_TRANS_B | MP_GEMM_BIAS | MP_GEMM_GELU |
                    MP_GEMM_HAS_ALPHA | MP_GEMM_POWER_OF_TWO_SCALES | MP_GEMM_FAST_ACCUMULATION,
                "flags");
    GemmDesc d{};
    d.m = p.m;
    d.n = p.n;
    d.k = p.k;
    d.lda = p.lda;
    d.ldb = p.ldb;
    d.ldc = p.ldc;
    d.ldd = p.ldd;
    d.batch_count = p.batch_count == 0 ? 1 : p.batch_count;
    d.batch_stride_a = p.batch_stride_a;
    d.batch_stride_b = p.batch_stride_b;
    d.batch_stride_c = p.batch_stride_c;
    d.batch_stride_d = p.batch_stride_d;
    d.alpha = (p.flags & MP_GEMM_HAS_ALPHA) != 0 ? static_cast<float>(p.alpha) : 1.0F;
    d.beta = static_cast<float>(p.beta);
    d.dtype_a = dtype_of(p.dtype_a, "dtype_a");
    d.dtype_b = any_dtype_of(p.dtype_b, "dtype_b");
    d.dtype_d =
        p.dtype_d == MP_DTYPE_NONE || is_quantized ? DType::fp32 : dtype_of(p.dtype_d, "dtype_d");
    if (p.dtype_c != MP_DTYPE_NONE && dtype_of(p.dtype_c, "dtype_c") != d.dtype_d) {
        fail(Code::invalid_dtype, "gemm: C is %s but D is %s; both must have one type",
             mp_dtype_name(p.dtype_c), dtype_name(d.dtype_d));
    }
    if ((p.flags & MP_GEMM_BIAS) != 0) {
        d.dtype_bias =
            p.dtype_bias == MP_DTYPE_NONE ? DType::fp32 : dtype_of(p.dtype_bias, "dtype_bias");
    }
    d.trans_a = (p.flags & MP_GEMM_TRANS_A) != 0;
    d.trans_b = (p.flags & MP_GEMM_TRANS_B) != 0;
    d.gelu = (p.flags & MP_GEMM_GELU) != 0;
    d.scale_a = grid_of(p.scale_a_dtype, p.scale_a_rows, p.scale_a_columns, "scale_a_dtype");
    d.scale_b = grid_of(p.scale_b_dtype, p.scale_b_rows, p.scale_b_columns, "scale_b_dtype");
    d.power_of_two_scales = (p.flags & MP_GEMM_POWER_OF_TWO_SCALES) != 0;
    d.fast_accumulation = (p.flags & MP_GEMM_FAST_ACCUMULATION) != 0;
    return d;
}

// One operand against the plan: device, dtype, and enough elements.
const Tensor& operand(const mp_tensor* handle, const char* name, const Context& context,
                      DType dtype, int64_t extent) {
    const Tensor& tensor = *object_of(handle, name);
    if (&tensor.device() != &context.stream().device()) {
        fail(Code::invalid_argument, "gemm: %s is not on the plan's device", name);
    }
    if (tensor.dtype() != dtype) {
        fail(Code::invalid_dtype, "gemm: %s is %s but the plan was made for %s", name,
             dtype_name(tensor.dtype()), dtype_name(dtype));
    }
    if (tensor.count() < extent) {
        fail(Code::invalid_shape,
             "gemm: %s is %s, %lld elements, but the plan reads or writes %lld", name,
             tensor.shape().text().c_str(), static_cast<long long>(tensor.count()),
             static_cast<long long>(extent));
    }
    return tensor;
}

// One whose elements are taken for what they are.
const Tensor& plain_operand(const mp_tensor* handle, const char* name, const Context& context,
                            DType dtype, int64_t extent) {
    const Tensor& tensor = operand(handle, name, context, dtype, extent);
    if (tensor.scales() != nullptr) {
        fail(Code::invalid_dtype,
             "gemm: %s is quantized (%s); only A and B, and D of a plan with quant_d, may be", name,
             format_text(tensor.format()).c_str());
    }
    return tensor;
}

// D of a plan with quant_d.
const Tensor& quantized_result(const mp_tensor* handle, const GemmObject& gemm) {
    const GemmDesc& desc = gemm.plan.desc();
    const Tensor& tensor = operand(handle, "d", *gemm.context, gemm.result.dtype, 0);
    if (tensor.format() != gemm.result) {
        fail(Code::invalid_dtype,
             "gemm: d is %s, but the plan's quant_d says %s, or another rule, margin or epsilon; "
             "make "
             "d with mp_tensor_create_quantized and the same desc",
             format_text(tensor.format()).c_str(), format_text(gemm.result).c_str());
    }
    if (tensor.count() != desc.m * desc.n || (desc.m > 0 && tensor.columns() != desc.n)) {
        fail(Code::invalid_shape, "gemm: d is %s; a quantized one must be [%lld, %lld]",
             tensor.shape().text().c_str(), static_cast<long long>(desc.m),
             static_cast<long long>(desc.n));
    }
    return tensor;
}

using Use = MemoryRanges::Use;

// C may be D itself, element for element, but not overlap it in any other way.
bool is_d(const GemmDesc& desc, const Tensor& c, const Tensor& d) {
    return c.data() == d.data() && desc.ldc == desc.ldd &&
           desc.batch_stride_c == desc.batch_stride_d;
}

// What the plan wants `count` elements of, or does not want: then it must be null. A null one that is wanted is
// refused where it is opened.
const void* side_data(const mp_tensor* handle, const char* name, const GemmObject& gemm,
                      DType dtype, int64_t count, MemoryRanges& ranges) {
    if (dtype == DType::none) {
        if (handle != nullptr) {
            fail(Code::invalid_argument, "gemm: %s is given but the plan has none", name);
        }
        return nullptr;
    }
    if (handle == nullptr) {
        fail(Code::null_argument,
             "gemm: %s is NULL but the plan has %lld of them; pass them by mp_gemm_run_scaled",
             name, static_cast<long long>(count));
    }
    const Tensor& tensor = plain_operand(handle, name, *gemm.context, dtype, count);
    ranges.add(name, Use::read, &tensor);
    return tensor.data();
}

// The scales of an operand: the caller's, or those that a quantized tensor has beside its codes.
const void* scale_data(const mp_tensor* handle, const char* name, const Tensor& codes,
                       const GemmObject& gemm, const ScaleGrid& grid, int64_t count,
                       MemoryRanges& ranges) {
    if (handle != nullptr || codes.scales() == nullptr) {
        return side_data(handle, name, gemm, grid.dtype, count, ranges);
    }
    const TensorScales& own = *codes.scales();
    if (own.format.grid != grid || own.scale_inv->count() != count) {
        fail(Code::invalid_argument,
             "gemm: %s is NULL, and the scales of the quantized operand (%s, %lld of them) are not "
             "those of the plan (%s for blocks of %d x %d elements, %lld); make the plan for them",
             name, format_text(own.format).c_str(), static_cast<long long>(own.scale_inv->count()),
             grid.exists() ? dtype_name(grid.dtype) : "none", grid.block_rows, grid.block_columns,
             static_cast<long long>(count));
    }
    ranges.add(name, Use::read, own.scale_inv.get());
    return own.scale_inv->data();
}

// What only an fp8 D has; `handle` may be null.
float* result_scalar(const mp_tensor* handle, const char* name, Use use, const GemmObject& gemm,
                     const Tensor& d, MemoryRanges& ranges) {
    if (handle == nullptr) {
        return nullptr;
    }
    if (!is_fp8(d.dtype()) || gemm.result.exists()) {
        fail(Code::invalid_argument,
             "gemm: %s is given but D is %s; only an fp8 D without quant_d "
             "has it",
             name, format_text(d.format()).c_str());
    }
    const Tensor& tensor = plain_operand(handle, name, *gemm.context, DType::fp32, 1);
    ranges.add(name, use, &tensor);
    return static_cast<float*>(tensor.data());
}

void run(GemmObject& gemm, mp_queue* queue, const mp_gemm_args& args) {
    if (args.reserved != 0) {
        fail(Code::invalid_argument, "gemm: args.reserved is %u; it must be 0", args.reserved);
    }
    const GemmDesc& desc = gemm.plan.desc();
    const Context& context = *gemm.context;
    const Tensor& ta = operand(args.a, "a", context, desc.dtype_a, gemm.plan.extent_a());
    const Tensor& tb = operand(args.b, "b", context, desc.dtype_b, gemm.plan.extent_b());
    const Tensor& td = gemm.result.exists() ? quantized_result(args.d, gemm)
                                            : plain_operand(args.d, "d", context, desc.dtype_d,
                                                            gemm.plan.extent_d());
    MemoryRanges ranges;
    const auto add = [&ranges](const char* name, Use use, const Tensor& elements) {
        ranges.add(name, use, elements.data(), static_cast<int64_t>(elements.bytes()));
    };
    add("a", Use::read, ta);
    add("b", Use::read, tb);
    ranges.add("d", Use::written, &td);
    GemmBuffers buffers;
    buffers.a = ta.data();
    buffers.b = tb.data();
    buffers.d = td.data();
    if ((args.bias != nullptr) != (desc.dtype_bias != DType::none)) {
        fail(Code::invalid_argument,
             args.bias != nullptr ? "gemm: bias is given but the plan has none (MP_GEMM_BIAS)"
                                  : "gemm: bias is NULL but the plan was made with MP_GEMM_BIAS");
    }
    if (args.bias != nullptr) {
        const Tensor& tensor = plain_operand(args.bias, "bias", context, desc.dtype_bias, desc.n);
        ranges.add("bias", Use::read, &tensor);
        buffers.bias = tensor.data();
    }
    if (desc.beta != 0.0F) {
        const Tensor& tensor =
            plain_operand(args.c, "c", context, desc.dtype_d, gemm.plan.extent_c());
        if (!is_d(desc, tensor, td)) {
            ranges.add("c", Use::read, &tensor);
        }
        buffers.c = tensor.data();
    }
    buffers.scale_a = scale_data(args.scale_a, "scale_a", ta, gemm, desc.scale_a,
                                 gemm.plan.scale_count_a(), ranges);
    buffers.scale_b = scale_data(args.scale_b, "scale_b", tb, gemm, desc.scale_b,
                                 gemm.plan.scale_count_b(), ranges);
    if (tb.scales() != nullptr) {
        buffers.amax_b = tb.array().amax;
    }
    buffers.multiply_d = result_scalar(args.multiply_d, "multiply_d", Use::read, gemm, td, ranges);
    buffers.amax_d = result_scalar(args.amax_d, "amax_d", Use::written, gemm, td, ranges);
    ranges.check("gemm");
    Stream& stream = stream_of(queue, context);
    if (gemm.result.exists()) {
        gemm.plan.run(stream, buffers, sink_of(td.array()));
    } else {
        gemm.plan.run(stream, buffers);
    }
}

} // namespace

mp_status mp_gemm_create(mp_context* context, const mp_gemm_desc* desc, mp_gemm** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const mp_gemm_desc known = read_struct(desc, "desc");
        const Format result = result_of(known);
        gemm::GemmPlan plan(owner->stream().shared_device(), desc_of(known, result.exists()),
                            known.implementation);
        *out = make_handle<mp_gemm>(
            std::make_shared<GemmObject>(GemmObject{owner, std::move(plan), result}));
    });
}

mp_status mp_gemm_run(mp_gemm* gemm, mp_queue* queue, const mp_tensor* a, const mp_tensor* b,
                      const mp_tensor* bias, const mp_tensor* c, mp_tensor* d) {
    return boundary([&] {
        mp_gemm_args args = MP_GEMM_ARGS_INIT;
        args.a = a;
        args.b = b;
        args.bias = bias;
        args.c = c;
        args.d = d;
        run(*object_of(gemm, "gemm"), queue, args);
    });
}

mp_status mp_gemm_run_scaled(mp_gemm* gemm, mp_queue* queue, const mp_gemm_args* args) {
    return boundary([&] { run(*object_of(gemm, "gemm"), queue, read_struct(args, "args")); });
}

mp_status mp_gemm_describe(const mp_gemm* gemm, char* buffer, size_t capacity, size_t* needed) {
    return boundary(
        [&] { copy_text(object_of(gemm, "gemm")->plan.describe(), buffer, capacity, needed); });
}

void mp_gemm_destroy(mp_gemm* gemm) { destroy_handle(gemm); }
