// SPDX-License-Identifier: Apache-2.0
#include "host/resources/limits.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>

#include "host/resources/threads.hpp"
#include "process/environment.hpp"

namespace mp::backends::host {

namespace {

constexpr int32_t kNone = 0;

int32_t lesser(int32_t a, int32_t b) { return a == kNone ? b : (b == kNone ? a : std::min(a, b)); }

// CPU time `quota` in each `period`; a quota that is not positive is none.
int32_t cpus_of(double quota, double period) {
    if (!(quota > 0.0) || !(period > 0.0)) {
        return kNone;
    }
    const double cpus = quota / period;
    const double whole = static_cast<double>(static_cast<int64_t>(std::min(cpus, 1e6)));
    return static_cast<int32_t>(whole + (whole < std::min(cpus, 1e6) ? 1.0 : 0.0));
}

double number_in(const std::string& path) {
    std::ifstream file(path);
    double number = 0.0;
    return file >> number ? number : 0.0;
}

// Version 2: "max 100000" or "200000 100000".
int32_t unified_cpus(const std::string& folder) {
    std::ifstream file(folder + "/cpu.max");
    std::string quota;
    double period = 0.0;
    if (!(file >> quota >> period) || quota == "max") {
        return kNone;
    }
    return cpus_of(std::strtod(quota.c_str(), nullptr), period);
}

int32_t legacy_cpus(const std::string& folder) {
    return cpus_of(number_in(folder + "/cpu.cfs_quota_us"),
                   number_in(folder + "/cpu.cfs_period_us"));
}

// Of a group and those above it.
template <class Limit>
int32_t least(const std::string& root, std::string path, const Limit& limit_of) {
    int32_t found = kNone;
    while (true) {
        found = lesser(found, limit_of(root + path));
        const std::size_t slash = path.rfind('/');
        if (path.empty() || slash == std::string::npos) {
            return found;
        }
        path.erase(slash);
    }
}

} // namespace

int32_t cgroup_cpus(const std::string& membership, const std::string& mount) {
    std::ifstream file(membership);
    int32_t found = kNone;
    // number:controllers:path, of version 2 without controllers
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) {
            continue;
        }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        std::string path = line.substr(second + 1);
        path = path == "/" ? "" : path;
        if (controllers.empty()) {
            found = lesser(found, least(mount, path, unified_cpus));
            continue;
        }
        std::istringstream names(controllers);
        for (std::string name; std::getline(names, name, ',');) {
            if (name == "cpu") {
                // A container sees its own group at the root, whatever path it is given.
                found = lesser(found, least(mount + "/" + controllers, path, legacy_cpus));
                found = lesser(found, least(mount + "/cpu", path, legacy_cpus));
            }
        }
    }
    return found;
}

int32_t parse_omp_threads(const char* text) noexcept {
    if (text == nullptr) {
        return kNone;
    }
    char* end = nullptr;
    errno = 0;
    const long number = std::strtol(text, &end, 10);
    while (*end == ' ') {
        ++end;
    }
    const bool is_number = end != text && errno == 0 && (*end == '\0' || *end == ',');
    return is_number && number > 0 ? static_cast<int32_t>(std::min<long>(number, kMaxThreads))
                                   : kNone;
}

ThreadLimits thread_limits() noexcept {
    ThreadLimits limits;
    limits.omp_threads = parse_omp_threads(process::environment("OMP_NUM_THREADS"));
    try {
        limits.cgroup_cpus = cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): then no limit is known
    }
    return limits;
}

} // namespace mp::backends::host
