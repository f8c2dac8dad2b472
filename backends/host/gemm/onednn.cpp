// SPDX-License-Identifier: Apache-2.0
// oneDNN's matmul primitive as implementations: the whole product at once, on its own use of OpenMP. It
// does alpha, or a bias, into an fp32 D; whatever else there is comes from the same code as for the
// blocked product. fp8 operands are decoded to bf16 before (DecodedGemm). Where it cuts k among threads, bits depend on
// their number.
#include "host/gemm/host_gemm.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <unordered_map>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "host/gemm/decoded_gemm.hpp"
#include "host/gemm/line_scales.hpp"
#include "host/gemm/onednn_library.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host {

namespace {

using dnnl::memory;

// oneDNN asks how many threads the caller may use, both when it makes a primitive and when it runs one.
class ThreadScope {
  public:
    explicit ThreadScope(int32_t threads) : before_(omp_get_max_threads()) {
        omp_set_num_threads(threads);
    }
    ThreadScope(const ThreadScope&) = delete;
    ThreadScope& operator=(const ThreadScope&) = delete;
    ~ThreadScope() { omp_set_num_threads(before_); }

  private:
    int before_;
};

const dnnl::engine& cpu_engine() {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
}

Status to_status(const dnnl::error& error) noexcept {
    if (error.status == dnnl_out_of_memory) {
        return Status::error(Code::out_of_memory, "oneDNN: no memory for a matmul");
    }
    return Status::error(error.status == dnnl_unimplemented ? Code::unsupported
                                                            : Code::onednn_error,
                         "oneDNN: %s (status %d)", error.what(), static_cast<int>(error.status));
}

// Calls body(), which may throw what oneDNN throws.
template <class Body> Status guarded(const Body& body) noexcept {
    try {
        return body();
    } catch (const dnnl::error& error) {
        return to_status(error);
    } catch (const std::exception& error) {
        return Status::error(Code::out_of_memory, "oneDNN: %s", error.what());
    }
}

memory::desc operand(const GemmDesc& d, int64_t rows, int64_t columns, int64_t batch_stride,
                     int64_t stride, bool transposed, memory::data_type type) {
    return {{d.batch_count, rows, columns},
            type,
            {batch_stride, transposed ? 1 : stride, transposed ? stride : 1}};
}

// Members of a batch are one behind the other where the caller gave no more than one.
int64_t batch_stride(const GemmDesc& d, int64_t stride, int64_t rows, int64_t row_stride) {
    return d.batch_count == 1 ? rows * row_stride : stride;
}

class OnednnGemm final : public HostGemm {
  public:
    OnednnGemm(const GemmDesc& desc, int32_t threads) noexcept
        : desc_(desc), threads_(threads),
          is_direct_(desc.dtype_d == DType::fp32 && desc.beta == 0.0F && !desc.gelu &&
                     (desc.alpha == 1.0F || desc.dtype_bias == DType::none)) {}

    Status prepare() noexcept {
        return is_empty() || desc_.k == 0 ? Status() : guarded([this] { return make_primitive(); });
    }
    Status run(ScratchPool& pool, const GemmBuffers& buffers) const noexcept override;

  private:
    [[nodiscard]] bool is_empty() const noexcept {
        return desc_.m == 0 || desc_.n == 0 || desc_.batch_count == 0;
    }
    [[nodiscard]] bool writes_d() const noexcept { return is_direct_ && desc_.k > 0; }
    [[nodiscard]] bool adds_bias() const noexcept {
        return writes_d() && desc_.dtype_bias != DType::none;
    }
    Status make_primitive();
    Status execute(const GemmBuffers& buffers, const float* bias, float* result,
                   void* scratch) const;
    void finish(const GemmBuffers& buffers, const float* sums) const noexcept;

    GemmDesc desc_;
    int32_t threads_;
    bool is_direct_;
    memory::desc a_, b_, d_, bias_, scratch_;
    dnnl::matmul primitive_;
};

Status OnednnGemm::make_primitive() {
    const GemmDesc& d = desc_;
    const ThreadScope scope(threads_);
    const auto type = d.dtype_a == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    a_ = operand(d, d.m, d.k, batch_stride(d, d.batch_stride_a, d.trans_a ? d.k : d.m, d.lda),
                 d.lda, d.trans_a, type);
    b_ = operand(d, d.k, d.n, batch_stride(d, d.batch_stride_b, d.trans_b ? d.n : d.k, d.ldb),
                 d.ldb, d.trans_b, type);
    const int64_t stride_d = is_direct_ ? d.ldd : d.n;
    d_ =
        operand(d, d.m, d.n, is_direct_ ? batch_stride(d, d.batch_stride_d, d.m, d.ldd) : d.m * d.n,
                stride_d, false, memory::data_type::f32);
    bias_ = memory::desc({1, 1, d.n}, memory::data_type::f32, memory::dims{d.n, d.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (is_direct_ && d.alpha != 1.0F) {
        attributes.set_output_scales(0, {d.alpha});
    }
    const dnnl::matmul::primitive_desc chosen(adds_bias() ? dnnl::matmul::desc(a_, b_, bias_, d_)
                                                          : dnnl::matmul::desc(a_, b_, d_),
                                              attributes, cpu_engine());
    scratch_ = chosen.scratchpad_desc();
    primitive_ = dnnl::matmul(chosen);
    return {};
}

Status OnednnGemm::execute(const GemmBuffers& buffers, const float* bias, float* result,
                           void* scratch) const {
    const ThreadScope scope(threads_);
    const dnnl::engine& engine = cpu_engine();
    dnnl::stream stream(engine);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, memory(a_, engine, const_cast<void*>(buffers.a))},
        {DNNL_ARG_WEIGHTS, memory(b_, engine, const_cast<void*>(buffers.b))},
        {DNNL_ARG_DST, memory(d_, engine, result)},
        {DNNL_ARG_SCRATCHPAD, memory(scratch_, engine, scratch)}};
    if (adds_bias()) {
        arguments.emplace(DNNL_ARG_BIAS, memory(bias_, engine, const_cast<float*>(bias)));
    }
    primitive_.execute(stream, arguments);
    stream.wait();
    return {};
}

void OnednnGemm::finish(const GemmBuffers& buffers, const float* sums) const noexcept {
    const GemmDesc& d = desc_;
    const PanelTable& table = active_panel_table();
    const int64_t strips = (d.n + kFinishColumns - 1) / kFinishColumns;
    const int64_t jobs = d.batch_count * d.m * strips;
#pragma omp parallel for num_threads(threads_) schedule(static) if (jobs > 16)
    for (int64_t i = 0; i < jobs; ++i) {
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
    }
}

// Scratch: oneDNN's own, then the bias as fp32 or the sums.
Status OnednnGemm::run(ScratchPool& pool, const GemmBuffers& buffers) const noexcept {
    if (is_empty()) {
        return {};
    }
    const bool widens_bias = adds_bias() && desc_.dtype_bias != DType::fp32;
    const int64_t more =
        writes_d() ? (widens_bias ? desc_.n : 0) : desc_.batch_count * desc_.m * desc_.n;
    const std::size_t own = desc_.k == 0 ? 0 : (scratch_.get_size() + 63) / 64 * 64;
    ScratchPool::Lease lease;
    const Status status = pool.take(own + static_cast<std::size_t>(more) * sizeof(float), lease);
    if (!status.ok()) {
        return status;
    }
    auto* floats = reinterpret_cast<float*>(static_cast<char*>(lease.data()) + own);
    const auto* bias = static_cast<const float*>(buffers.bias);
    if (widens_bias) {
        active_panel_table().widen(desc_.dtype_bias, buffers.bias, desc_.n, floats);
        bias = floats;
    }
    if (writes_d()) {
        return guarded(
            [&] { return execute(buffers, bias, static_cast<float*>(buffers.d), lease.data()); });
    }
    if (desc_.k == 0) {
        std::memset(floats, 0, static_cast<std::size_t>(more) * sizeof(float));
    } else {
        const Status done =
            guarded([&] { return execute(buffers, nullptr, floats, lease.data()); });
        if (!done.ok()) {
            return done;
        }
    }
    finish(buffers, floats);
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

// Whether oneDNN has a kernel for this type here, other than its reference one.
bool has_kernel(memory::data_type type) noexcept {
    const Status status = guarded([type] {
        const memory::desc a({64, 64}, type, memory::dims{64, 1});
        const memory::desc d({64, 64}, memory::data_type::f32, memory::dims{64, 1});
        const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, a, d), cpu_engine());
        return std::strncmp(chosen.impl_info_str(), "ref", 3) == 0
                   ? Status::error(Code::unsupported, "only the reference kernel")
                   : Status();
    });
    return status.ok();
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
    if (decodes) {
        return has_common_results(op, reason) && DecodedGemm::takes(op, reason);
    }
    // Its matmul wants strides at least as long as the rows, and no operand twice in a batch.
    if (op.batch_count > 1 && (op.batch_stride_a == 0 || op.batch_stride_b == 0)) {
        reason.set("members of the batch share an operand");
        return false;
    }
    return has_common_results(op, reason);
}

template <memory::data_type kType> bool has_kernel_once() noexcept {
    static const bool has = has_kernel(kType);
    return has;
}

bool supports_fp32(const GemmDesc& op, Reason& reason) noexcept {
    return supports(op, DType::fp32, has_kernel_once<memory::data_type::f32>, reason);
}

bool supports_bf16(const GemmDesc& op, Reason& reason) noexcept {
    return supports(op, DType::bf16, has_kernel_once<memory::data_type::bf16>, reason);
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
