// SPDX-License-Identifier: Apache-2.0
// mixedprec bench: this machine's copy, casts, products and steps, as ratios to the copy and the fp32 product of the same run.
#include <algorithm>

#include "program.hpp"
#include "table.hpp"

namespace command {
namespace {

using mixedprec::Tensor;

struct Options {
    int64_t side = 1024, mib = 64;
    int repeats = 5, threads = 0;
};

// The best of several calls, after one that is not counted.
double best(int repeats, const std::function<void()>& call) {
    call();
    double least = 1e300;
    for (int i = 0; i < repeats; i++) {
        const double begin = seconds();
        call();
        least = std::min(least, seconds() - begin);
    }
    return least;
}

struct Line {
    std::string name, unit, beside;
    double value, ratio;
};

std::vector<float> some_values(int64_t count) {
    std::vector<float> values(size(count));
    for (size_t i = 0; i < values.size(); i++) {
        values[i] = 0.01F * static_cast<float>(static_cast<int64_t>(i * 37 % 199) - 99);
    }
    return values;
}

double gigabytes(double bytes, double time) { return bytes / time / 1e9; }

void add_streams(std::vector<Line>& lines, const mixedprec::Context& context,
                 const Options& options) {
    const int64_t count = options.mib * (1 << 20) / 4;
    const Tensor source = Tensor::from(context, some_values(count), {count}),
                 copy = Tensor::create(context, MP_DTYPE_FP32, {count});
    const double time = best(options.repeats, [&] {
        train::check(mp_tensor_copy(source.get(), nullptr, copy.get()), "mp_tensor_copy");
    });
    const double peak = gigabytes(8.0 * real(count), time);
    lines.push_back({"copy of fp32", "GB/s", "", peak, 1.0});
    for (const int32_t dtype :
         {MP_DTYPE_FP16, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2}) {
        const Tensor made = Tensor::create(context, dtype, {count});
        const double took = best(options.repeats, [&] {
            train::check(mp_tensor_cast(source.get(), nullptr, made.get(), nullptr),
                         "mp_tensor_cast");
        });
        const double rate = gigabytes(real(count) * (4.0 + real(mp_dtype_size(dtype))), took);
        lines.push_back(
            {join("cast fp32 to ", mp_dtype_name(dtype)), "GB/s", "the copy", rate, rate / peak});
    }
    for (const char* preset : {"fp32", "bf16_mixed_dual", "bf16_pure_kahan", "bf16_pure_sr"}) {
        const auto recipe = mixedprec::Recipe::create(context, preset);
        auto optimizer = mixedprec::Optimizer::create(context, recipe);
        optimizer.add_group();
        optimizer.add_param("weight", recipe.weight(context, {count}));
        const auto report = recipe.plan_memory(MP_RULE_ADAMW, count);
        const double took = best(options.repeats, [&] { optimizer.step(); });
        const double moved =
            2.0 * real(report.total_bytes) - real(report.grad_bytes); // gradients are only read
        const double rate = gigabytes(moved, took);
        lines.push_back({join("step of ", preset), "GB/s", "the copy", rate, rate / peak});
    }
}

void add_products(std::vector<Line>& lines, const mixedprec::Context& context,
                  const Options& options) {
    const int64_t n = options.side;
    const Tensor exact = Tensor::from(context, some_values(n * n), {n, n});
    double fp32 = 0.0;
    for (const int32_t dtype :
         {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2}) {
        const Tensor a = Tensor::create(context, dtype, {n, n}),
                     d = Tensor::create(context, MP_DTYPE_FP32, {n, n});
        train::check(mp_tensor_cast(exact.get(), nullptr, a.get(), nullptr), "mp_tensor_cast");
        mixedprec::GemmOptions gemm_options;
        gemm_options.m = gemm_options.n = gemm_options.k = n;
        gemm_options.dtype_a = gemm_options.dtype_b = dtype;
        gemm_options.dtype_d = MP_DTYPE_FP32;
        auto gemm = mixedprec::Gemm::create(context, gemm_options);
        const double took = best(options.repeats, [&] { gemm.run(a, a, d); });
        const double rate = 2.0 * real(n) * real(n) * real(n) / took / 1e9;
        fp32 = dtype == MP_DTYPE_FP32 ? rate : fp32;
        lines.push_back({join("product of ", mp_dtype_name(dtype)), "GFLOP/s",
                         dtype == MP_DTYPE_FP32 ? "" : "fp32", rate, rate / fp32});
    }
}

Result bench(const Options& options) {
    must<UsageError>(options.side >= 16 && options.side <= 16384 && options.mib >= 1 &&
                         options.mib <= 4096 && options.repeats >= 1 && options.threads >= 0,
                     "bench wants --side from 16 to 16384, --mib from 1 to 4096, --repeats from 1, "
                     "--threads from 0");
    const auto context = host_context(options.threads);
    std::vector<Line> lines;
    add_streams(lines, context, options);
    add_products(lines, context, options);
    Result result;
    result.json = {{"threads", context.num_threads()},
                   {"side", options.side},
                   {"mib", options.mib},
                   {"measurements", Json::array()}};
    Table table({"what", ">rate", "", ">ratio", "to"});
    for (const Line& line : lines) {
        result.json["measurements"].push_back({{"name", line.name},
                                               {"unit", line.unit},
                                               {"value", line.value},
                                               {"ratio", line.ratio},
                                               {"ratio_to", line.beside}});
        table.add({line.name, format("%.4g", line.value), line.unit,
                   line.beside.empty() ? "-" : format("%.2f", line.ratio), line.beside});
    }
    result.text =
        table.text() + join("\nThe best of ", options.repeats, ", ",
                            counted(size(context.num_threads()), "thread"), ", arrays of ",
                            options.mib, " MiB in fp32, products of side ", options.side,
                            ". Bytes: all that is read and written.\n");
    return result;
}

} // namespace

void add_bench(Program& program) {
    auto options = std::make_shared<Options>();
    Subcommand app = program.add(
        "bench", "copy, casts, products and optimizer steps on this machine, with ratios", options,
        bench);
    app.add("--side", options->side, "rows and columns of the products' matrices",
            {.shows_default = true});
    app.add("--mib", options->mib, "MiB of an fp32 array", {.shows_default = true});
    app.add("--repeats", options->repeats, "calls, of which the best counts",
            {.shows_default = true});
    app.add("--threads", options->threads, "threads; 0: the library's choice",
            {.shows_default = true});
}

} // namespace command
