// SPDX-License-Identifier: Apache-2.0
// One measured row, and how it is printed.
#pragma once

#include <string>
#include <vector>

#include "mixedprec.h"
#include "streaming.hpp"

namespace mp_bench {

struct Options {
    int threads = 0;                 // 0: the library's own choice
    std::size_t elements = 64 << 20; // of the memory-bound cases
    int repeats = 15;                // pairs of turns, baseline and ours
    bool linear = false;             // linear_rows() and nothing else
    std::string only;                // substring of the case names to run
};

struct Row {
    std::string name;
    Comparison times;
    double amount;       // bytes moved, or floating-point operations
    std::string unit;    // "GB/s" or "GFLOP/s"
    double elements = 0; // 0 where time by element means nothing
    // The same kernel in the caches by one thread, over the number of threads: what its instructions take. 0: unknown.
    double in_cache_ns = 0;
};

// Calls that cannot fail here; the words otherwise.
void check(mp_status status);
mp_tensor* make_tensor(mp_context* context, int32_t dtype, int64_t count);

std::vector<Row> cast_rows(mp_context* context, const Options& options);
std::vector<Row> quantize_rows(mp_context* context, const Options& options);
std::vector<Row> optimizer_rows(mp_context* context, const Options& options);
// One mix of dtypes at 1e5 to 1e9 parameters.
std::vector<Row> linear_rows(mp_context* context, const Options& options);
std::vector<Row> gemm_rows(mp_context* context, const Options& options);
std::vector<Row> reduce_rows(mp_context* context, const Options& options);
std::vector<Row> zero_rows(mp_context* context, const Options& options);
std::vector<Row> checkpoint_rows(mp_context* context, const Options& options);

bool is_wanted(const Options& options, const std::string& name);
// A call against the streaming kernels that read and write the same bytes.
Row measure_streaming(const std::string& name, const std::vector<Pass>& passes,
                      const std::function<void()>& ours, const Options& options);

} // namespace mp_bench
