// SPDX-License-Identifier: Apache-2.0
#include "system/own_file.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <link.h>
#include <memory>
#include <string_view>

namespace mp::system {
namespace {

std::uintptr_t own_address() noexcept { return reinterpret_cast<std::uintptr_t>(&own_directories); }

// As /proc writes names: '\n' is \012.
std::string unescaped(std::string_view text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text.substr(i, 4) == "\\012") {
            plain += '\n';
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

// "begin-end rights offset device inode   path": the path of the mapping that holds an address, or nothing.
std::string path_of_mapping(const std::string& line, std::uintptr_t address) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const char* const last = line.data() + line.size();
    const auto first = std::from_chars(line.data(), last, begin, 16);
    if (first.ptr == last || *first.ptr != '-') {
        return {};
    }
    const auto second = std::from_chars(first.ptr + 1, last, end, 16);
    const std::size_t slash = line.find('/', static_cast<std::size_t>(second.ptr - line.data()));
    return address < begin || address >= end || slash == std::string::npos
               ? std::string()
               : unescaped(std::string_view(line).substr(slash));
}

std::string mapped_file() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (std::string path = path_of_mapping(line, own_address()); !path.empty()) {
            return path;
        }
    }
    return {};
}

// Of the program itself the loader knows argv[0] alone, which its caller chose.
bool is_in_program() noexcept {
    bool found = false;
    // The program comes first.
    (void)::dl_iterate_phdr(
        [](dl_phdr_info* program, std::size_t, void* result) {
            for (int i = 0; i < program->dlpi_phnum; ++i) {
                const auto& part = program->dlpi_phdr[i];
                const std::uintptr_t begin = program->dlpi_addr + part.p_vaddr;
                *static_cast<bool*>(result) |= part.p_type == PT_LOAD && own_address() >= begin &&
                                               own_address() - begin < part.p_memsz;
            }
            return 1;
        },
        &found);
    return found;
}

// As the loader opened it; nothing where that was said relative to a directory of then.
std::string loaded_file() {
    Dl_info info = {};
    if (is_in_program() || ::dladdr(reinterpret_cast<const void*>(&own_directories), &info) == 0 ||
        info.dli_fname == nullptr || info.dli_fname[0] != '/') {
        return {};
    }
    return info.dli_fname;
}

} // namespace

std::vector<std::string> own_directories() {
    std::vector<std::string> directories;
    for (const std::string& file : {loaded_file(), mapped_file()}) {
        const std::size_t slash = file.rfind('/');
        if (slash == std::string::npos) {
            continue;
        }
        std::string directory = file.substr(0, std::max<std::size_t>(slash, 1));
        if (std::find(directories.begin(), directories.end(), directory) == directories.end()) {
            directories.push_back(std::move(directory));
        }
    }
    return directories;
}

bool loader_uses_current_directory() noexcept {
#if defined(RTLD_DI_SERINFO)
    void* program = ::dlopen(nullptr, RTLD_LAZY);
    Dl_serinfo size = {};
    if (program == nullptr || ::dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) {
        return true;
    }
    const std::unique_ptr<char[]> memory(new (std::nothrow) char[size.dls_size]);
    auto* const paths = reinterpret_cast<Dl_serinfo*>(memory.get());
    if (paths == nullptr) {
        return true;
    }
    *paths = size;
    if (::dlinfo(program, RTLD_DI_SERINFO, paths) != 0) {
        return true;
    }
    return std::any_of(paths->dls_serpath, paths->dls_serpath + paths->dls_cnt,
                       [](const Dl_serpath& path) { return path.dls_name[0] != '/'; });
#else
    return true;
#endif
}

} // namespace mp::system
