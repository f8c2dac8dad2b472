// SPDX-License-Identifier: Apache-2.0
// One measured row, and how it is printed.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "mixedprec.h"
#include "streaming.hpp"

namespace mp_bench {

struct Options {
    int32_t device = MP_DEVICE_HOST;
    int threads = 0;                 // 0: the library's own choice
    std::size_t elements = 64 << 20; // of the memory-bound cases
    Turns turns;
    bool linear = false; // linear_rows() and nothing else
    bool brief =
        false; // tiny shapes and one call a turn: not to measure, but to see that every case runs
    std::string only;   // substring of the case names to run
    double seconds = 0; // after so many no case begins; 0: all do
};

struct Row {
    std::string name;
    Comparison times;
    double amount;       // bytes moved, or floating-point operations
    std::string unit;    // "GB/s" or "GFLOP/s"
    double elements = 0; // 0 where time by element means nothing
    // The same kernel in the caches by one thread, over the number of threads: what its instructions take. 0: unknown.
    double in_cache_ns = 0;
    std::string why_not = {}; // empty, or why this device does not do it
    bool has_failed = false;  // though it should
};

// Calls that cannot fail here; the words otherwise.
struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};
void check(mp_status status);
// The row, or why this device does not do it; a failure is a row too, and the others are measured.
void add_row(std::vector<Row>& rows, const std::string& name, const std::function<Row()>& measure);
using Shape = std::vector<int64_t>;
mp_tensor_desc tensor_desc(int32_t dtype, const Shape& shape);
mp_tensor* make_tensor(mp_context* context, int32_t dtype, const Shape& shape);
// The numbers of fill_numbers, rounded.
mp_tensor* make_numbers(mp_context* context, int32_t dtype, const Shape& shape);
// Over memory of the context's device.
mp_tensor* wrap_memory(mp_context* context, int32_t dtype, const Shape& shape, void* data);
bool is_on_host(mp_context* context);

std::vector<Row> cast_rows(mp_context* context, const Options& options);
std::vector<Row> quantize_rows(mp_context* context, const Options& options);
std::vector<Row> optimizer_rows(mp_context* context, const Options& options);
// One mix of dtypes at 1e5 to 1e9 parameters.
std::vector<Row> linear_rows(mp_context* context, const Options& options);
std::vector<Row> gemm_rows(mp_context* context, const Options& options);
// Of weights in blocks.
std::vector<Row> coded_rows(mp_context* context, const Options& options);
std::vector<Row> reduce_rows(mp_context* context, const Options& options);
std::vector<Row> zero_rows(mp_context* context, const Options& options);
std::vector<Row> checkpoint_rows(mp_context* context, const Options& options);
// Layers, forward and backward, by recipe.
std::vector<Row> layer_rows(mp_context* context, const Options& options);

bool is_wanted(const Options& options, const std::string& name);
// A call against the streaming kernels that read and write the same bytes; not on the host: against a copy of as many.
Row measure_streaming(mp_context* context, const std::string& name, const std::vector<Pass>& passes,
                      const std::function<void()>& ours, const Options& options);

} // namespace mp_bench
