// SPDX-License-Identifier: Apache-2.0
// What hipcc makes each object do when it is loaded is to register its kernels with the runtime. The runtime is not open
// then, so they are written down here, and registered when it is.
#include <cstddef>
#include <vector>

#include "hip/library.hpp"

namespace {

struct Image {
    const void* data;
    void** handle; // the runtime's
};

struct Kernel {
    std::size_t image;
    const void* host;
    char* text;
    const char* name;
};

struct Variable {
    std::size_t image;
    void* host;
    char* text;
    char* name;
    int external;
    std::size_t bytes;
    int constant;
    int global;
};

struct Registered {
    std::vector<Image> images;
    std::vector<Kernel> kernels;
    std::vector<Variable> variables;
};

// Made by the first object that is loaded, never destroyed.
Registered& registered() {
    static auto& all = *new Registered;
    return all;
}

// A handle is the number of an image, from 1.
std::size_t image_of(void** handle) { return reinterpret_cast<std::size_t>(handle) - 1; }

using RegisterImage = void** (*)(const void*);
using RegisterKernel = void (*)(void**, const void*, char*, const char*, unsigned, void*, void*,
                                void*, void*, int*);
using RegisterVariable = void (*)(void**, void*, char*, char*, int, std::size_t, int, int);

} // namespace

// Their names and arguments are the compiler's (clang, CGCUDANV.cpp).
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

void** __hipRegisterFatBinary(const void* image) {
    registered().images.push_back({image, nullptr});
    return reinterpret_cast<void**>(registered().images.size());
}

void __hipRegisterFunction(void** handle, const void* host, char* text, const char* name,
                           unsigned /*threads*/, void* /*thread*/, void* /*block*/,
                           void* /*block_size*/, void* /*grid_size*/, int* /*warp*/) {
    registered().kernels.push_back({image_of(handle), host, text, name});
}

void __hipRegisterVar(void** handle, void* host, char* text, char* name, int external,
                      std::size_t bytes, int constant, int global) {
    registered().variables.push_back(
        {image_of(handle), host, text, name, external, bytes, constant, global});
}

// At exit, when the runtime has ended before us. A module is not unloaded earlier.
void __hipUnregisterFatBinary(void** /*handle*/) {}
}
// NOLINTEND(readability-identifier-naming)

namespace mp::backends::hip {

const char* register_kernels(void* library) noexcept {
    const auto image = reinterpret_cast<RegisterImage>(dlsym(library, "__hipRegisterFatBinary"));
    const auto kernel = reinterpret_cast<RegisterKernel>(dlsym(library, "__hipRegisterFunction"));
    const auto variable = reinterpret_cast<RegisterVariable>(dlsym(library, "__hipRegisterVar"));
    if (image == nullptr || kernel == nullptr || variable == nullptr) {
        return "__hipRegisterFatBinary, __hipRegisterFunction or __hipRegisterVar";
    }
    std::vector<Image>& images = registered().images;
    for (Image& i : images) {
        i.handle = image(i.data);
    }
    for (const Kernel& k : registered().kernels) {
        kernel(images[k.image].handle, k.host, k.text, k.name, ~0U, nullptr, nullptr, nullptr,
               nullptr, nullptr);
    }
    for (const Variable& v : registered().variables) {
        variable(images[v.image].handle, v.host, v.text, v.name, v.external, v.bytes, v.constant,
                 v.global);
    }
    return nullptr;
}

} // namespace mp::backends::hip
