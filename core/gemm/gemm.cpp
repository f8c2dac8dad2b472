// SPDX-License-Identifier: Apache-2.0
#include "gemm/gemm.hpp"

#include <array>
#include <cmath>
#include <cstdarg>

#include "device/gemm_scales.hpp"
#include "quant/quantize.hpp"

namespace mp::gemm {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 55;

// Of A, of B beside codes, or of D.
void check_dtype(const char* name, DType dtype) {
    if (!is_high_precision(dtype) && !is_fp8(dtype)) {
        fail(Code::invalid_dtype,
             "gemm: %s is %s; it must be fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2", name,
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

void check_types(const GemmDesc& d) {
    check_dtype("dtype_a", d.dtype_a);
    check_dtype("dtype_d", d.dtype_d);
    if (!has_coded_b(d)) {
        check_dtype("dtype_b", d.dtype_b);
    }
    if (d.dtype_b != d.dtype_a && !has_coded_b(d) && !(is_fp8(d.dtype_a) && is_fp8(d.dtype_b))) {
        fail(Code::invalid_dtype,
             "gemm: A is %s but B is %s; both must have one type, or both be fp8, or B alone be "
             "codes (cast one with mp_tensor_cast)",
             dtype_name(d.dtype_a), dtype_name(d.dtype_b));
    }
    if (d.dtype_bias != DType::none && !is_high_precision(d.dtype_bias)) {
        fail(Code::invalid_dtype, "gemm: dtype_bias is %s; it must be fp32, fp16 or bf16",
             dtype_name(d.dtype_bias));
    }
    if (is_fp8(d.dtype_d) && d.beta != 0.0F) {
        fail(Code::invalid_argument,
             "gemm: D is %s and beta is %g, but fp8 results are not added to; set beta to 0, or "
             "make D fp32, fp16 or bf16",
             dtype_name(d.dtype_d), static_cast<double>(d.beta));
    }
}

// One operand and the grid of its scales.
struct Scaled {
    const char* name;
    DType dtype;
    const ScaleGrid& grid;
    int64_t columns;
    int64_t leading;
};

void check_scales(const Scaled& x, int64_t batch_count) {
    if (!x.grid.exists()) {
        return;
    }
    const bool is_nvfp4 = is_packed(x.dtype) && x.grid == kNvfp4Scales;
    if (x.grid.dtype != DType::fp32 && x.grid.dtype != DType::e8m0 && !is_nvfp4) {
        fail(Code::invalid_dtype, "gemm: the scales of %s are %s; they must be fp32 or e8m0",
             x.name, dtype_name(x.grid.dtype));
    }
    if (x.grid.block_rows < 0 || x.grid.block_columns < 0) {
        fail(Code::invalid_shape,
             "gemm: the scales of %s are for blocks of %d x %d elements; both must be at least 0, "
             "where 0 means all",
             x.name, x.grid.block_rows, x.grid.block_columns);
    }
    const bool is_tensor = x.grid.is_one();
    if (!is_fp8(x.dtype) && !is_packed(x.dtype) && !(x.dtype == DType::fp16 && is_tensor)) {
        fail(Code::invalid_dtype,
             "gemm: %s is %s and has scales for blocks of %d x %d elements; fp8 and fp4 codes may "
             "have any scales, fp16 codes one for the whole tensor, others none",
             x.name, dtype_name(x.dtype), x.grid.block_rows, x.grid.block_columns);
    }
    if (!is_tensor && (batch_count != 1 || x.leading != x.columns)) {
        fail(Code::unsupported,
             "gemm: %s has scales of blocks, batch_count is %lld and its rows are %lld elements "
             "apart; blocks need one product and rows without padding, %lld elements apart",
             x.name, static_cast<long long>(batch_count), static_cast<long long>(x.leading),
             static_cast<long long>(x.columns));
    }
}

void check_all_scales(const GemmDesc& d) {
    check_scales({"A", d.dtype_a, d.scale_a, d.trans_a ? d.m : d.k, d.lda}, d.batch_count);
    check_scales({"B", d.dtype_b, d.scale_b, d.trans_b ? d.k : d.n, d.ldb}, d.batch_count);
    const int64_t a = block_k_of_a(d);
    const int64_t b = has_coded_b(d) ? 0 : block_k_of_b(d);
    if (a != 0 && b != 0 && a % b != 0 && b % a != 0) {
        fail(Code::unsupported,
             "gemm: scales of A change after %lld elements of k, those of B after %lld; one "
             "number must be a multiple of the other",
             static_cast<long long>(a), static_cast<long long>(b));
    }
}

// B of has_coded_b().
void check_codes(const GemmDesc& d) {
    const int64_t columns = d.trans_b ? d.k : d.n;
    if (d.batch_count != 1 || d.ldb != columns) {
        fail(Code::unsupported,
             "gemm: B is codes of %s beside numbers, batch_count is %lld and its rows are %lld "
             "elements apart; such codes are one matrix, its rows %lld apart",
             dtype_name(d.dtype_b), static_cast<long long>(d.batch_count),
             static_cast<long long>(d.ldb), static_cast<long long>(columns));
    }
    if (is_in_blocks(d.dtype_b) && columns % type_block(d.dtype_b).elements != 0) {
        fail(Code::invalid_shape,
             "gemm: a stored row of B has %lld elements of %s; it must be a multiple of its "
             "blocks of %lld",
             static_cast<long long>(columns), dtype_name(d.dtype_b),
             static_cast<long long>(type_block(d.dtype_b).elements));
    }
}

GemmDesc checked(GemmDesc d, bool is_chosen_by_name) {
    d.kind = OpKind::gemm;
    d.is_chosen_by_name = is_chosen_by_name;
    check_size("m", d.m);
    check_size("n", d.n);
    check_size("k", d.k);
    check_size("batch_count", d.batch_count);
    check_types(d);
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
    check_all_scales(d);
    if (has_coded_b(d)) {
        check_codes(d);
    }
    return d;
}

void check_scale_pointer(const char* name, int64_t count, const void* scales) {
    if (count > 0 && scales == nullptr) {
        fail(Code::null_argument,
             "gemm: %s has %lld scales by its plan but none were given with the buffers", name,
             static_cast<long long>(count));
    }
}

} // namespace

GemmPlan::GemmPlan(std::shared_ptr<Device> device, const GemmDesc& desc, const char* implementation)
    : desc_(checked(desc, implementation != nullptr)), device_(std::move(device)),
      choice_(has_coded_b(desc_) ? find_candidate(*device_, desc_, implementation)
                                 : select(*device_, desc_, implementation)) {
    if (choice_.candidate == nullptr) {
        slabs_ = std::make_unique<SlabProduct>(device_, desc_, implementation);
        return;
    }
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

int64_t GemmPlan::scale_count_a() const noexcept {
    const GemmDesc& d = desc_;
    return d.scale_a.count(d.trans_a ? d.k : d.m, d.trans_a ? d.m : d.k);
}

int64_t GemmPlan::scale_count_b() const noexcept {
    const GemmDesc& d = desc_;
    return d.scale_b.count(d.trans_b ? d.n : d.k, d.trans_b ? d.k : d.n);
}

void GemmPlan::run(Stream& stream, const GemmBuffers& buffers) {
    check_scale_pointer("A", scale_count_a(), buffers.scale_a);
    check_scale_pointer("B", scale_count_b(), buffers.scale_b);
    if (slabs_ != nullptr) {
        slabs_->run(stream, buffers);
        return;
    }
    check(choice_.candidate->run_plan(*device_, stream.queue(), *plan_, buffers));
    const bool by_graph = stream.is_captured();
    note_write({buffers.d, extent_d(), desc_.dtype_d}, by_graph);
    note_write(buffers.amax_d, sizeof(float), by_graph);
}

void GemmPlan::run(Stream& stream, GemmBuffers buffers, const Sink& d) {
    const int64_t count = desc_.m * desc_.n;
    const Scratch exact(stream, static_cast<std::size_t>(count) * sizeof(float));
    buffers.d = exact.data();
    run(stream, buffers);
    const TensorRef numbers = {exact.data(), count, DType::fp32};
    quant::quantize_matrix(stream, plain_array(numbers, desc_.m, desc_.n), d);
}

std::string GemmPlan::describe() const {
    std::string text = slabs_ != nullptr ? slabs_->describe() : choice_.candidate->name;
    if (!choice_.passed_over.empty()) {
        text += " (passed over: " + choice_.passed_over + ")";
    }
    return text;
}

} // namespace mp::gemm
