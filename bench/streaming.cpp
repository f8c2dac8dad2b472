// SPDX-License-Identifier: Apache-2.0
#include "streaming.hpp"

#include <algorithm>
#include <omp.h>

#include "array.hpp"

namespace mp_bench {
namespace {

#if defined(__x86_64__)
constexpr bool kHasNonTemporal = true;
#else
constexpr bool kHasNonTemporal = false; // gcc has no word for such stores
#endif

struct Kernel {
    const char* isa;
    StreamPass* run;
};

// The features are those of the flags in CMakeLists.txt.
Kernel best_kernel() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return {"avx512", avx512::stream_pass};
    }
    if (__builtin_cpu_supports("avx2")) {
        return {"avx2", avx2::stream_pass};
    }
#endif
    return {"baseline", baseline::stream_pass};
}

void stream_once(const Pass& pass, int threads, const Method& method) {
    const Kernel kernel = best_kernel();
#pragma omp parallel num_threads(threads)
    {
        const auto rank = static_cast<std::size_t>(omp_get_thread_num());
        const auto all = static_cast<std::size_t>(omp_get_num_threads());
        const std::size_t share = (pass.count / all) / 4096 * 4096;
        const std::size_t end = rank + 1 == all ? pass.count : (rank + 1) * share;
        kernel.run(pass.streams.data(), pass.streams.size(), rank * share, end, method);
    }
}

std::function<void()> streaming(const std::vector<Pass>& passes, int threads,
                                const Method& method) {
    return [=] {
        for (const Pass& pass : passes) {
            stream_once(pass, threads, method);
        }
    };
}

bool has_stream(const std::vector<Pass>& passes, Access access) {
    return std::any_of(passes.begin(), passes.end(), [&](const Pass& pass) {
        return std::any_of(pass.streams.begin(), pass.streams.end(),
                           [&](const Stream& stream) { return stream.access == access; });
    });
}

std::string name_of(const Method& method, bool has_writes, bool has_updates) {
    const auto stores = [](bool is_non_temporal, const char* what) {
        return std::string(is_non_temporal ? "non-temporal " : "plain ") + what;
    };
    std::string name = has_writes ? stores(method.non_temporal_writes, "writes") : "reads";
    name += has_updates ? ", " + stores(method.non_temporal_updates, "updates") : "";
    return name + (method.prefetch ? ", prefetch" : "");
}

// All methods that differ for these streams.
std::vector<Baseline> candidates(const std::vector<Pass>& passes, int threads) {
    const bool has_writes = has_stream(passes, Access::write);
    const bool has_updates = has_stream(passes, Access::read_write);
    std::vector<Baseline> all;
    for (int bits = 0; bits < 8; ++bits) {
        const Method method = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
        const bool makes_sense = method.non_temporal_writes <= (kHasNonTemporal && has_writes) &&
                                 method.non_temporal_updates <= (kHasNonTemporal && has_updates);
        if (makes_sense) {
            all.push_back(
                {name_of(method, has_writes, has_updates), streaming(passes, threads, method)});
        }
    }
    return all;
}

} // namespace

Baseline best_streaming(const std::vector<Pass>& passes, int threads) {
    return fastest(candidates(passes, threads));
}

double bytes_moved(const std::vector<Pass>& passes) {
    double bytes = 0;
    for (const Pass& pass : passes) {
        for (const Stream& stream : pass.streams) {
            bytes += static_cast<double>(stream.bytes_per_element * pass.count) *
                     (stream.access == Access::read_write ? 2 : 1);
        }
    }
    return bytes;
}

const char* streaming_isa() { return best_kernel().isa; }

StreamRates stream_rates(int threads, std::size_t bytes, const Turns& turns) {
    const Array a(bytes), b(bytes), c(bytes);
    const std::size_t count = bytes / sizeof(double);
    const auto* x = reinterpret_cast<const double*>(a.data());
    const auto* y = reinterpret_cast<const double*>(b.data());
    auto* z = reinterpret_cast<double*>(c.data());
    const auto triad = [&] {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (std::size_t i = 0; i < count; ++i) {
            z[i] = x[i] + 3.0 * y[i];
        }
    };
    const std::vector<Pass> copy = {
        {{{a.data(), 8, Access::read}, {b.data(), 8, Access::write}}, count}};
    const auto rate = [&](double arrays, const std::function<void()>& run) {
        return arrays * static_cast<double>(bytes) / compare({}, run, turns).seconds / 1e9;
    };
    return {rate(2, streaming(copy, threads, {false, false, false})),
            rate(2, streaming(copy, threads, {true, false, false})), rate(3, triad)};
}

} // namespace mp_bench
