// SPDX-License-Identifier: Apache-2.0
// Products by a weight in blocks: of many rows against our own product of bf16, of one row against reading the codes.
#include <algorithm>
#include <memory>
#include <vector>

#include "array.hpp"
#include "report.hpp"

namespace mp_bench {
namespace {

constexpr int32_t kBlocks[] = {MP_DTYPE_Q8_0, MP_DTYPE_Q4_0, MP_DTYPE_Q4_1,
                               MP_DTYPE_Q5_0, MP_DTYPE_Q5_1, MP_DTYPE_Q4_K,
                               MP_DTYPE_Q5_K, MP_DTYPE_Q6_K, MP_DTYPE_MXFP4_BLOCK};

struct Sizes {
    int64_t rows, out, in;
    bool is_backward; // dx = dy * w
};

// y = x w^T or dx = dy w, of bf16 to fp32, over the caller's weight.
class Product {
  public:
    Product(mp_context* context, const Sizes& s, int32_t weight, void* memory) {
        mp_gemm_desc desc = MP_GEMM_DESC_INIT;
        desc.m = s.rows;
        desc.n = s.is_backward ? s.in : s.out;
        desc.k = s.is_backward ? s.out : s.in;
        desc.flags = s.is_backward ? 0U : MP_GEMM_TRANS_B;
        desc.dtype_a = MP_DTYPE_BF16;
        desc.dtype_b = weight;
        check(mp_gemm_create(context, &desc, &gemm_));
        a_ = make_numbers(context, MP_DTYPE_BF16, {desc.m, desc.k});
        b_ = wrap_memory(context, weight, {s.out, s.in}, memory);
        d_ = make_tensor(context, MP_DTYPE_FP32, {desc.m, desc.n});
    }
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    ~Product() {
        for (mp_tensor* tensor : {a_, b_, d_}) {
            mp_tensor_destroy(tensor);
        }
        mp_gemm_destroy(gemm_);
    }
    void run() const { check(mp_gemm_run(gemm_, nullptr, a_, b_, nullptr, nullptr, d_)); }

  private:
    mp_gemm* gemm_ = nullptr;
    mp_tensor* a_ = nullptr;
    mp_tensor* b_ = nullptr;
    mp_tensor* d_ = nullptr;
};

// Of any codes and scales: zeros would be subnormal numbers to some.
void fill(const Array& codes, std::size_t bytes) {
    codes.fill([bytes](char* to) {
        uint32_t state = 1;
        for (std::size_t i = 0; i < bytes; ++i) {
            state = state * 1664525U + 1013904223U;
            to[i] = static_cast<char>(state >> 24);
        }
    });
}

void measure_rows(mp_context* context, const Options& options, const Sizes& s, int32_t dtype,
                  const std::string& name, std::vector<Row>& rows) {
    const std::size_t bytes = mp_dtype_bytes(dtype, s.out * s.in);
    const Array codes(context, bytes);
    fill(codes, bytes);
    const Array numbers(context, mp_dtype_bytes(MP_DTYPE_BF16, s.out * s.in));
    add_row(rows, name, [&] {
        const Product ours(context, s, dtype, codes.data());
        const Product wide(context, s, MP_DTYPE_BF16, numbers.data());
        const double operations = 2.0 * static_cast<double>(s.rows * s.out * s.in);
        return Row{name,
                   compare(
                       {"our bf16", [&] { wide.run(); }}, [&] { ours.run(); }, options.turns),
                   operations, "GFLOP/s"};
    });
}

void measure_one_row(mp_context* context, const Options& options, int32_t dtype,
                     std::vector<Row>& rows) {
    const auto elements = static_cast<int64_t>(options.elements);
    const int64_t in = std::min<int64_t>(4096, elements / 16 / 256 * 256);
    const Sizes s = {1, elements / in, in, false};
    const std::string name = std::string("gemm coded ") + mp_dtype_name(dtype) + " 1x" +
                             std::to_string(s.out) + "x" + std::to_string(s.in);
    if (!is_wanted(options, name)) {
        return;
    }
    const std::size_t bytes = mp_dtype_bytes(dtype, s.out * s.in);
    const Array codes(context, bytes);
    fill(codes, bytes);
    add_row(rows, name, [&] {
        const Product ours(context, s, dtype, codes.data());
        return measure_streaming(
            context, name, {{{{codes.data(), 1, Access::read}}, bytes / 64 * 64}},
            [&] { ours.run(); }, options);
    });
}

} // namespace

std::vector<Row> coded_rows(mp_context* context, const Options& options) {
    std::vector<Row> rows;
    for (const int32_t dtype : kBlocks) {
        for (const int64_t count : {256, 2048}) {
            for (const bool is_backward : {false, true}) {
                const int64_t size = options.brief ? 256 : 2048;
                const Sizes s = {options.brief ? 16 : count, size, size, is_backward};
                const std::string name = std::string("gemm coded ") + mp_dtype_name(dtype) + " " +
                                         std::to_string(count) + "x" + std::to_string(size) + "x" +
                                         std::to_string(size) + (is_backward ? " dx" : " y");
                if (is_wanted(options, name)) {
                    measure_rows(context, options, s, dtype, name, rows);
                }
            }
        }
        measure_one_row(context, options, dtype, rows);
    }
    return rows;
}

} // namespace mp_bench
