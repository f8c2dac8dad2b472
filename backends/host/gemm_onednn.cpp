// SPDX-License-Identifier: Apache-2.0
#include "host/gemm_onednn.hpp"

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "host/gemm_epilogue.hpp"
#include "kokkos/host_ops.hpp"

#define MP_RETURN_IF_FAILED(call)                                                                  \
    do {                                                                                           \
        const Status status_ = (call);                                                             \
        if (!status_.ok()) {                                                                       \
            return status_;                                                                        \
        }                                                                                          \
    } while (false)

namespace mp::backends::host {
namespace {

using dnnl::memory;

// oneDNN runs on the calling thread's OpenMP team; its size is the caller's again afterwards.
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

memory::data_type type_of(DType dtype) {
    return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// One operand as oneDNN sees it; always with a batch dimension.
memory::desc layout(int64_t batch, int64_t rows, int64_t columns, int64_t batch_stride,
                    int64_t leading, bool transposed, DType dtype) {
    const memory::dims strides = {batch_stride, transposed ? 1 : leading, transposed ? leading : 1};
    return {{batch, rows, columns}, type_of(dtype), strides};
}

// Scratch memory of a plan, from the device, kept between runs.
class Workspace {
  public:
    explicit Workspace(Device& device) : device_(device) {}
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    ~Workspace() {
        if (data_ != nullptr) {
            device_.release(data_, bytes_);
        }
    }
    Status reserve(std::size_t bytes) noexcept {
        bytes_ = bytes;
        return bytes == 0 ? Status() : device_.allocate(bytes, &data_);
    }
    [[nodiscard]] float* floats() const noexcept { return static_cast<float*>(data_); }

  private:
    Device& device_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

class OnednnPlan final : public Plan {
  public:
    OnednnPlan(Device& device, const GemmDesc& desc, bool widen)
        : device_(device), desc_(desc), widen_(widen), wide_a_(device), wide_b_(device),
          product_(device), bias_(device) {}

    Status prepare() noexcept {
        const std::size_t float_size = sizeof(float);
        if (desc_.m == 0 || desc_.n == 0 || desc_.batch_count == 0) {
            return {};
        }
        // alpha scales the bias too in oneDNN, so only alpha 1 is left to it.
        direct_ = desc_.alpha == 1.0F && desc_.k > 0 &&
                  (desc_.beta == 0.0F || desc_.beta == 1.0F) &&
                  (desc_.dtype_d == DType::fp32 ||
                   (desc_.dtype_d == DType::bf16 && !widen_ && desc_.dtype_a == DType::bf16));
        if (!direct_) {
            MP_RETURN_IF_FAILED(product_.reserve(
                static_cast<std::size_t>(desc_.batch_count * desc_.m * desc_.n) * float_size));
        } else if (desc_.dtype_bias != DType::none && desc_.dtype_bias != DType::fp32) {
            MP_RETURN_IF_FAILED(bias_.reserve(static_cast<std::size_t>(desc_.n) * float_size));
        }
        if (widen_) {
            MP_RETURN_IF_FAILED(wide_a_.reserve(static_cast<std::size_t>(extent_a()) * float_size));
            MP_RETURN_IF_FAILED(wide_b_.reserve(static_cast<std::size_t>(extent_b()) * float_size));
        }
        return desc_.k == 0 ? Status() : make_primitive();
    }

    Status run(Queue& queue, const GemmBuffers& buffers) noexcept {
        if (desc_.m == 0 || desc_.n == 0 || desc_.batch_count == 0) {
            return {};
        }
        GemmBuffers operands = buffers;
        if (desc_.k > 0 && widen_) {
            MP_RETURN_IF_FAILED(widen(queue, buffers.a, extent_a(), wide_a_));
            MP_RETURN_IF_FAILED(widen(queue, buffers.b, extent_b(), wide_b_));
            operands.a = wide_a_.floats();
            operands.b = wide_b_.floats();
        }
        if (direct_) {
            if (desc_.beta != 0.0F && buffers.c != buffers.d) {
                copy_c(buffers); // oneDNN adds to what D holds
            }
            if (bias_.floats() != nullptr) {
                MP_RETURN_IF_FAILED(
                    cast(queue, {const_cast<void*>(buffers.bias), desc_.n, desc_.dtype_bias},
                         {bias_.floats(), desc_.n, DType::fp32}));
                operands.bias = bias_.floats();
            }
            return execute(operands, buffers.d);
        }
        if (desc_.k == 0) {
            std::memset(product_.floats(), 0,
                        static_cast<std::size_t>(desc_.batch_count * desc_.m * desc_.n) *
                            sizeof(float));
        } else {
            MP_RETURN_IF_FAILED(execute(operands, product_.floats()));
        }
        apply_epilogue(desc_, buffers, product_.floats(), device_.num_threads());
        return {};
    }

  private:
    [[nodiscard]] int64_t extent_a() const noexcept {
        const int64_t rows = desc_.trans_a ? desc_.k : desc_.m,
                      columns = desc_.trans_a ? desc_.m : desc_.k;
        return rows * columns == 0 ? 0
                                   : (desc_.batch_count - 1) * desc_.batch_stride_a +
                                         (rows - 1) * desc_.lda + columns;
    }
    [[nodiscard]] int64_t extent_b() const noexcept {
        const int64_t rows = desc_.trans_b ? desc_.n : desc_.k,
                      columns = desc_.trans_b ? desc_.k : desc_.n;
        return rows * columns == 0 ? 0
                                   : (desc_.batch_count - 1) * desc_.batch_stride_b +
                                         (rows - 1) * desc_.ldb + columns;
    }

    Status cast(Queue& queue, const TensorRef& source, const TensorRef& destination) noexcept {
        CastDesc op{};
        op.kind = OpKind::cast;
        op.source = source;
        op.destination = destination;
        return kokkos::host_candidates(OpKind::cast).items[0].run(device_, queue, op);
    }

    Status widen(Queue& queue, const void* narrow, int64_t count, const Workspace& wide) noexcept {
        return cast(queue, {const_cast<void*>(narrow), count, desc_.dtype_a},
                    {wide.floats(), count, DType::fp32});
    }

    void copy_c(const GemmBuffers& buffers) const noexcept {
        const auto size = static_cast<int64_t>(dtype_size(desc_.dtype_d));
        for (int64_t i = 0; i < desc_.batch_count * desc_.m; ++i) {
            const int64_t batch = i / desc_.m, row = i % desc_.m;
            std::memcpy(static_cast<char*>(buffers.d) +
                            (batch * desc_.batch_stride_d + row * desc_.ldd) * size,
                        static_cast<const char*>(buffers.c) +
                            (batch * desc_.batch_stride_c + row * desc_.ldc) * size,
                        static_cast<std::size_t>(desc_.n * size));
        }
    }

    Status make_primitive() noexcept {
        try {
            const GemmDesc& d = desc_;
            const DType operand = widen_ ? DType::fp32 : d.dtype_a;
            a_ = layout(d.batch_count, d.m, d.k, d.batch_stride_a, d.lda, d.trans_a, operand);
            b_ = layout(d.batch_count, d.k, d.n, d.batch_stride_b, d.ldb, d.trans_b, operand);
            d_ = direct_
                     ? layout(d.batch_count, d.m, d.n, d.batch_stride_d, d.ldd, false, d.dtype_d)
                     : layout(d.batch_count, d.m, d.n, d.m * d.n, d.n, false, DType::fp32);
            dnnl::primitive_attr attributes;
            dnnl::post_ops after;
            if (direct_ && d.beta != 0.0F) {
                after.append_sum(d.beta);
            }
            if (direct_ && d.gelu) {
                after.append_eltwise(1.0F, dnnl::algorithm::eltwise_gelu_tanh, 0.0F, 0.0F);
            }
            attributes.set_post_ops(after);
            const bool has_bias = direct_ && d.dtype_bias != DType::none;
            const memory::desc bias({1, 1, d.n}, memory::data_type::f32, memory::dims{d.n, d.n, 1});
            const dnnl::matmul::desc product =
                has_bias ? dnnl::matmul::desc(a_, b_, bias, d_) : dnnl::matmul::desc(a_, b_, d_);
            primitive_ =
                dnnl::matmul(dnnl::matmul::primitive_desc(product, attributes, cpu_engine()));
            stream_ = dnnl::stream(cpu_engine());
            bias_layout_ = bias;
            has_bias_ = has_bias;
            return {};
        } catch (const dnnl::error& error) {
            return Status::error(Code::onednn_error, "oneDNN: %s (status %d)", error.what(),
                                 static_cast<int>(error.status));
        } catch (const std::exception& error) {
            return Status::error(Code::onednn_error, "oneDNN: %s", error.what());
        }
    }

    Status execute(const GemmBuffers& operands, void* result) noexcept {
        try {
            const ThreadScope threads(device_.num_threads());
            const dnnl::engine& engine = cpu_engine();
            std::unordered_map<int, memory> arguments = {
                {DNNL_ARG_SRC, memory(a_, engine, const_cast<void*>(operands.a))},
                {DNNL_ARG_WEIGHTS, memory(b_, engine, const_cast<void*>(operands.b))},
                {DNNL_ARG_DST, memory(d_, engine, result)}};
            if (has_bias_) {
                arguments.emplace(DNNL_ARG_BIAS,
                                  memory(bias_layout_, engine, const_cast<void*>(operands.bias)));
            }
            primitive_.execute(stream_, arguments);
            stream_.wait();
            return {};
        } catch (const std::exception& error) {
            return Status::error(Code::onednn_error, "oneDNN: %s", error.what());
        }
    }

    Device& device_;
    GemmDesc desc_;
    bool widen_;
    bool direct_ = false;
    bool has_bias_ = false;
    Workspace wide_a_, wide_b_, product_, bias_;
    memory::desc a_, b_, d_, bias_layout_;
    dnnl::matmul primitive_;
    dnnl::stream stream_;
};

Status prepare_plan(Device& device, const GemmDesc& op, bool widen, Plan** out) noexcept {
    *out = nullptr;
    auto* plan = new (std::nothrow) OnednnPlan(device, op, widen);
    if (plan == nullptr) {
        return Status::error(Code::out_of_memory, "host: no memory for a GEMM plan");
    }
    const Status status = plan->prepare();
    if (!status.ok()) {
        delete plan;
        return status;
    }
    *out = plan;
    return {};
}

Status prepare_native(Device& device, const GemmDesc& op, Plan** out) noexcept {
    return prepare_plan(device, op, false, out);
}

Status prepare_widened(Device& device, const GemmDesc& op, Plan** out) noexcept {
    return prepare_plan(device, op, true, out);
}

Status run_plan(Device& /*device*/, Queue& queue, Plan& plan, const GemmBuffers& buffers) noexcept {
    return static_cast<OnednnPlan&>(plan).run(queue, buffers);
}

bool supports_type(const OpDesc& op, DType dtype, Reason& reason) noexcept {
    const auto& gemm = static_cast<const GemmDesc&>(op);
    if (gemm.dtype_a == dtype) {
        return true;
    }
    reason.set("multiplies %s operands, these are %s", dtype_name(dtype), dtype_name(gemm.dtype_a));
    return false;
}

bool supports_fp32(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return supports_type(op, DType::fp32, reason);
}

bool supports_bf16(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return supports_type(op, DType::bf16, reason);
}

bool supports_widening(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    const auto& gemm = static_cast<const GemmDesc&>(op);
    if (gemm.dtype_a == DType::bf16 || gemm.dtype_a == DType::fp16) {
        return true;
    }
    reason.set("widens bf16 and fp16 operands, these are %s", dtype_name(gemm.dtype_a));
    return false;
}

} // namespace

const Candidate kOnednnFp32 = {"onednn_fp32", supports_fp32, nullptr, prepare_native, run_plan};
const Candidate kOnednnBf16 = {"onednn_bf16", supports_bf16, nullptr, prepare_native, run_plan};
const Candidate kWidenFp32 = {"widen_fp32", supports_widening, nullptr, prepare_widened, run_plan};

} // namespace mp::backends::host
