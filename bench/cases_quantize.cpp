// SPDX-License-Identifier: Apache-2.0
// Quantizers and dequantizers against the streaming kernels that read and write the same bytes.
#include "array.hpp"
#include "report.hpp"
#include "streaming.hpp"

namespace mp_bench {
namespace {

struct QuantKind {
    const char* name;
    int32_t scaling;
    int32_t rule;
    bool reads_twice; // the scale of a whole tensor is known only after a first pass
};

constexpr QuantKind kKinds[] = {
    {"tensorwise", MP_SCALING_TENSOR, MP_SCALE_RULE_CURRENT, true},
    {"rowwise", MP_SCALING_ROW, MP_SCALE_RULE_FLOAT64, false},
    {"columnwise", MP_SCALING_COLUMN, MP_SCALE_RULE_FLOAT64, true},
    {"block 1x128", MP_SCALING_BLOCK_1X128, MP_SCALE_RULE_DEEPSEEK, false},
    {"block 128x1", MP_SCALING_BLOCK_128X1, MP_SCALE_RULE_DEEPSEEK, false},
    {"block 128x128", MP_SCALING_BLOCK_128X128, MP_SCALE_RULE_DEEPSEEK, false},
    {"mx 1x32", MP_SCALING_MX_1X32, MP_SCALE_RULE_MX_RCEIL, false},
    {"mx 32x1", MP_SCALING_MX_32X1, MP_SCALE_RULE_MX_RCEIL, false},
    {"nvfp4", MP_SCALING_NVFP4, MP_SCALE_RULE_NVFP4, true},
};

constexpr int64_t kColumns = 4096;

struct Matrix {
    mp_tensor* tensor;
    char* bytes;
    std::size_t element;
};

class QuantizeBench {
  public:
    QuantizeBench(mp_context* context, const Options& options, std::vector<Row>& rows)
        : context_(context), options_(options), rows_(rows),
          count_(options.elements / kColumns * kColumns),
          height_(static_cast<int64_t>(count_) / kColumns), exact_(context, count_ * 4),
          narrow_(context, count_ * 2), transposed_(context, count_) {
        exact_.fill([&](char* data) { fill_numbers(reinterpret_cast<float*>(data), count_); });
    }

    void run() {
        const Shape shape = {height_, kColumns};
        mp_tensor* exact = wrap_memory(context_, MP_DTYPE_FP32, shape, exact_.data());
        mp_tensor* narrow = wrap_memory(context_, MP_DTYPE_BF16, shape, narrow_.data());
        check(mp_tensor_cast(exact, nullptr, narrow, nullptr));
        for (const Matrix& source :
             {Matrix{exact, exact_.data(), 4}, Matrix{narrow, narrow_.data(), 2}}) {
            for (const QuantKind& kind : kKinds) {
                quantize(source, kind, MP_DTYPE_FP8_E4M3);
            }
            quantize(source, kKinds[0], MP_DTYPE_FP8_E5M2);
        }
        mp_tensor_destroy(narrow);
        mp_tensor_destroy(exact);
    }

  private:
    void quantize(const Matrix& source, const QuantKind& kind, int32_t codes) {
        codes = kind.scaling == MP_SCALING_NVFP4 ? MP_DTYPE_FP4_E2M1 : codes;
        const std::string name = std::string("quantize ") + kind.name + " " +
                                 (source.element == 4 ? "fp32" : "bf16") + " -> " +
                                 mp_dtype_name(codes);
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = kind.scaling;
        quant.rule = kind.rule;
        const mp_tensor_desc desc = tensor_desc(codes, {height_, kColumns});
        mp_tensor* target = nullptr;
        check(mp_tensor_create_quantized(context_, &desc, &quant, &target));
        void* data = nullptr;
        check(mp_tensor_get_data(target, &data));
        // Half a byte an element: two elements of the source for each byte of the codes.
        const bool is_half = codes == MP_DTYPE_FP4_E2M1;
        const std::size_t elements_of_code = is_half ? 2 : 1;
        const std::size_t code_count = count_ / elements_of_code;
        const Stream read = {source.bytes, source.element * elements_of_code, Access::read};
        const auto measure = [&](const std::string& label, mp_tensor* transposed,
                                 mp_quant_stats* stats) {
            if (!is_wanted(options_, label)) {
                return;
            }
            std::vector<Pass> passes(kind.reads_twice ? 1 : 0, Pass{{read}, code_count});
            passes.push_back({{read, {static_cast<char*>(data), 1, Access::write}}, code_count});
            if (transposed != nullptr) {
                passes.back().streams.push_back({transposed_.data(), 1, Access::write});
            }
            add_row(rows_, label, [&] {
                return measure_streaming(
                    context_, label, passes,
                    [&] {
                        check(mp_tensor_quantize(source.tensor, nullptr, target, transposed,
                                                 nullptr, stats));
                    },
                    options_);
            });
            rows_.back().elements = static_cast<double>(count_);
        };
        measure(name, nullptr, nullptr);
        mp_quant_stats stats = MP_QUANT_STATS_INIT;
        measure(name + " with statistics", nullptr, &stats);
        if (!is_half) {
            mp_tensor* transposed =
                wrap_memory(context_, codes, {kColumns, height_}, transposed_.data());
            measure(name + " with transpose", transposed, nullptr);
            mp_tensor_destroy(transposed);
        }
        dequantize(source, kind, target, codes);
        mp_tensor_destroy(target);
    }

    void dequantize(const Matrix& source, const QuantKind& kind, mp_tensor* codes, int32_t dtype) {
        const std::string name = std::string("dequantize ") + kind.name + " " +
                                 mp_dtype_name(dtype) + " -> " +
                                 (source.element == 4 ? "fp32" : "bf16");
        if (!is_wanted(options_, name) || dtype == MP_DTYPE_FP4_E2M1) {
            return;
        }
        void* data = nullptr;
        check(mp_tensor_get_data(codes, &data));
        check(mp_tensor_quantize(source.tensor, nullptr, codes, nullptr, nullptr, nullptr));
        const Array output(context_, count_ * source.element);
        mp_tensor* target =
            wrap_memory(context_, source.element == 4 ? MP_DTYPE_FP32 : MP_DTYPE_BF16,
                        {height_, kColumns}, output.data());
        rows_.push_back(measure_streaming(
            context_, name,
            {{{{static_cast<char*>(data), 1, Access::read},
               {output.data(), source.element, Access::write}},
              count_}},
            [&] { check(mp_tensor_dequantize(codes, nullptr, target)); }, options_));
        mp_tensor_destroy(target);
    }

    mp_context* context_;
    const Options& options_;
    std::vector<Row>& rows_;
    std::size_t count_;
    int64_t height_;
    Array exact_;
    Array narrow_;
    Array transposed_;
};

} // namespace

std::vector<Row> quantize_rows(mp_context* context, const Options& options) {
    std::vector<Row> rows;
    QuantizeBench(context, options, rows).run();
    return rows;
}

} // namespace mp_bench
