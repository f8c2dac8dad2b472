// SPDX-License-Identifier: Apache-2.0
// Matrix products of training shapes against the raw call of the GEMM library, interleaved in one run.
#include <algorithm>
#include <omp.h>

#include "raw_gemm.hpp"
#include "report.hpp"
#include "streaming.hpp"

namespace mp_bench {
namespace {

mp_tensor* make(mp_context* context, int32_t dtype, int64_t count) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = 1;
    desc.shape[0] = count;
    mp_tensor* tensor = nullptr;
    check(mp_tensor_create(context, &desc, &tensor));
    return tensor;
}

Row measure(mp_context* context, const Options& options, const GemmShape& s,
            const std::string& name) {
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = s.m;
    desc.n = s.n;
    desc.k = s.k;
    desc.flags = (s.trans_a ? MP_GEMM_TRANS_A : 0u) | (s.trans_b ? MP_GEMM_TRANS_B : 0u);
    desc.dtype_a = desc.dtype_b = s.dtype;
    mp_gemm* gemm = nullptr;
    check(mp_gemm_create(context, &desc, &gemm));
    mp_tensor* a = make(context, s.dtype, s.m * s.k);
    mp_tensor* b = make(context, s.dtype, s.k * s.n);
    mp_tensor* d = make(context, MP_DTYPE_FP32, s.m * s.n);
    const auto ours = [&] { check(mp_gemm_run(gemm, nullptr, a, b, nullptr, nullptr, d)); };
    omp_set_num_threads(options.threads); // of the raw call
    const auto raw = raw_gemm(s);
    double seconds = 1e30, yardstick = raw ? 1e30 : 0.0;
    for (int round = 0; round < 4; ++round) {
        seconds = std::min(seconds, best_seconds(ours, options.repeats));
        if (raw) {
            yardstick = std::min(yardstick, best_seconds(raw, options.repeats));
        }
    }
    char text[512] = {};
    check(mp_gemm_describe(gemm, text, sizeof text, nullptr));
    for (mp_tensor* tensor : {a, b, d}) {
        mp_tensor_destroy(tensor);
    }
    mp_gemm_destroy(gemm);
    const double operations =
        2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    return {name + " by " + std::string(text).substr(0, std::string(text).find(' ')),
            seconds,
            yardstick,
            operations,
            "GFLOP/s",
            0};
}

} // namespace

std::vector<Row> gemm_rows(mp_context* context, const Options& options) {
    constexpr GemmShape kShapes[] = {
        {512, 512, 512, false, false, 0},    {1024, 1024, 1024, false, false, 0},
        {2048, 2048, 2048, false, false, 0}, {1024, 3072, 768, false, false, 0},
        {2048, 768, 256, false, true, 0},    {2048, 1152, 384, false, true, 0},
        {2048, 1536, 384, false, true, 0},   {2048, 384, 1536, false, true, 0},
        {2048, 1536, 384, false, false, 0},  {2048, 384, 1536, false, false, 0},
        {384, 1536, 2048, true, false, 0},   {1536, 384, 2048, true, false, 0},
    };
    std::vector<Row> rows;
    for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16, MP_DTYPE_FP16}) {
        for (GemmShape shape : kShapes) {
            shape.dtype = dtype;
            const std::string name = std::string("gemm ") + mp_dtype_name(dtype) + " " +
                                     std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" +
                                     std::to_string(shape.k) + " " + (shape.trans_a ? "T" : "N") +
                                     (shape.trans_b ? "T" : "N");
            if (is_wanted(options, name)) {
                rows.push_back(measure(context, options, shape, name));
            }
        }
    }
    return rows;
}

} // namespace mp_bench
