// SPDX-License-Identifier: Apache-2.0
#include "context/module_loader.hpp"

#include <dlfcn.h>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "process/environment.hpp"
#include "system/own_file.hpp"

namespace mp {
namespace {

// Null where it cannot be opened; `tried` then says why.
void* open_file(const std::string& path, std::string& tried) {
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        const char* reason = dlerror();
        tried += std::string("; ") + (reason != nullptr ? reason : path.c_str());
    }
    return module;
}

std::vector<std::string> search_directories() {
    std::vector<std::string> directories;
    if (const char* list = process::environment("MIXEDPREC_MODULE_PATH"); list != nullptr) {
        std::istringstream stream{list};
        for (std::string directory; std::getline(stream, directory, ':');) {
            if (!directory.empty()) {
                directories.push_back(directory);
            }
        }
    }
    for (std::string& own : system::own_directories()) {
        directories.push_back(std::move(own));
    }
    return directories;
}

void* open_module(const std::string& file) {
    std::string tried;
    for (const std::string& directory : search_directories()) {
        const std::string path = directory + "/" + file;
        if (access(path.c_str(), R_OK) != 0) {
            tried += "; not at " + path;
        } else if (void* module = open_file(path, tried); module != nullptr) {
            return module;
        }
    }
    // The loader's folders, which are the caller's to name in LD_LIBRARY_PATH, may be said relative to the current one.
    if (system::loader_uses_current_directory()) {
        tried += "; not asked of the system's loader, which looks below the current folder "
                 "(LD_LIBRARY_PATH, RPATH)";
    } else if (void* module = open_file(file, tried); module != nullptr) {
        return module;
    }
    fail(Code::module_not_found,
         "module %s was not found: build or install it, or name its directory in "
         "MIXEDPREC_MODULE_PATH%s",
         file.c_str(), tried.c_str());
}

// What the module's entry gives for our version of the interface.
template <typename Entry>
auto& enter(const std::string& name, const char* symbol, uint32_t version) {
    const std::string file = "libmixedprec-" + name + ".so";
    void* module = open_module(file);
    const auto entry = reinterpret_cast<Entry>(dlsym(module, symbol));
    const auto* found = entry != nullptr ? entry(version) : nullptr;
    if (found == nullptr || found->version != version) {
        fail(Code::version_mismatch,
             "module %s does not speak interface version %u of this library (%s): install both "
             "from one build",
             file.c_str(), version, symbol);
    }
    return *found;
}

} // namespace

const Backend& load_module(const std::string& name) {
    return enter<ModuleEntry>(name, kModuleEntryName, kInterfaceVersion);
}

const TransportModule& load_transport(const std::string& name) {
    return enter<TransportEntry>(name, kTransportEntryName, kTransportVersion);
}

} // namespace mp
