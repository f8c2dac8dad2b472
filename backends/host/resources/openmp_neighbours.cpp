// SPDX-License-Identifier: Apache-2.0
#include "host/resources/openmp_neighbours.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <strings.h>
#include <unistd.h>

#include "process/environment.hpp"
#include "process/own_thread.hpp"

namespace mp::backends::host {

namespace {

using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

std::string_view file_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1); // npos + 1 is 0
}

// "libgomp.so.1", and what wheels make of it: "libgomp-a34b3233.so.1".
bool is_library(std::string_view file, std::string_view name) {
    return file.size() > name.size() && file.substr(0, name.size()) == name &&
           (file[name.size()] == '.' || file[name.size()] == '-');
}

bool is_gnu(std::string_view file) { return is_library(file, "libgomp"); }
bool is_openmp(std::string_view file) {
    return is_gnu(file) || is_library(file, "libomp") || is_library(file, "libiomp5");
}

// What is loaded: the OpenMP runtimes, and the names by which other objects ask for one.
struct Loaded {
    std::vector<std::string> runtimes; // paths
    std::set<std::string, std::less<>> wanted;
};

void read_needed(const dl_phdr_info& object, const ElfW(Dyn) * entries, Loaded& to) {
    const char* strings = nullptr;
    for (const ElfW(Dyn)* entry = entries; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_STRTAB) {
            // Some C libraries leave it as an offset.
            const ElfW(Addr) at = entry->d_un.d_ptr;
            strings =
                reinterpret_cast<const char*>(at < object.dlpi_addr ? object.dlpi_addr + at : at);
        }
    }
    for (const ElfW(Dyn)* entry = entries; strings != nullptr && entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_NEEDED && is_openmp(strings + entry->d_un.d_val)) {
            to.wanted.emplace(strings + entry->d_un.d_val);
        }
    }
}

int visit(dl_phdr_info* object, std::size_t /*size*/, void* data) {
    auto& to = *static_cast<Loaded*>(data);
    const std::string_view file = file_name(object->dlpi_name);
    try {
        if (is_openmp(file)) {
            to.runtimes.emplace_back(object->dlpi_name);
        } else if (!is_library(file, "libdnnl")) {
            for (int i = 0; i < object->dlpi_phnum; ++i) {
                const ElfW(Phdr)& header = object->dlpi_phdr[i];
                if (header.p_type == PT_DYNAMIC) {
                    read_needed(
                        *object,
                        reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + header.p_vaddr), to);
                }
            }
        }
    } catch (const std::exception&) {
        return 1; // no memory: then those that are known
    }
    return 0;
}

// How often an object was loaded in this process.
int count_loads(dl_phdr_info* object, std::size_t /*size*/, void* data) {
    *static_cast<unsigned long long*>(data) = object->dlpi_adds;
    return 1; // the number is the same for each
}

unsigned long long loads() noexcept {
    unsigned long long found = 0;
    (void)dl_iterate_phdr(count_loads, &found);
    return found;
}

const char* setting_for(const OpenmpRuntime& runtime) noexcept {
    for (const char* name :
         {"OMP_WAIT_POLICY", runtime.is_gnu ? "GOMP_SPINCOUNT" : "KMP_BLOCKTIME"}) {
        if (process::environment(name) != nullptr) {
            return name;
        }
    }
    return nullptr;
}

// In the runtime, which stays loaded from now on.
void* function(const OpenmpRuntime& runtime, const char* name) noexcept {
    void* library = dlopen(runtime.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    return library != nullptr ? dlsym(library, name) : nullptr;
}

// Whether the system gives so many threads now: libgomp ends the program where it does not.
bool can_start(int32_t threads) noexcept {
    std::mutex mutex;
    std::condition_variable wake;
    bool may_end = false;
    std::vector<std::thread> started;
    bool all = true;
    try {
        started.reserve(static_cast<std::size_t>(threads));
        while (started.size() < static_cast<std::size_t>(threads)) {
            started.emplace_back([&] {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [&] { return may_end; });
            });
        }
    } catch (const std::exception&) {
        all = false;
    }
    {
        const std::lock_guard<std::mutex> lock(mutex);
        may_end = true;
    }
    wake.notify_all();
    for (std::thread& thread : started) {
        thread.join();
    }
    return all;
}

void sleep_for_ever(void* /*data*/) {
    (void)pthread_setname_np(pthread_self(), "mixedprec-omp");
    for (;;) {
        (void)pause(); // no signal comes through
    }
}

// A team of sleeping threads, begun by a thread of ours, which is the first of them.
bool add_team(Parallel parallel, int32_t threads) noexcept {
    const process::SignalsBlocked blocked;
    if (!can_start(threads)) {
        return false;
    }
    try {
        std::thread([parallel, threads] {
            parallel(sleep_for_ever, nullptr, static_cast<unsigned>(threads), 0);
        }).detach();
    } catch (const std::exception&) {
        return false;
    }
    return true;
}

// Whom we have notified in this process. A child of fork() has the count of its parent's threads in libgomp too.
struct Notified {
    std::mutex mutex;
    std::map<std::string, int32_t, std::less<>> teams; // threads in libgomp, by its path
};

// Never destroyed: threads may ask while the program ends.
Notified& notified() {
    static Notified& all = *new Notified;
    return all;
}

void notify_gnu(const OpenmpRuntime& runtime, int32_t threads) {
    Notified& before = notified();
    const std::lock_guard<std::mutex> lock(before.mutex);
    int32_t& counted = before.teams.try_emplace(runtime.path.c_str(), 1).first->second;
    if (threads <= counted) {
        return;
    }
    auto* const parallel = reinterpret_cast<Parallel>(function(runtime, "GOMP_parallel"));
    if (parallel != nullptr &&
        add_team(parallel, threads - counted + 1)) { // it does not count the first
        counted = threads;
    }
}

void notify_llvm(const OpenmpRuntime& runtime) noexcept {
    auto* const set = reinterpret_cast<void (*)(int)>(function(runtime, "kmp_set_blocktime"));
    if (set != nullptr) {
        set(0);
    }
}

} // namespace

std::vector<OpenmpRuntime> openmp_runtimes() {
    Loaded loaded;
    (void)dl_iterate_phdr(visit, &loaded);
    std::vector<OpenmpRuntime> found;
    for (const std::string& path : loaded.runtimes) {
        if (loaded.wanted.contains(file_name(path))) {
            OpenmpRuntime& runtime = found.emplace_back();
            runtime.path.set("%s", path.c_str());
            runtime.is_gnu = is_gnu(file_name(path));
        }
    }
    return found;
}

void notify_openmp_neighbours(int32_t threads) noexcept {
    thread_local unsigned long long seen_loads = 0;
    thread_local int32_t seen_threads = 0;
    const unsigned long long now = loads();
    if (now == seen_loads && threads <= seen_threads) {
        return;
    }
    seen_loads = now;
    seen_threads = std::max(threads, seen_threads);
    try {
        for (const OpenmpRuntime& runtime : openmp_runtimes()) {
            if (setting_for(runtime) != nullptr) {
                continue;
            }
            if (runtime.is_gnu) {
                notify_gnu(runtime, threads);
            } else {
                notify_llvm(runtime);
            }
        }
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): no memory: they spin
    }
}

OpenmpReport describe_openmp_neighbours(int32_t threads) noexcept {
    OpenmpReport report;
    report.sentence.set("no OpenMP beside us");
    try {
        std::string sentence;
        for (const OpenmpRuntime& runtime : openmp_runtimes()) {
            sentence += sentence.empty() ? "" : "; ";
            sentence += file_name(runtime.path.c_str());
            const char* setting = setting_for(runtime);
            const char* value = setting != nullptr ? process::environment(setting) : nullptr;
            if (threads == 1) {
                sentence += " beside us, whose threads work alone";
            } else if (setting == nullptr) {
                sentence += " is told of our threads: its own sleep after a loop";
            } else {
                sentence += std::string(" beside us as ") + setting + "=" + value + " says";
                report.spins = report.spins || (::strcasecmp(value, "passive") != 0 &&
                                                std::string_view(value) != "0");
            }
        }
        if (!sentence.empty()) {
            report.sentence.set("%s", sentence.c_str());
        }
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): then nothing is said
    }
    return report;
}

} // namespace mp::backends::host
