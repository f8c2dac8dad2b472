// SPDX-License-Identifier: Apache-2.0
// mixedprec_bench [--device host|cuda] [--threads N] [--elements N] [--repeats N] [--only TEXT] [--seconds N]
//     [--linear] [--brief]
// JSON on standard output: the machine, STREAM-like rates, then one row a case with its ratio to the baseline that was
// measured in turns with it. Progress on standard error.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "array.hpp"
#include "report.hpp"

namespace mp_bench {

void check(mp_status status) {
    if (status == MP_STATUS_UNSUPPORTED) {
        throw Unsupported(mp_last_error_message());
    }
    if (status < 0) {
        throw std::runtime_error(std::string(mp_status_string(status)) + ": " +
                                 mp_last_error_message());
    }
}

void add_row(std::vector<Row>& rows, const std::string& name, const std::function<Row()>& measure) {
    try {
        rows.push_back(measure());
    } catch (const std::runtime_error& why) {
        Row row{name, Comparison{}, 0, ""};
        row.why_not = why.what();
        std::replace(row.why_not.begin(), row.why_not.end(), '"', '\''); // it goes into JSON
        row.has_failed = dynamic_cast<const Unsupported*>(&why) == nullptr;
        rows.push_back(row);
    }
}

mp_tensor_desc tensor_desc(int32_t dtype, const Shape& shape) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), desc.shape);
    return desc;
}

mp_tensor* make_tensor(mp_context* context, int32_t dtype, const Shape& shape) {
    const mp_tensor_desc desc = tensor_desc(dtype, shape);
    mp_tensor* tensor = nullptr;
    check(mp_tensor_create(context, &desc, &tensor));
    return tensor;
}

mp_tensor* wrap_memory(mp_context* context, int32_t dtype, const Shape& shape, void* data) {
    const mp_tensor_desc desc = tensor_desc(dtype, shape);
    mp_tensor* tensor = nullptr;
    check(mp_tensor_wrap(context, &desc, data, nullptr, nullptr, &tensor));
    return tensor;
}

mp_tensor* make_numbers(mp_context* context, int32_t dtype, const Shape& shape) {
    std::size_t elements = 1;
    for (const int64_t size : shape) {
        elements *= static_cast<std::size_t>(size);
    }
    const Array numbers(context, elements * sizeof(float));
    numbers.fill([&](char* data) { fill_numbers(reinterpret_cast<float*>(data), elements); });
    mp_tensor* source = wrap_memory(context, MP_DTYPE_FP32, shape, numbers.data());
    mp_tensor* tensor = make_tensor(context, dtype, shape);
    check(dtype == MP_DTYPE_FP32 ? mp_tensor_copy(source, nullptr, tensor)
                                 : mp_tensor_cast(source, nullptr, tensor, nullptr));
    check(mp_context_sync(context)); // before the source goes
    mp_tensor_destroy(source);
    return tensor;
}

bool is_on_host(mp_context* context) {
    mp_tensor* tensor = make_tensor(context, MP_DTYPE_FP32, {1});
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    check(mp_tensor_get_desc(tensor, &desc));
    mp_tensor_destroy(tensor);
    return desc.device_kind == MP_DEVICE_HOST;
}

bool is_wanted(const Options& options, const std::string& name) {
    if (name.find(options.only) == std::string::npos) {
        return false;
    }
    static const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    const bool has_time = options.seconds == 0 || passed.count() < options.seconds;
    std::fprintf(stderr, "%s%s\n", name.c_str(), has_time ? "" : ": left out, no time");
    return has_time;
}

namespace {

// What a device's memory gives a copy that reads and writes `bytes` in all.
class Copy {
  public:
    Copy(mp_context* context, double bytes)
        : from_(make_tensor(context, MP_DTYPE_UINT8, {static_cast<int64_t>(bytes / 2)})),
          to_(make_tensor(context, MP_DTYPE_UINT8, {static_cast<int64_t>(bytes / 2)})) {}
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;
    ~Copy() {
        mp_tensor_destroy(from_);
        mp_tensor_destroy(to_);
    }
    void run() const { check(mp_tensor_copy(from_, nullptr, to_)); }

  private:
    mp_tensor* from_;
    mp_tensor* to_;
};

} // namespace

Row measure_streaming(mp_context* context, const std::string& name, const std::vector<Pass>& passes,
                      const std::function<void()>& ours, const Options& options) {
    Baseline baseline;
    if (options.device == MP_DEVICE_HOST) {
        baseline = best_streaming(passes, options.threads);
    } else {
        const auto copy = std::make_shared<Copy>(context, bytes_moved(passes));
        baseline = {"copy of as many bytes", [copy] { copy->run(); }};
    }
    return {name, compare(baseline, ours, options.turns), bytes_moved(passes), "GB/s",
            static_cast<double>(passes.back().count)};
}

namespace {

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i];
        if (name == "--linear" || name == "--brief") {
            (name == "--linear" ? options.linear : options.brief) = true;
            --i;
            continue;
        }
        if (i + 1 >= argc) {
            throw std::runtime_error(name + " needs a value");
        }
        const char* value = argv[i + 1];
        if (name == "--device" && std::strcmp(value, "cuda") == 0) {
            options.device = MP_DEVICE_CUDA;
        } else if (name == "--device" && std::strcmp(value, "host") == 0) {
            options.device = MP_DEVICE_HOST;
        } else if (name == "--threads") {
            options.threads = std::atoi(value);
        } else if (name == "--elements") {
            options.elements = static_cast<std::size_t>(std::atoll(value)) / 4096 * 4096;
        } else if (name == "--repeats") {
            options.turns.pairs = std::atoi(value);
        } else if (name == "--only") {
            options.only = value;
        } else if (name == "--seconds") {
            options.seconds = std::atof(value);
        } else {
            throw std::runtime_error("unknown option " + name + " " + value +
                                     "; there is --device host|cuda, --threads N, --elements N, "
                                     "--repeats N, --only TEXT, "
                                     "--seconds N, --linear, --brief");
        }
    }
    if (options.threads < 0 || options.elements < 4096 || options.turns.pairs < 15 ||
        options.turns.pairs > 1000) {
        throw std::runtime_error(
            "--threads must be >= 0, --elements >= 4096, --repeats from 15 to 1000");
    }
    if (options.brief) {
        options.elements = std::min<std::size_t>(options.elements, 1 << 16);
        options.turns = {1, 0, {}};
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

void print(const Row& row, bool is_first) {
    if (!row.why_not.empty()) {
        std::printf("%s\n    {\"name\": \"%s\", \"%s\": \"%s\"}", is_first ? "" : ",",
                    row.name.c_str(), row.has_failed ? "failed" : "unsupported",
                    row.why_not.c_str());
        return;
    }
    const Comparison& times = row.times;
    const double element_ns = row.elements > 0 ? times.seconds / row.elements * 1e9 : 0;
    std::printf("%s\n    {\"name\": \"%s\", \"ms\": %.4f, \"%s\": %.1f", is_first ? "" : ",",
                row.name.c_str(), times.seconds * 1e3, row.unit.c_str(),
                row.amount / times.seconds / 1e9);
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
    std::printf("}");
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

void print_header(const mp_context* context, const Options& options) {
    const std::string description = description_of(context);
    std::printf("{\n  \"library\": \"%s\",\n  \"cpu\": \"%s\",\n", mp_library_build_info(),
                cpu_name().c_str());
    std::printf("  \"isa\": \"%s\",\n  \"streaming_isa\": \"%s\",\n  \"context\": %s,\n",
                isa_of(description).c_str(), streaming_isa(), description.c_str());
    std::printf("  \"threads\": %d,\n  \"elements\": %zu,\n  \"brief\": %s,\n", options.threads,
                options.elements, options.brief ? "true" : "false");
    std::printf("  \"times\": \"medians of %d pairs of turns, baseline and ours\",\n"
                "  \"ratio\": \"baseline / ours, median over the pairs\",\n"
                "  \"ratio_interval\": \"95 %% interval of that median by order statistics\",\n",
                options.turns.pairs);
}

void print_rates(mp_context* context, const Options& options) {
    const std::size_t bytes = options.brief ? std::size_t{1} << 20 : std::size_t{256} << 20;
    if (options.device == MP_DEVICE_HOST) {
        const StreamRates rates = stream_rates(options.threads, bytes, options.turns);
        std::printf("  \"stream_GB_per_s\": {\"copy\": %.1f, \"copy_non_temporal\": %.1f, "
                    "\"triad\": %.1f},\n",
                    rates.copy, rates.copy_non_temporal, rates.triad);
        return;
    }
    const double moved = 32.0 * static_cast<double>(bytes); // 8 GiB
    const Copy copy(context, moved);
    const Comparison times = compare(
        {}, [&] { copy.run(); }, options.turns);
    std::printf("  \"stream_GB_per_s\": {\"copy\": %.1f},\n", moved / times.seconds / 1e9);
}

// Returns the exit code: 77 where there is no such device.
int run(Options options) {
    if (mp_device_available(options.device, 0) == MP_STATUS_DEVICE_UNAVAILABLE) {
        std::fprintf(stderr, "skipped: no CUDA device (%s)\n", mp_last_error_message());
        return 77;
    }
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = options.device;
    desc.num_threads = options.threads;
    mp_context* context = nullptr;
    check(mp_context_create(&desc, &context));
    check(mp_context_get_num_threads(context, &options.threads));
    options.turns.finish = [context] { check(mp_context_sync(context)); };

    using Family = std::vector<Row> (*)(mp_context*, const Options&);
    std::vector<Family> families = {cast_rows, quantize_rows, optimizer_rows,
                                    gemm_rows, coded_rows,    layer_rows};
    if (options.device == MP_DEVICE_HOST) {
        families.insert(families.end(), {reduce_rows, zero_rows, checkpoint_rows});
    }
    if (options.linear) {
        families = {linear_rows};
    }
    print_header(context, options);
    print_rates(context, options);
    std::printf("  \"rows\": [");
    bool is_first = true;
    bool has_failed = false;
    for (const Family family : families) {
        for (const Row& row : family(context, options)) {
            print(row, is_first);
            is_first = false;
            has_failed = has_failed || row.has_failed;
        }
        std::fflush(stdout); // what was measured stays, if time runs out
    }
    std::printf("\n  ]\n}\n");
    mp_context_destroy(context);
    return has_failed ? 1 : 0;
}

} // namespace
} // namespace mp_bench

int main(int argc, char** argv) {
    try {
        return mp_bench::run(mp_bench::parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mixedprec_bench: %s\n", error.what());
        return 1;
    }
}
