// SPDX-License-Identifier: Apache-2.0
// The oneDNN matmul primitive on plain row-major memory, made once and executed.
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "raw_gemm.hpp"

namespace mp_bench {
namespace {

using dnnl::memory;

struct Call {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    memory a, b, d;
    dnnl::matmul product;

    explicit Call(const GemmShape& s) {
        const auto type =
            s.dtype == MP_DTYPE_FP32 ? memory::data_type::f32 : memory::data_type::bf16;
        const auto tag = [](bool transposed) {
            return transposed ? memory::format_tag::ba : memory::format_tag::ab;
        };
        const memory::desc da({s.m, s.k}, type, tag(s.trans_a)),
            db({s.k, s.n}, type, tag(s.trans_b));
        const memory::desc dd({s.m, s.n}, memory::data_type::f32, memory::format_tag::ab);
        product =
            dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(da, db, dd), engine));
        a = memory(da, engine);
        b = memory(db, engine);
        d = memory(dd, engine);
        std::memset(a.get_data_handle(), 1, da.get_size());
        std::memset(b.get_data_handle(), 1, db.get_size());
    }

    void operator()() {
        product.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, d}});
        stream.wait();
    }
};

} // namespace

RawGemm raw_gemm(const GemmShape& shape) {
    RawGemm raw = {"oneDNN", {}, {}};
    if (shape.dtype != MP_DTYPE_FP32 && shape.dtype != MP_DTYPE_BF16) {
        return raw; // oneDNN 2.6 has no fp16 product on a CPU
    }
    try {
        auto call = std::make_shared<Call>(shape);
        raw.run = [call] { (*call)(); };
    } catch (const dnnl::error&) {
        // it refuses
    }
    return raw;
}

} // namespace mp_bench
