// SPDX-License-Identifier: Apache-2.0
#include "gemm/gemm.hpp"

#include <array>
#include <cmath>
#include <cstdarg>

namespace mp {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 55;

bool is_operand(DType dtype) {
    return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

void check_dtype(const char* name, DType dtype) {
    if (!is_operand(dtype)) {
        fail(Code::invalid_dtype, "gemm: %s is %s; it must be fp32, fp16 or bf16", name,
             dtype_name(dtype));
    }
}

void check_size(const char* name, int64_t size) {
    if (size < 0 || size > kMaxElements) {
        fail(Code::invalid_shape, "gemm: %s is %lld; it must be in 0..2^55", name,
             static_cast<long long>(size));
    }
}

// Product of sizes that are each in 0..2^55; throws where a matrix or batch would not fit.
int64_t checked_product(int64_t a, int64_t b) {
    if (b != 0 && a > kMaxElements / b) {
        fail(Code::invalid_shape, "gemm: a matrix of %lld x %lld elements is larger than 2^55",
             static_cast<long long>(a), static_cast<long long>(b));
    }
    return a * b;
}

struct Layout {
    int64_t rows;
    int64_t columns;
    int64_t leading;
    int64_t batch_stride;
};

int64_t extent(const Layout& x, int64_t batch_count) {
    if (x.rows == 0 || x.columns == 0 || batch_count == 0) {
        return 0;
    }
    return (batch_count - 1) * x.batch_stride + (x.rows - 1) * x.leading + x.columns;
}

// Defaults and checks of one operand's leading dimension and batch stride.
void resolve(const char* name, int64_t rows, int64_t columns, int64_t batch_count, int64_t& leading,
             int64_t& batch_stride, bool written) {
    leading = leading == 0 ? columns : leading;
    if (leading < columns || leading > kMaxElements) {
        fail(Code::invalid_shape, "gemm: ld%s is %lld but a stored row has %lld elements", name,
             static_cast<long long>(leading), static_cast<long long>(columns));
    }
    const int64_t dense = checked_product(rows, leading);
    batch_stride = batch_stride == 0 ? dense : batch_stride;
    if (batch_stride < 0 || batch_stride > kMaxElements) {
        fail(Code::invalid_shape, "gemm: batch_stride_%s is %lld; it must be in 0..2^55", name,
             static_cast<long long>(batch_stride));
    }
    (void)checked_product(batch_stride, batch_count);
    if (written && batch_count > 1 && rows > 0 && batch_stride < (rows - 1) * leading + columns) {
        fail(Code::invalid_shape,
             "gemm: batch_stride_%s is %lld, so results would overlap; it must be at least %lld",
             name, static_cast<long long>(batch_stride),
             static_cast<long long>((rows - 1) * leading + columns));
    }
}

GemmDesc checked(GemmDesc d) {
    d.kind = OpKind::gemm;
    check_size("m", d.m);
    check_size("n", d.n);
    check_size("k", d.k);
    check_size("batch_count", d.batch_count);
    check_dtype("dtype_a", d.dtype_a);
    check_dtype("dtype_b", d.dtype_b);
    check_dtype("dtype_d", d.dtype_d);
    if (d.dtype_b != d.dtype_a) {
        fail(Code::invalid_dtype,
             "gemm: A is %s but B is %s; both must have one type (cast one with mp_tensor_cast)",
             dtype_name(d.dtype_a), dtype_name(d.dtype_b));
    }
    if (d.dtype_bias != DType::none) {
        check_dtype("dtype_bias", d.dtype_bias);
    }
    if (!std::isfinite(d.alpha) || !std::isfinite(d.beta)) {
        fail(Code::invalid_argument, "gemm: alpha is %g and beta is %g; both must be finite",
             static_cast<double>(d.alpha), static_cast<double>(d.beta));
    }
    resolve("a", d.trans_a ? d.k : d.m, d.trans_a ? d.m : d.k, d.batch_count, d.lda,
            d.batch_stride_a, false);
    resolve("b", d.trans_b ? d.n : d.k, d.trans_b ? d.k : d.n, d.batch_count, d.ldb,
            d.batch_stride_b, false);
    resolve("c", d.m, d.n, d.batch_count, d.ldc, d.batch_stride_c, false);
    resolve("d", d.m, d.n, d.batch_count, d.ldd, d.batch_stride_d, true);
    return d;
}

} // namespace

GemmPlan::GemmPlan(std::shared_ptr<Device> device, const GemmDesc& desc)
    : desc_(checked(desc)), device_(std::move(device)), choice_(select(*device_, desc_)) {
    Plan* plan = nullptr;
    check(choice_.candidate->prepare(*device_, desc_, &plan));
    plan_.reset(plan);
}

int64_t GemmPlan::extent_a() const noexcept {
    const GemmDesc& d = desc_;
    return extent({d.trans_a ? d.k : d.m, d.trans_a ? d.m : d.k, d.lda, d.batch_stride_a},
                  d.batch_count);
}

int64_t GemmPlan::extent_b() const noexcept {
    const GemmDesc& d = desc_;
    return extent({d.trans_b ? d.n : d.k, d.trans_b ? d.k : d.n, d.ldb, d.batch_stride_b},
                  d.batch_count);
}

int64_t GemmPlan::extent_c() const noexcept {
    return extent({desc_.m, desc_.n, desc_.ldc, desc_.batch_stride_c}, desc_.batch_count);
}

int64_t GemmPlan::extent_d() const noexcept {
    return extent({desc_.m, desc_.n, desc_.ldd, desc_.batch_stride_d}, desc_.batch_count);
}

void GemmPlan::run(Stream& stream, const GemmBuffers& buffers) {
    check(choice_.candidate->run_plan(*device_, stream.queue(), *plan_, buffers));
}

std::string GemmPlan::describe() const {
    std::string text = choice_.candidate->name;
    if (!choice_.passed_over.empty()) {
        text += " (passed over: " + choice_.passed_over + ")";
    }
    return text;
}

} // namespace mp
