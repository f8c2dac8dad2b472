// SPDX-License-Identifier: Apache-2.0
// oneDNN is asked for one thread of OpenMP's: it would take the cores of our own. And signals wait while it runs: its generated
// products point the stack pointer at packed memory in the heap, and the frame of a handler then overwrites what lies before it
// (oneDNN's issue 4845, open in every version before March 2026).
#include "host/gemm/onednn_primitive.hpp"

#include <cstring>
#include <unordered_map>

#include "host/gemm/onednn_library.hpp"
#include "process/signals_blocked.hpp"

namespace mp::backends::host {

namespace {

using dnnl::memory;

// oneDNN asks OpenMP how many threads the calling one may use, both when it makes a primitive and when it runs one: none
// but itself.
class OneThread {
  public:
    OneThread() noexcept {
        if (onednn_openmp().is_there()) {
            before_ = onednn_openmp().get_max_threads();
            onednn_openmp().set_num_threads(1);
        }
    }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;
    ~OneThread() {
        if (onednn_openmp().is_there()) {
            onednn_openmp().set_num_threads(before_);
        }
    }

  private:
    int before_ = 1;
};

const dnnl::engine& cpu_engine() {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
}

memory::desc matrix(int64_t rows, int64_t columns, int64_t stride, bool transposed,
                    memory::data_type type) {
    return {{rows, columns}, type, {transposed ? 1 : stride, transposed ? stride : 1}};
}

} // namespace

Status onednn_status(const dnnl::error& error) noexcept {
    if (error.status == dnnl_out_of_memory) {
        return Status::error(Code::out_of_memory, "oneDNN: no memory for a matmul");
    }
    return Status::error(error.status == dnnl_unimplemented ? Code::unsupported
                                                            : Code::onednn_error,
                         "oneDNN: %s (status %d)", error.what(), static_cast<int>(error.status));
}

void OnednnPrimitive::make(const GemmDesc& d, int64_t rows, int64_t columns, int64_t stride_d,
                           float alpha, bool with_bias) {
    const OneThread scope;
    const auto type = d.dtype_a == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    a_ = matrix(rows, d.k, d.lda, d.trans_a, type);
    b_ = matrix(d.k, columns, d.ldb, d.trans_b, type);
    d_ = matrix(rows, columns, stride_d, false, memory::data_type::f32);
    bias_ = matrix(1, columns, columns, false, memory::data_type::f32);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (alpha != 1.0F) {
        attributes.set_output_scales(0, {alpha});
    }
    const dnnl::matmul::primitive_desc chosen(with_bias ? dnnl::matmul::desc(a_, b_, bias_, d_)
                                                        : dnnl::matmul::desc(a_, b_, d_),
                                              attributes, cpu_engine());
    scratch_ = chosen.scratchpad_desc();
    primitive_ = dnnl::matmul(chosen);
}

void OnednnPrimitive::execute(const void* a, const void* b, const float* bias, float* result,
                              void* scratch) const {
    const OneThread scope;
    const process::SignalsBlocked signals;
    const dnnl::engine& engine = cpu_engine();
    dnnl::stream stream(engine);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, memory(a_, engine, const_cast<void*>(a))},
        {DNNL_ARG_WEIGHTS, memory(b_, engine, const_cast<void*>(b))},
        {DNNL_ARG_DST, memory(d_, engine, result)},
        {DNNL_ARG_SCRATCHPAD, memory(scratch_, engine, scratch)}};
    if (bias != nullptr) {
        arguments.emplace(DNNL_ARG_BIAS, memory(bias_, engine, const_cast<float*>(bias)));
    }
    primitive_.execute(stream, arguments);
    stream.wait();
}

bool has_onednn_kernel(memory::data_type type) noexcept {
    const Status status = onednn_guarded([type] {
        const memory::desc a({64, 64}, type, memory::dims{64, 1});
        const memory::desc d({64, 64}, memory::data_type::f32, memory::dims{64, 1});
        const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, a, d), cpu_engine());
        return std::strncmp(chosen.impl_info_str(), "ref", 3) == 0
                   ? Status::error(Code::unsupported, "only the reference kernel")
                   : Status();
    });
    return status.ok();
}

} // namespace mp::backends::host
