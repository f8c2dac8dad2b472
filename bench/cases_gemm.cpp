// SPDX-License-Identifier: Apache-2.0
// Matrix products of training shapes against the raw call of the GEMM library.
#include <algorithm>
#include <memory>
#include <omp.h>

#include "raw_gemm.hpp"
#include "report.hpp"

namespace mp_bench {
namespace {

std::string name_of(const char* kind, const GemmShape& s) {
    return std::string("gemm ") + kind + " " + std::to_string(s.m) + "x" + std::to_string(s.n) +
           "x" + std::to_string(s.k) + " " + (s.trans_a ? "T" : "N") + (s.trans_b ? "T" : "N");
}

double operations_of(const GemmShape& s) {
    return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

// A product of fp8 codes: their types, and the scales that a recipe gives them.
struct CodeCase {
    const char* name;
    int32_t dtype_b; // A is E4M3
    int32_t scale_dtype;
    int32_t a[2], b[2]; // blocks over op(A), op(B)
    bool has_scales;
};

// Everything of one plan and its operands.
class Product {
  public:
    Product(mp_context* context, const GemmShape& s, const CodeCase* codes,
            const char* implementation = nullptr) {
        mp_gemm_desc desc = MP_GEMM_DESC_INIT;
        desc.m = s.m;
        desc.n = s.n;
        desc.k = s.k;
        desc.flags = (s.trans_a ? MP_GEMM_TRANS_A : 0u) | (s.trans_b ? MP_GEMM_TRANS_B : 0u);
        desc.dtype_a = desc.dtype_b = s.dtype;
        desc.implementation = implementation;
        if (codes != nullptr) {
            set_scales(context, desc, *codes);
        }
        check(mp_gemm_create(context, &desc, &gemm_));
        args_.a = keep(make_numbers(context, desc.dtype_a, {s.m * s.k}));
        args_.b = keep(make_numbers(context, desc.dtype_b, {s.k * s.n}));
        args_.d = keep(make_tensor(context, MP_DTYPE_FP32, {s.m * s.n}));
    }
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    ~Product() {
        for (mp_tensor* tensor : owned_) {
            mp_tensor_destroy(tensor);
        }
        mp_gemm_destroy(gemm_);
    }

    void run() const { check(mp_gemm_run_scaled(gemm_, nullptr, &args_)); }
    [[nodiscard]] std::string implementation() const {
        char text[512] = {};
        check(mp_gemm_describe(gemm_, text, sizeof text, nullptr));
        return std::string(text).substr(0, std::string(text).find(' '));
    }

  private:
    mp_tensor* keep(mp_tensor* tensor) {
        owned_.push_back(tensor);
        return tensor;
    }
    void set_scales(mp_context* context, mp_gemm_desc& desc, const CodeCase& codes) {
        desc.dtype_a = MP_DTYPE_FP8_E4M3;
        desc.dtype_b = codes.dtype_b;
        if (!codes.has_scales) {
            return;
        }
        const auto count = [](int64_t rows, int64_t columns, int32_t block_rows,
                              int32_t block_columns) {
            return (block_rows == 0 ? 1 : (rows + block_rows - 1) / block_rows) *
                   (block_columns == 0 ? 1 : (columns + block_columns - 1) / block_columns);
        };
        const bool trans_a = (desc.flags & MP_GEMM_TRANS_A) != 0;
        const bool trans_b = (desc.flags & MP_GEMM_TRANS_B) != 0;
        desc.scale_a_dtype = desc.scale_b_dtype = codes.scale_dtype;
        desc.scale_a_rows = codes.a[trans_a ? 1 : 0];
        desc.scale_a_columns = codes.a[trans_a ? 0 : 1];
        desc.scale_b_rows = codes.b[trans_b ? 1 : 0];
        desc.scale_b_columns = codes.b[trans_b ? 0 : 1];
        const auto scales = [&](int64_t elements) {
            mp_tensor* tensor = keep(make_tensor(context, codes.scale_dtype, {elements}));
            if (codes.scale_dtype == MP_DTYPE_E8M0) {
                fill(tensor, elements,
                     [](std::size_t i) { return static_cast<uint8_t>(120 + i % 8); });
            } else {
                fill(tensor, elements,
                     [](std::size_t i) { return 0.01F + static_cast<float>(i % 8); });
            }
            return tensor;
        };
        args_.scale_a = scales(count(desc.m, desc.k, codes.a[0], codes.a[1]));
        args_.scale_b = scales(count(desc.k, desc.n, codes.b[0], codes.b[1]));
    }
    template <class Value> static void fill(const mp_tensor* tensor, int64_t count, Value value) {
        std::vector<decltype(value(0))> values(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = value(i);
        }
        check(mp_tensor_write(const_cast<mp_tensor*>(tensor), nullptr, values.data(),
                              values.size() * sizeof(values[0])));
    }

    mp_gemm* gemm_ = nullptr;
    mp_gemm_args args_ = MP_GEMM_ARGS_INIT;
    std::vector<mp_tensor*> owned_;
};

// The raw call, and what waits for it too.
struct Raw {
    Baseline baseline;
    Turns turns;
};

Raw raw_baseline(mp_context* context, const Options& options, const GemmShape& s) {
    omp_set_num_threads(options.threads); // of the raw call
    const RawGemm raw = options.device == MP_DEVICE_HOST ? raw_gemm(s) : raw_gemm_cuda(context, s);
    Raw result = {{std::string("raw ") + raw.library + " " + mp_dtype_name(s.dtype), raw.run},
                  options.turns};
    if (raw.wait) {
        result.turns.finish = [ours = options.turns.finish, theirs = raw.wait] {
            ours();
            theirs();
        };
    }
    return result;
}

Row measure(const GemmShape& s, const std::string& name, const Product& ours, const Raw& raw) {
    return {name + " by " + ours.implementation(),
            compare(
                raw.baseline, [&] { ours.run(); }, raw.turns),
            operations_of(s), "GFLOP/s"};
}

// fp8 against the library's products: our own fp32 on the host, and raw calls.
void measure_codes(mp_context* context, const Options& options, GemmShape s, const CodeCase& codes,
                   const std::string& name, std::vector<Row>& rows) {
    s.dtype = MP_DTYPE_FP32;
    std::unique_ptr<Product> ours;
    const auto against = [&](const Raw& raw) {
        add_row(rows, name, [&] {
            if (ours == nullptr) {
                ours = std::make_unique<Product>(context, s, &codes);
            }
            return measure(s, name, *ours, raw);
        });
        rows.back().name += " to " + raw.baseline.name;
    };
    if (options.device == MP_DEVICE_HOST) {
        const Product wide(context, s, nullptr);
        against({{"our fp32", [&] { wide.run(); }}, options.turns});
        against(raw_baseline(context, options, s));
    } else {
        s.dtype = MP_DTYPE_FP8_E4M3;
        against(raw_baseline(context, options, s));
    }
    s.dtype = MP_DTYPE_BF16;
    against(raw_baseline(context, options, s));
}

// Brief: each about a sixteenth.
std::vector<GemmShape> sized(const Options& options, std::vector<GemmShape> shapes) {
    for (GemmShape& shape : shapes) {
        for (int64_t* size : {&shape.m, &shape.n, &shape.k}) {
            *size = options.brief ? std::clamp<int64_t>(*size / 16, 32, 96) : *size;
        }
    }
    return shapes;
}

std::vector<GemmShape> trained_shapes(const Options& options) {
    if (options.device == MP_DEVICE_HOST) {
        return sized(options, {{512, 512, 512, false, false, 0},
                               {1024, 1024, 1024, false, false, 0},
                               {2048, 2048, 2048, false, false, 0},
                               {1024, 3072, 768, false, false, 0},
                               {2048, 768, 256, false, true, 0},
                               {2048, 1152, 384, false, true, 0},
                               {2048, 1536, 384, false, true, 0},
                               {2048, 384, 1536, false, true, 0},
                               {2048, 1536, 384, false, false, 0},
                               {2048, 384, 1536, false, false, 0},
                               {384, 1536, 2048, true, false, 0},
                               {1536, 384, 2048, true, false, 0}});
    }
    return sized(options, {{1024, 1024, 1024, false, true, 0},
                           {2048, 2048, 2048, false, true, 0},
                           {8192, 8192, 8192, false, true, 0},
                           {1024, 1024, 2048, false, true, 0},
                           {4096, 16384, 8192, false, true, 0},
                           {4096, 8192, 16384, false, false, 0},
                           {16384, 8192, 4096, true, false, 0}});
}

std::vector<GemmShape> trained_code_shapes(const Options& options) {
    if (options.device == MP_DEVICE_HOST) {
        return sized(options, {{2048, 1024, 256, false, true, 0},
                               {2048, 1536, 384, false, true, 0},
                               {2048, 384, 1536, false, true, 0},
                               {2048, 384, 1536, false, false, 0},
                               {384, 1536, 2048, true, false, 0},
                               {2048, 256, 256, false, true, 0}});
    }
    return sized(options, {{1024, 1024, 2048, false, true, 0},
                           {4096, 16384, 8192, false, true, 0},
                           {8192, 8192, 8192, false, true, 0}});
}

// The one that is chosen, and on the host each by its name, for the table of their order.
std::vector<const char*> implementations(const Options& options) {
    if (options.device != MP_DEVICE_HOST) {
        return {nullptr};
    }
    return {nullptr, "blocked_fp32", "onednn_fp32", "blocked_bf16", "onednn_bf16", "widen_fp32"};
}

void measure_plain(mp_context* context, const Options& options, const GemmShape& shape,
                   std::vector<Row>& rows) {
    const std::string name = name_of(mp_dtype_name(shape.dtype), shape);
    std::unique_ptr<Raw> raw; // made for the first that is wanted
    for (const char* implementation : implementations(options)) {
        const std::string label =
            implementation == nullptr ? name : name + ", named " + implementation;
        if (!is_wanted(options, label)) {
            continue;
        }
        if (raw == nullptr) {
            raw = std::make_unique<Raw>(raw_baseline(context, options, shape));
        }
        add_row(rows, label, [&] {
            return measure(shape, label, Product(context, shape, nullptr, implementation), *raw);
        });
        if (implementation != nullptr && !rows.back().why_not.empty()) {
            rows.pop_back(); // it takes another type
        }
    }
}

} // namespace

std::vector<Row> gemm_rows(mp_context* context, const Options& options) {
    std::vector<Row> rows;
    for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16, MP_DTYPE_FP16}) {
        for (GemmShape shape : trained_shapes(options)) {
            shape.dtype = dtype;
            measure_plain(context, options, shape, rows);
        }
    }
    constexpr CodeCase kCodes[] = {
        {"e4m3 x e4m3 tensor", MP_DTYPE_FP8_E4M3, MP_DTYPE_FP32, {0, 0}, {0, 0}, true},
        {"e4m3 x e5m2 tensor", MP_DTYPE_FP8_E5M2, MP_DTYPE_FP32, {0, 0}, {0, 0}, true},
        {"e4m3 x e4m3 rows", MP_DTYPE_FP8_E4M3, MP_DTYPE_FP32, {1, 0}, {0, 1}, true},
        {"e4m3 x e4m3 blocks", MP_DTYPE_FP8_E4M3, MP_DTYPE_FP32, {1, 128}, {128, 128}, true},
        {"e4m3 x e4m3 mx", MP_DTYPE_FP8_E4M3, MP_DTYPE_E8M0, {1, 32}, {32, 1}, true},
    };
    for (const CodeCase& codes : kCodes) {
        for (const GemmShape& shape : trained_code_shapes(options)) {
            const std::string name = name_of(codes.name, shape);
            if (is_wanted(options, name)) {
                measure_codes(context, options, shape, codes, name, rows);
            }
        }
    }
    return rows;
}

} // namespace mp_bench
