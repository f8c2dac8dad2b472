// SPDX-License-Identifier: Apache-2.0
// oneDNN's matmul primitive as implementations. The product is cut into a part for each of our threads, which oneDNN
// computes on that one thread: with threads of its own it would wait for work on the cores of ours. It does alpha, or a
// bias, into an fp32 D; whatever else there is comes from the same code as for the blocked product. fp8 operands are
// decoded to bf16 before (DecodedGemm). oneDNN may choose another order of the sum for another part, so bits depend on
// the number of threads.
#include "host/gemm/host_gemm.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>

#include "dtype/divide.hpp"
#include "host/gemm/decoded_gemm.hpp"
#include "host/gemm/line_scales.hpp"
#include "host/gemm/onednn_library.hpp"
#include "host/gemm/onednn_primitive.hpp"
#include "host/gemm/panels.hpp"
#include "host/resources/atomic_max.hpp"

namespace mp::backends::host {

namespace {

// One dimension in even parts of whole units, but for the last.
struct Cut {
    int64_t size = 0;  // of a part
    int64_t parts = 1; // of which the last may be smaller
    int64_t last = 0;

    static Cut of(int64_t extent, int64_t wanted, int64_t unit) {
        const int64_t units = divide_up(extent, unit);
        const int64_t size = std::min(extent, divide_up(units, wanted) * unit);
        const int64_t parts = divide_up(extent, size);
        return {size, parts, extent - (parts - 1) * size};
    }
};

class OnednnGemm final : public HostGemm {
  public:
    OnednnGemm(const GemmDesc& desc, int32_t threads) noexcept
        : desc_(desc), is_direct_(desc.dtype_d == DType::fp32 && desc.beta == 0.0F && !desc.gelu &&
                                  (desc.alpha == 1.0F ||
                                   (desc.alpha != 0.0F && desc.dtype_bias == DType::none))) {
        if (!is_empty()) {
            cut(threads);
        }
    }

    Status prepare() noexcept {
        return is_empty() || desc_.k == 0 ? Status()
                                          : onednn_guarded([this] { return make_primitives(); });
    }
    Status run(const Resources& with, const GemmBuffers& buffers) const noexcept override;

  private:
    struct OutputPart {
        int64_t batch, row, column, primitive;
    };

    [[nodiscard]] bool is_empty() const noexcept {
        return desc_.m == 0 || desc_.n == 0 || desc_.batch_count == 0;
    }
    [[nodiscard]] bool writes_d() const noexcept { return is_direct_ && desc_.k > 0; }
    [[nodiscard]] bool adds_bias() const noexcept {
        return writes_d() && desc_.dtype_bias != DType::none;
    }
    [[nodiscard]] int64_t parts() const noexcept {
        return desc_.batch_count * rows_.parts * columns_.parts;
    }
    void cut(int32_t threads) noexcept;
    [[nodiscard]] int64_t whole_parts(int64_t wanted) const noexcept;
    Status make_primitives();
    [[nodiscard]] OutputPart part_at(int64_t index) const noexcept;
    Status execute(const OutputPart& part, const GemmBuffers& buffers, const float* bias,
                   float* result, void* scratch) const noexcept;
    Status multiply(ThreadPool& threads, const GemmBuffers& buffers, const float* bias,
                    float* result, char* scratch) const noexcept;
    void finish(ThreadPool& threads, const GemmBuffers& buffers, const float* sums) const noexcept;

    GemmDesc desc_;
    bool is_direct_;
    Cut rows_, columns_;
    OnednnPrimitive primitives_[4]; // of the last row of parts: + 1, of the last column: + 2
    std::size_t scratch_bytes_ = 0; // of a thread
};

// oneDNN 2.6 multiplies fp32 at a third of its rate where rows of B have 3,000 elements or more (measured; not where B is
// transposed). As many for each thread.
int64_t OnednnGemm::whole_parts(int64_t wanted) const noexcept {
    constexpr int64_t kMostColumns = 1536;
    if (desc_.dtype_a != DType::fp32 || desc_.trans_b) {
        return wanted;
    }
    const int64_t columns = wanted * kMostColumns;
    return (desc_.n + columns - 1) / columns * wanted;
}

// The longer side of D; but fp32 by columns where it can be, for then no two parts pack the same of B (measured; bf16 was
// slower so, by AMX tiles). Parts are worth a thread: some ten microseconds.
void OnednnGemm::cut(int32_t threads) noexcept {
    constexpr double kWorth = 1 << 20;
    const double work = static_cast<double>(desc_.m) * static_cast<double>(desc_.n) *
                        static_cast<double>(std::max<int64_t>(desc_.k, 1));
    const auto worth = static_cast<int64_t>(std::min(work / kWorth, 1e9)) + 1;
    const int64_t wanted =
        std::min(worth, (int64_t{threads} + desc_.batch_count - 1) / desc_.batch_count);
    const bool by_columns = desc_.dtype_a == DType::fp32 && desc_.n >= 2 * 64 * wanted;
    const bool by_rows = !by_columns && desc_.m >= desc_.n;
    rows_ = Cut::of(desc_.m, by_rows ? wanted : 1, 16);
    columns_ = Cut::of(desc_.n, by_rows ? 1 : whole_parts(wanted), 64);
}

Status OnednnGemm::make_primitives() {
    const float alpha = is_direct_ ? desc_.alpha : 1.0F;
    const int64_t stride = is_direct_ ? desc_.ldd : desc_.n;
    for (int64_t i = 0; i < 4; ++i) {
        const bool is_last_row = i % 2 == 1;
        const bool is_last_column = i / 2 == 1;
        if ((is_last_row && rows_.last == rows_.size) ||
            (is_last_column && columns_.last == columns_.size)) {
            continue;
        }
        primitives_[i].make(desc_, is_last_row ? rows_.last : rows_.size,
                            is_last_column ? columns_.last : columns_.size, stride, alpha,
                            adds_bias());
        scratch_bytes_ = std::max(scratch_bytes_, primitives_[i].scratch_bytes());
    }
    return {};
}

OnednnGemm::OutputPart OnednnGemm::part_at(int64_t index) const noexcept {
    const int64_t row = index / columns_.parts % rows_.parts;
    const int64_t column = index % columns_.parts;
    const bool is_last_row = row + 1 == rows_.parts && rows_.last != rows_.size;
    const bool is_last_column = column + 1 == columns_.parts && columns_.last != columns_.size;
    return {index / columns_.parts / rows_.parts, row * rows_.size, column * columns_.size,
            (is_last_row ? 1 : 0) + (is_last_column ? 2 : 0)};
}

Status OnednnGemm::execute(const OutputPart& part, const GemmBuffers& buffers, const float* bias,
                           float* result, void* scratch) const noexcept {
    const GemmDesc& d = desc_;
    const auto at = [](const void* data, int64_t element, DType dtype) {
        return static_cast<const char*>(data) + element * dtype_size(dtype);
    };
    const int64_t a = part.batch * d.batch_stride_a + part.row * (d.trans_a ? 1 : d.lda);
    const int64_t b = part.batch * d.batch_stride_b + part.column * (d.trans_b ? d.ldb : 1);
    const int64_t to = is_direct_ ? part.batch * d.batch_stride_d + part.row * d.ldd + part.column
                                  : (part.batch * d.m + part.row) * d.n + part.column;
    return onednn_guarded([&] {
        primitives_[part.primitive].execute(
            at(buffers.a, a, d.dtype_a), at(buffers.b, b, d.dtype_b),
            bias != nullptr ? bias + part.column : nullptr, result + to, scratch);
        return Status();
    });
}

// Returns one of the failures.
Status OnednnGemm::multiply(ThreadPool& threads, const GemmBuffers& buffers, const float* bias,
                            float* result, char* scratch) const noexcept {
    std::mutex mutex;
    Status failed;
    threads.for_each_on(parts(), [&](int64_t index, int32_t thread) {
        const Status status = execute(part_at(index), buffers, bias, result,
                                      scratch + static_cast<std::size_t>(thread) * scratch_bytes_);
        if (!status.ok()) {
            const std::lock_guard<std::mutex> lock(mutex);
            failed = status;
        }
    });
    return failed;
}

void OnednnGemm::finish(ThreadPool& threads, const GemmBuffers& buffers,
                        const float* sums) const noexcept {
    const GemmDesc& d = desc_;
    const PanelTable& table = active_panel_table();
    const int64_t strips = divide_up(d.n, kFinishColumns);
    const auto strip = [&](int64_t i) {
        const int64_t batch = i / strips / d.m;
        const int64_t row = i / strips % d.m;
        const int64_t column = i % strips * kFinishColumns;
        FinishJob job = finish_job(d, buffers, batch, row, column);
        job.sums = sums + (batch * d.m + row) * d.n + column;
        job.stride = d.n;
        job.rows = 1;
        job.columns = std::min(kFinishColumns, d.n - column);
        table.finish(job);
        raise_amax(buffers.amax_d, job.amax);
    };
    threads.for_each(d.batch_count * d.m * strips, strip, 16);
}

// Scratch: oneDNN's own for each thread, then the bias as fp32 or the sums.
Status OnednnGemm::run(const Resources& with, const GemmBuffers& buffers) const noexcept {
    if (is_empty()) {
        return {};
    }
    const bool widens_bias = adds_bias() && desc_.dtype_bias != DType::fp32;
    const int64_t more =
        writes_d() ? (widens_bias ? desc_.n : 0) : desc_.batch_count * desc_.m * desc_.n;
    const auto parts_at_once = std::min<int64_t>(with.threads.threads(), parts());
    const std::size_t own = static_cast<std::size_t>(parts_at_once) * scratch_bytes_;
    ScratchPool::Lease lease;
    const Status status =
        with.scratch.take(own + static_cast<std::size_t>(more) * sizeof(float), lease);
    if (!status.ok()) {
        return status;
    }
    auto* const scratch = static_cast<char*>(lease.data());
    auto* floats = reinterpret_cast<float*>(scratch + own);
    const auto* bias = adds_bias() ? static_cast<const float*>(buffers.bias) : nullptr;
    if (widens_bias) {
        active_panel_table().widen(desc_.dtype_bias, buffers.bias, desc_.n, floats);
        bias = floats;
    }
    if (writes_d()) {
        return multiply(with.threads, buffers, bias, static_cast<float*>(buffers.d), scratch);
    }
    if (desc_.k == 0) {
        std::memset(floats, 0, static_cast<std::size_t>(more) * sizeof(float));
    } else if (const Status done = multiply(with.threads, buffers, nullptr, floats, scratch);
               !done.ok()) {
        return done;
    }
    finish(with.threads, buffers, floats);
    return {};
}

Status make(const GemmDesc& op, int32_t threads, std::unique_ptr<HostGemm>& out) noexcept {
    std::unique_ptr<OnednnGemm> plan(new (std::nothrow) OnednnGemm(op, threads));
    if (plan == nullptr) {
        return Status::error(Code::out_of_memory, "oneDNN: no memory for a gemm plan");
    }
    const Status status = plan->prepare();
    if (status.ok()) {
        out = std::move(plan);
    }
    return status;
}

Status make_bf16(const GemmDesc& op, int32_t threads, std::unique_ptr<HostGemm>& out) noexcept {
    return is_fp8(op.dtype_a) ? DecodedGemm::make(op, threads, make, out) : make(op, threads, out);
}

bool supports(const GemmDesc& op, DType wanted, bool (*has_kernel_for)(), Reason& reason) noexcept {
    const bool decodes = wanted == DType::bf16 && is_fp8(op.dtype_a) && is_fp8(op.dtype_b);
    if (!decodes && (op.dtype_a != wanted || op.dtype_b != wanted)) {
        const bool is_a = op.dtype_a != wanted;
        reason.set("%s is %s; this multiplies %s only", is_a ? "A" : "B",
                   dtype_name(is_a ? op.dtype_a : op.dtype_b), dtype_name(wanted));
        return false;
    }
    if (!onednn_library().is_usable) {
        reason.set("%.250s", onednn_library().reason.c_str());
        return false;
    }
    if (!has_kernel_for()) {
        reason.set("oneDNN has no %s kernel for this processor", dtype_name(wanted));
        return false;
    }
    // Its planning divides by zero beyond them.
    if (std::max({op.m, op.n, op.k}) > std::numeric_limits<int32_t>::max()) {
        reason.set("m, n and k are %lld, %lld and %lld; oneDNN takes sizes below 2^31",
                   static_cast<long long>(op.m), static_cast<long long>(op.n),
                   static_cast<long long>(op.k));
        return false;
    }
    if (decodes) {
        return has_common_results(op, reason) && DecodedGemm::takes(op, reason);
    }
    return has_common_results(op, reason);
}

template <dnnl::memory::data_type kType> bool has_kernel_once() noexcept {
    static const bool has = has_onednn_kernel(kType);
    return has;
}

bool supports_fp32(const GemmDesc& op, Reason& reason) noexcept {
    return supports(op, DType::fp32, has_kernel_once<dnnl::memory::data_type::f32>, reason);
}

bool supports_bf16(const GemmDesc& op, Reason& reason) noexcept {
    return supports(op, DType::bf16, has_kernel_once<dnnl::memory::data_type::bf16>, reason);
}

const char* isa_name(dnnl_cpu_isa_t isa) {
    switch (isa) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "another instruction set";
    }
}

} // namespace

const GemmImplementation kOnednnFp32 = {"onednn_fp32", supports_fp32, make};
const GemmImplementation kOnednnBf16 = {"onednn_bf16", supports_bf16, make_bf16};

OnednnFeatures onednn_features() noexcept {
    OnednnFeatures features;
    features.is_there = onednn_library().is_usable;
    features.has_amx =
        features.is_there && dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_avx512_core_amx;
    return features;
}

void describe_onednn(TextLine<512>& text) noexcept {
    if (!onednn_library().is_usable) {
        text = onednn_library().reason;
        return;
    }
    const dnnl_version_t* version = dnnl_version();
    text.set("oneDNN %d.%d.%d, %s", version->major, version->minor, version->patch,
             isa_name(dnnl_get_effective_cpu_isa()));
}

} // namespace mp::backends::host
