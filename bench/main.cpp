// SPDX-License-Identifier: Apache-2.0
// mixedprec_bench [--threads N] [--elements N] [--repeats N] [--only TEXT] [--linear]
// JSON on standard output: the machine, STREAM-like rates, then one row a case with its ratio to the baseline that was
// measured in turns with it. Progress on standard error.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "report.hpp"

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

Row measure_streaming(const std::string& name, const std::vector<Pass>& passes,
                      const std::function<void()>& ours, const Options& options) {
    return {name, compare(best_streaming(passes, options.threads), ours, options.repeats),
            bytes_moved(passes), "GB/s", static_cast<double>(passes.back().count)};
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
    if (options.threads < 0 || options.elements < 4096 || options.repeats < 15 ||
        options.repeats > 1000) {
        throw std::runtime_error(
            "--threads must be >= 0, --elements >= 4096, --repeats from 15 to 1000");
    }
    return options;
}

// What Linux says of the first processor; empty if nothing.
std::string cpuinfo(const std::string& key) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind(key + "\t", 0) == 0) {
            return line.substr(std::min(line.size(), line.find(':') + 2));
        }
    }
    return "";
}

// Hypervisors often hide the model's name, but not its numbers.
std::string cpu_name() {
    const std::string name = cpuinfo("model name");
    return name.empty()
               ? "part " + cpuinfo("CPU part")
               : name + ", family " + cpuinfo("cpu family") + ", model " + cpuinfo("model");
}

void print(const Row& row, bool last) {
    const Comparison& times = row.times;
    const double element_ns = row.elements > 0 ? times.seconds / row.elements * 1e9 : 0;
    std::printf("    {\"name\": \"%s\", \"ms\": %.4f, \"%s\": %.1f", row.name.c_str(),
                times.seconds * 1e3, row.unit.c_str(), row.amount / times.seconds / 1e9);
    if (element_ns > 0) {
        std::printf(", \"ns_per_element\": %.4f", element_ns);
    }
    if (row.in_cache_ns > 0) {
        const double memory = times.ratio * element_ns;
        const bool by_memory = memory >= row.in_cache_ns;
        std::printf(", \"in_cache_ns_per_element\": %.4f, \"limit\": \"%s\", \"of_limit\": %.3f",
                    row.in_cache_ns, by_memory ? "memory" : "instructions",
                    std::max(memory, row.in_cache_ns) / element_ns);
    }
    if (times.ratio > 0) {
        std::printf(", \"baseline\": \"%s\", \"baseline_ms\": %.4f, \"ratio\": %.3f, "
                    "\"ratio_interval\": [%.3f, %.3f]",
                    times.baseline.c_str(), times.baseline_seconds * 1e3, times.ratio,
                    times.ratio_low, times.ratio_high);
    } else {
        std::printf(", \"baseline\": null, \"baseline_ms\": null, \"ratio\": null, "
                    "\"ratio_interval\": null");
    }
    std::printf("}%s\n", last ? "" : ",");
}

std::string description_of(const mp_context* context) {
    std::size_t needed = 0;
    (void)mp_context_describe(context, nullptr, 0, &needed);
    std::string text(needed, '\0');
    check(mp_context_describe(context, text.data(), text.size(), nullptr));
    text.resize(std::strlen(text.c_str()));
    return text;
}

// The value of the first "isa" in the description.
std::string isa_of(const std::string& description) {
    const std::string key = "\"isa\": \"";
    const std::size_t at = description.find(key);
    const std::size_t begin = at + key.size();
    return at == std::string::npos
               ? ""
               : description.substr(begin, description.find('"', begin) - begin);
}

void print_header(const mp_context* context, const Options& options, const StreamRates& rates) {
    const std::string description = description_of(context);
    std::printf("{\n  \"library\": \"%s\",\n  \"cpu\": \"%s\",\n", mp_library_build_info(),
                cpu_name().c_str());
    std::printf("  \"isa\": \"%s\",\n  \"streaming_isa\": \"%s\",\n  \"context\": %s,\n",
                isa_of(description).c_str(), streaming_isa(), description.c_str());
    std::printf("  \"threads\": %d,\n  \"elements\": %zu,\n", options.threads, options.elements);
    std::printf("  \"times\": \"medians of %d pairs of turns, baseline and ours\",\n"
                "  \"ratio\": \"baseline / ours, median over the pairs\",\n"
                "  \"ratio_interval\": \"95 %% interval of that median by order statistics\",\n",
                options.repeats);
    std::printf(
        "  \"stream_GB_per_s\": {\"copy\": %.1f, \"copy_non_temporal\": %.1f, \"triad\": %.1f},\n",
        rates.copy, rates.copy_non_temporal, rates.triad);
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
    print_header(context, options, rates);
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
