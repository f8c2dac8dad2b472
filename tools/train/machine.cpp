// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "run.hpp"

namespace train {
namespace {

struct Factors {
    Array a, b, product;
    Gemm gemm;
};

Factors make_factors(mp_context* context, int32_t dtype, int64_t side) {
    Factors f{make_array(context, dtype, side, side),
              make_array(context, dtype, side, side),
              make_array(context, MP_DTYPE_FP32, side, side),
              {}};
    mp_gemm_desc desc = MP_GEMM_DESC_INIT;
    desc.m = desc.n = desc.k = side;
    desc.dtype_a = desc.dtype_b = dtype;
    desc.dtype_d = MP_DTYPE_FP32;
    MP_CHECK(mp_gemm_create(context, &desc, out(f.gemm)));
    return f;
}

// Operations per second of the best call within `limit` seconds. Two at least: the first also makes its code.
double rate_of(mp_context* context, int32_t dtype, int64_t side, double limit) {
    const Factors f = make_factors(context, dtype, side);
    double best = 0.0;
    const double begin = seconds();
    for (int64_t calls = 0; calls < 2 || seconds() - begin < limit; ++calls) {
        const double start = seconds();
        MP_CHECK(mp_gemm_run(f.gemm.get(), nullptr, f.a.tensor.get(), f.b.tensor.get(), nullptr,
                             nullptr, f.product.tensor.get()));
        const double cubed = real(side) * real(side) * real(side);
        best = std::max(best, 2.0 * cubed / std::max(seconds() - start, 1e-9));
    }
    return best;
}

double mib(double bytes) { return bytes / 1048576.0; }

// The recipe among these that holds least for the same parameters, and its bytes.
std::pair<const char*, double> smaller_recipe(const Params& params) {
    std::pair<const char*, double> best{nullptr, 0.0};
    int64_t count = 0;
    for (const Param& p : params.list) {
        count += p.elements();
    }
    for (const char* name : {"bf16_pure_remainder", "bf16_pure_kahan", "bf16_pure_sr"}) {
        Recipe recipe;
        MP_CHECK(mp_recipe_create(params.context, name, out(recipe)));
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        MP_CHECK(mp_recipe_plan_memory(recipe.get(), MP_RULE_ADAMW, count, &report));
        if (best.first == nullptr || real(report.total_bytes) < best.second) {
            best = {name, real(report.total_bytes)};
        }
    }
    return best;
}

// Worth saying where it saves a quarter of all.
std::string advice(const Params& params, double held) {
    constexpr double kWorth = 0.25;
    const Options& o = params.options;
    const double all = held + o.activations();
    if (o.activations() > 3.0 * held && o.batch > 1) {
        return join("most of it are activations: --batch ", (o.batch + 1) / 2, " --accum ",
                    2 * o.accum, " needs about half, for the same text in a step");
    }
    const auto [name, bytes] = smaller_recipe(params);
    if (params.ranks.count == 1 && held - bytes > kWorth * all) {
        return format("--recipe %s would hold %.1f MiB instead of %.1f", name, mib(bytes),
                      mib(held));
    }
    if (params.ranks.count > 1 && o.zero < 2 && held > (1.0 - kWorth) * all) {
        return format("--zero %d shares more of it out to the ranks", o.zero < 1 ? 1 : 2);
    }
    return "";
}

} // namespace

double measured_peak(const Options& o) {
    constexpr double kFast = 5e-3; // seconds of the small product
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = static_cast<int32_t>(o.threads);
    desc.backend = o.backend.empty() ? nullptr : o.backend.c_str();
    desc.log_level = MP_LOG_ERROR;
    Context context;
    MP_CHECK(mp_context_create(&desc, out(context)));
    constexpr int64_t kSmall = 192, kLarge = 1024;
    double peak = rate_of(context.get(), MP_DTYPE_FP32, kSmall, 0.0);
    if (2.0 * real(kSmall * kSmall * kSmall) / peak < kFast) {
        for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_BF16}) {
            peak = std::max(peak, rate_of(context.get(), dtype, kLarge, 0.1));
        }
    }
    return peak;
}

double operations_per_token(const Options& o) {
    const double width = real(o.dim);
    const double weights = real(o.layers) * 12.0 * width * width + 256.0 * width;
    return 6.0 * weights + 12.0 * real(o.layers) * real(o.context) * width;
}

std::string memory_text(const Params& params, const mp_memory_report& held) {
    std::string text = "memory (MiB):";
    std::vector<std::pair<std::string, int64_t>> classes = states_of(held);
    classes.insert(classes.begin(), {{"weights", held.weight_bytes},
                                     {"master", held.master_bytes},
                                     {"gradients", held.grad_bytes},
                                     {"sums over ranks", held.reduced_grad_bytes}});
    classes.emplace_back("compensation", held.compensation_bytes);
    for (const auto& [name, bytes] : classes) {
        if (bytes > 0) {
            text += join(" ", name, format(" %.2f,", mib(real(bytes))));
        }
    }
    const auto total = real(held.total_bytes);
    const auto machine = real(sysconf(_SC_PHYS_PAGES)) * real(sysconf(_SC_PAGE_SIZE));
    text += format(" in all %.2f; activations at most %.1f; the machine has %.0f", mib(total),
                   mib(params.options.activations()), mib(machine));
    const std::string more = advice(params, total);
    return text + (more.empty() ? "" : "\nadvice: " + more);
}

// VmHWM where there is /proc, because getrusage's number survives exec.
int64_t peak_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmHWM:")) {
            return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
        }
    }
    struct rusage usage {};
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * 1024 : 0;
}

} // namespace train
