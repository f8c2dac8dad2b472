// SPDX-License-Identifier: Apache-2.0
#include "context/module_loader.hpp"

#include <dlfcn.h>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "system/environment.hpp"

namespace mp {
namespace {

std::string own_directory() {
    Dl_info info = {};
    if (dladdr(reinterpret_cast<const void*>(&load_module), &info) == 0 ||
        info.dli_fname == nullptr) {
        return {};
    }
    const std::string path = info.dli_fname;
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

std::vector<std::string> search_paths(const std::string& file) {
    std::vector<std::string> paths;
    if (const char* list = system::environment("MIXEDPREC_MODULE_PATH"); list != nullptr) {
        std::istringstream directories{list};
        for (std::string directory; std::getline(directories, directory, ':');) {
            if (!directory.empty()) {
                paths.push_back(directory + "/" + file);
            }
        }
    }
    if (const std::string directory = own_directory(); !directory.empty()) {
        paths.push_back(directory + "/" + file);
    }
    paths.push_back(file);
    return paths;
}

void* open_module(const std::string& file) {
    std::string tried;
    for (const std::string& path : search_paths(file)) {
        if (path.find('/') != std::string::npos && access(path.c_str(), R_OK) != 0) {
            tried += "; not at " + path;
            continue;
        }
        if (void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); module != nullptr) {
            return module;
        }
        const char* reason = dlerror();
        tried += std::string("; ") + (reason != nullptr ? reason : path.c_str());
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
