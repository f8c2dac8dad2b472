// SPDX-License-Identifier: Apache-2.0
// mixedprec_bench [--threads N] [--elements N] [--repeats N] [--only TEXT] [--linear]
// JSON on standard output: STREAM-like rates of this run, then one row a case with its ratio to the yardstick
// that was measured beside it. Progress on standard error.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <stdexcept>

#include "report.hpp"
#include "streaming.hpp"

namespace mp_bench {

void check(mp_status status) {
    if (status < 0) {
        throw std::runtime_error(std::string(mp_status_string(status)) + ": " +
                                 mp_last_error_message());
    }
}

mp_tensor* make_tensor(mp_context* context, int32_t dtype, int64_t count) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = 1;
    desc.shape[0] = count;
    mp_tensor* tensor = nullptr;
    check(mp_tensor_create(context, &desc, &tensor));
    return tensor;
}

bool is_wanted(const Options& options, const std::string& name) {
    const bool wanted = name.find(options.only) != std::string::npos;
    if (wanted) {
        std::fprintf(stderr, "%s\n", name.c_str());
    }
    return wanted;
}

namespace {

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i];
        if (name == "--linear") {
            options.linear = true;
            --i;
            continue;
        }
        if (i + 1 >= argc) {
            throw std::runtime_error(name + " needs a value");
        }
        const char* value = argv[i + 1];
        if (name == "--threads") {
            options.threads = std::atoi(value);
        } else if (name == "--elements") {
            options.elements = static_cast<std::size_t>(std::atoll(value)) / 4096 * 4096;
        } else if (name == "--repeats") {
            options.repeats = std::atoi(value);
        } else if (name == "--only") {
            options.only = value;
        } else {
            throw std::runtime_error(
                "unknown option " + name +
                "; there is --threads N, --elements N, --repeats N, --only TEXT, --linear");
        }
    }
    if (options.threads < 0 || options.elements < 4096 || options.repeats < 1) {
        throw std::runtime_error("--threads must be >= 0, --elements >= 4096, --repeats >= 1");
    }
    return options;
}

void print(const Row& row, bool last) {
    std::printf("    {\"name\": \"%s\", \"ms\": %.4f, \"%s\": %.1f", row.name.c_str(),
                row.seconds * 1e3, row.unit.c_str(), row.amount / row.seconds / 1e9);
    if (row.per_element_ns > 0) {
        std::printf(", \"ns_per_element\": %.4f", row.per_element_ns);
    }
    if (row.in_cache_ns > 0) {
        const double memory = row.yardstick / row.seconds * row.per_element_ns;
        const bool by_memory = memory >= row.in_cache_ns;
        std::printf(", \"in_cache_ns_per_element\": %.4f, \"limit\": \"%s\", \"of_limit\": %.3f",
                    row.in_cache_ns, by_memory ? "memory" : "instructions",
                    std::max(memory, row.in_cache_ns) / row.per_element_ns);
    }
    if (row.yardstick > 0) {
        std::printf(", \"yardstick_ms\": %.4f, \"ratio\": %.3f", row.yardstick * 1e3,
                    row.yardstick / row.seconds);
    } else {
        std::printf(", \"yardstick_ms\": null, \"ratio\": null");
    }
    std::printf("}%s\n", last ? "" : ",");
}

void run(Options options) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = options.threads;
    mp_context* context = nullptr;
    check(mp_context_create(&desc, &context));
    check(mp_context_num_threads(context, &options.threads));

    const StreamRates rates =
        stream_rates(options.threads, std::size_t{256} << 20, options.repeats);
    std::vector<Row> rows;
    using Family = std::vector<Row> (*)(mp_context*, const Options&);
    constexpr Family kAll[] = {cast_rows,   quantize_rows, optimizer_rows, gemm_rows,
                               reduce_rows, zero_rows,     checkpoint_rows};
    const auto families = options.linear ? std::vector<Family>{linear_rows}
                                         : std::vector<Family>(std::begin(kAll), std::end(kAll));
    for (const Family family : families) {
        const std::vector<Row> more = family(context, options);
        rows.insert(rows.end(), more.begin(), more.end());
    }
    std::printf("{\n  \"library\": \"%s\",\n  \"threads\": %d,\n  \"elements\": %zu,\n",
                mp_library_build_info(), options.threads, options.elements);
    std::printf(
        "  \"stream_GB_per_s\": {\"copy\": %.1f, \"copy_non_temporal\": %.1f, \"triad\": %.1f},\n",
        rates.copy, rates.copy_non_temporal, rates.triad);
    std::printf("  \"rows\": [\n");
    for (std::size_t i = 0; i < rows.size(); ++i) {
        print(rows[i], i + 1 == rows.size());
    }
    std::printf("  ]\n}\n");
    mp_context_destroy(context);
}

} // namespace
} // namespace mp_bench

int main(int argc, char** argv) {
    try {
        mp_bench::run(mp_bench::parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mixedprec_bench: %s\n", error.what());
        return 1;
    }
    return 0;
}
