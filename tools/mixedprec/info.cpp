// SPDX-License-Identifier: Apache-2.0
// mixedprec info: what this machine has, what the library found of it or why not, and whether it computes right.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "program.hpp"
#include "selftest.hpp"
#include "table.hpp"

extern "C" char** environ;

namespace command {
namespace {

struct Options {
    bool no_test = false;
};

constexpr std::array kVariables{
    "MIXEDPREC_NUM_THREADS",      "OMP_NUM_THREADS",          "MIXEDPREC_ISA",
    "MIXEDPREC_MODULE_PATH",      "MIXEDPREC_ONEDNN_LIBRARY", "MIXEDPREC_HWLOC_LIBRARY",
    "MIXEDPREC_CUBLASLT_LIBRARY", "MIXEDPREC_NCCL_LIBRARY",   "MIXEDPREC_HIP_LIBRARY"};

// A line of /proc/cpuinfo, "" where there is none.
std::string cpu_line(const std::string& name) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(':');
        if (line.starts_with(name) && colon != std::string::npos && colon + 2 <= line.size()) {
            return line.substr(colon + 2);
        }
    }
    return "";
}

// Of the processor's flags those that matter to low precision.
Json cpu_flags() {
    Json found = Json::array();
    const std::vector<std::string> flags = split(cpu_line("flags"), ' ');
    for (const char* flag :
         {"avx2", "fma", "f16c", "avx512f", "avx512vbmi", "avx512_vnni", "avx512_bf16",
          "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"}) {
        if (std::find(flags.begin(), flags.end(), flag) != flags.end()) {
            found.emplace_back(flag);
        }
    }
    return found;
}

std::string read_until_end(int file, int timeout_ms) {
    std::string text;
    std::array<char, 4096> buffer{};
    const double end = seconds() + timeout_ms / 1000.0;
    for (;;) {
        pollfd wait{file, POLLIN, 0};
        const double left = (end - seconds()) * 1000.0;
        if (left <= 0.0 || poll(&wait, 1, static_cast<int>(left) + 1) <= 0) {
            return text;
        }
        const ssize_t got = read(file, buffer.data(), buffer.size());
        if (got <= 0) {
            return text;
        }
        text.append(buffer.data(), static_cast<size_t>(got));
    }
}

// What the program says of itself under `mixedprec probe`, until it ends.
std::string probe_output() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        return "";
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::array<char*, 3> words{const_cast<char*>("mixedprec"), const_cast<char*>("probe"), nullptr};
    pid_t child = 0;
    const int failed =
        posix_spawn(&child, "/proc/self/exe", &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string text;
    if (failed == 0) {
        text = read_until_end(ends[0], 20000);
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
    close(ends[0]);
    return text;
}

struct NoOptions {};

Json found_or_not(const std::string& name, bool found, const std::string& text) {
    return {{"name", name}, {"found", found}, {"text", text}};
}

// Transports are tried in a process of their own: opening MPI may end a program, or wait. A line each, so that what was found
// before is not lost.
Json probe_transports() {
    Json found = Json::array();
    for (const std::string& line : split(probe_output(), '\n')) {
        if (Json one = Json::parse(line, nullptr, false); one.is_object()) {
            found.push_back(std::move(one));
        }
    }
    if (found.size() < 2) { // MPI comes last
        found.push_back(found_or_not("MPI", false,
                                     "looking for it ended the process that looked, or took too "
                                     "long: MPI may not start outside of mpirun here"));
    }
    return found;
}

void print_now(const Json& found) {
    std::puts(found.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    std::fflush(stdout);
}

Result probe(const NoOptions&) {
    std::array<char, MP_COMM_UNIQUE_ID_BYTES> id{};
    const bool nccl = mp_comm_get_nccl_unique_id(id.data(), id.size()) >= 0;
    print_now(found_or_not("NCCL", nccl, nccl ? "found" : mp_last_error_message()));
    mp_comm* comm = nullptr;
    if (mp_comm_create_mpi(nullptr, nullptr, &comm) >= 0) {
        std::array<char, 1024> text{};
        mp_comm_describe(comm, text.data(), text.size(), nullptr);
        print_now(found_or_not("MPI", true, text.data()));
        mp_comm_destroy(comm);
    } else {
        print_now(found_or_not("MPI", false, mp_last_error_message()));
    }
    static_cast<void>(mp_library_shutdown());
    return {};
}

Json accelerators() {
    Json all = Json::array();
    constexpr std::array<std::pair<int32_t, const char*>, 2> kKinds{
        {{MP_DEVICE_CUDA, "cuda"}, {MP_DEVICE_HIP, "hip"}}};
    for (const auto& [kind, name] : kKinds) {
        int32_t count = 0;
        const mp_status status = mp_device_get_count(kind, &count);
        if (status < 0 || count == 0) {
            all.push_back({{"kind", name},
                           {"found", false},
                           {"text", status < 0 ? mp_last_error_message() : "no device"}});
        }
        for (int32_t i = 0; i < count; i++) {
            std::array<char, 256> text{};
            int64_t bytes = 0;
            const bool good = mp_device_available(kind, i) >= 0;
            const std::string why = good ? "" : mp_last_error_message();
            mp_device_get_name(kind, i, text.data(), text.size(), nullptr);
            mp_device_get_memory(kind, i, &bytes);
            all.push_back(
                {{"kind", name},
                 {"index", i},
                 {"found", good},
                 {"name", text.data()},
                 {"bytes", bytes},
                 {"text", good ? join(text.data(), ", ", bytes_text(real(bytes))) : why}});
        }
    }
    return all;
}

Json support_matrix(const mixedprec::Context& device) {
    struct Row {
        const char* name;
        std::function<Support(int32_t)> ask;
        std::vector<int32_t> dtypes;
    };
    const std::vector<int32_t> all{MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3,
                                   MP_DTYPE_FP8_E5M2};
    const std::vector<Row> rows{
        {"matrix product", [&](int32_t t) { return product_support(device, t, false); }, all},
        {"product, scaled operands",
         [&](int32_t t) { return product_support(device, t, true); },
         {MP_DTYPE_FP16, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2}},
        {"cast from fp32", [&](int32_t t) { return cast_support(device, t); }, all},
        {"quantize",
         [&](int32_t t) { return quantize_support(device, t); },
         {MP_DTYPE_FP16, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2, MP_DTYPE_FP4_E2M1}},
        {"optimizer step of weights",
         [&](int32_t t) {
             return step_support(device, t == MP_DTYPE_FP32   ? "fp32"
                                         : t == MP_DTYPE_FP16 ? "fp16_mixed"
                                         : t == MP_DTYPE_BF16 ? "bf16_pure_kahan"
                                                              : "msamp_o3");
         },
         {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3}}};
    Json matrix = Json::array();
    for (const Row& row : rows) {
        for (const int32_t dtype : row.dtypes) {
            const Support support = row.ask(dtype);
            matrix.push_back({{"operation", row.name},
                              {"dtype", mp_dtype_name(dtype)},
                              {"support", support.how},
                              {"by", support.why}});
        }
    }
    return matrix;
}

// One row an operation, one column a type, and below the reasons of what is not native.
std::string matrix_text(const Json& matrix) {
    const std::vector<std::string> dtypes{"fp32",     "fp16",     "bf16",
                                          "fp8_e4m3", "fp8_e5m2", "fp4_e2m1"};
    std::vector<std::string> headings{"operation"};
    headings.insert(headings.end(), dtypes.begin(), dtypes.end());
    Table table(headings);
    std::vector<std::string> cells;
    std::string notes;
    for (const Json& entry : matrix) {
        const std::string name = entry.at("operation"), dtype = entry.at("dtype"),
                          how = entry.at("support"), by = entry.at("by");
        if (cells.empty() || cells[0] != name) {
            if (!cells.empty()) {
                table.add(cells);
            }
            cells.assign(headings.size(), "-");
            cells[0] = name;
        }
        const auto column = std::find(dtypes.begin(), dtypes.end(), dtype) - dtypes.begin();
        cells[size(column) + 1] = how;
        if (how == "emulated" || how == "no") {
            notes += "  " + name + " " + dtype + ": " + clean(by) + "\n";
        }
    }
    table.add(cells);
    return table.text() + (notes.empty() ? "" : "Why not native:\n" + notes);
}

Json variables() {
    Json all = Json::object();
    for (const char* name : kVariables) {
        const char* value = std::getenv(name);
        all[name] = value == nullptr ? Json() : Json(value);
    }
    return all;
}

struct Device {
    std::string name;
    mixedprec::Context context;
};

std::vector<Device> devices(const Json& found) {
    std::vector<Device> all;
    all.push_back({"host", host_context()});
    for (const Json& one : found) {
        if (one.at("found")) {
            mixedprec::ContextOptions options;
            options.device_kind = one.at("kind") == "cuda" ? MP_DEVICE_CUDA : MP_DEVICE_HIP;
            options.device_index = one.at("index");
            all.push_back({join(one.at("kind").get<std::string>(), " ", options.device_index),
                           mixedprec::Context::create(options)});
        }
    }
    return all;
}

void add_devices(Result& result, const Options& options) {
    result.json["devices"] = Json::array();
    for (const Device& device : devices(result.json.at("accelerators"))) {
        Json entry{{"name", device.name},
                   {"operations", support_matrix(device.context)},
                   {"self_test", Json::array()}};
        result.text += "\nOn " + device.name + "\n" + matrix_text(entry.at("operations"));
        if (!options.no_test) {
            const double begin = seconds();
            std::string failed;
            for (const Check& check : self_test(device.context)) {
                entry["self_test"].push_back(
                    {{"name", check.name}, {"good", check.good}, {"why", check.why}});
                if (!check.good) {
                    failed += "  " + check.name + ": " + clean(check.why) + "\n";
                    result.code = kFailed;
                }
            }
            result.text += failed.empty() ? format("Self-test: %zu checks passed in %.1f s\n",
                                                   entry["self_test"].size(), seconds() - begin)
                                          : "Self-test: FAILED\n" + failed;
        }
        result.json["devices"].push_back(entry);
    }
}

void add_machine(Result& result, const Json& host) {
    utsname system{};
    uname(&system);
    const auto memory = real(sysconf(_SC_PHYS_PAGES)) * real(sysconf(_SC_PAGESIZE));
    result.json["library"] = {{"version", mp_library_version()},
                              {"header", MP_VERSION},
                              {"build", mp_library_build_info()}};
    result.json["machine"] = {{"cpu", cpu_line("model name")},
                              {"flags", cpu_flags()},
                              {"architecture", system.machine},
                              {"system", join(system.sysname, " ", system.release)},
                              {"memory_bytes", memory}};
    std::string flags;
    for (const Json& flag : result.json["machine"]["flags"]) {
        flags += flag.get<std::string>() + " ";
    }
    Pairs pairs;
    pairs.add("library", mp_library_build_info());
    pairs.add("processor", join(cpu_line("model name"), " (", system.machine, ")"));
    pairs.add("it has", flags.empty() ? "no flags of interest" : flags);
    pairs.add("memory", bytes_text(memory));
    for (const auto& [key, value] : host.items()) {
        if (value.is_string() || value.is_number() || value.is_boolean()) {
            pairs.add(key, value.is_string() ? value.get<std::string>() : value.dump());
        }
    }
    result.text += pairs.text();
    result.json["host"] = host;
}

void add_found(Result& result) {
    result.json["accelerators"] = accelerators();
    result.json["transports"] = probe_transports();
    Table table({"", "found", "what, or why not"});
    std::map<std::string, std::string> said; // reasons, and whose they were first
    for (const char* kind : {"accelerators", "transports"}) {
        for (const Json& one : result.json[kind]) {
            const std::string name = one.value("kind", one.value("name", "")),
                              text = one.at("text");
            const bool found = one.at("found");
            const auto first = found ? said.end() : said.try_emplace(text, name).first;
            const bool again = first != said.end() && first->second != name;
            table.add({name, found ? "yes" : "no", again ? "as for " + first->second : text});
        }
    }
    result.text += "\n" + table.text();
}

Result info(const Options& options) {
    Result result;
    add_machine(result, Json::parse(host_context().describe()).at("host"));
    add_found(result);
    add_devices(result, options);
    result.json["environment"] = variables();
    result.text += "\nEnvironment\n";
    Pairs pairs;
    for (const auto& [name, value] : result.json["environment"].items()) {
        pairs.add(name, value.is_null() ? "-" : value.get<std::string>());
    }
    result.text += pairs.text();
    return result;
}

} // namespace

void add_info(Program& program) {
    auto options = std::make_shared<Options>();
    Subcommand app = program.add(
        "info", "this machine: what the library found, or why not; self-test", options, info);
    app.add_flag("--no-self-test", options->no_test, "leave the self-test out");
    program.add("probe", "", std::make_shared<NoOptions>(), probe).hide();
}

} // namespace command
