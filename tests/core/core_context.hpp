// SPDX-License-Identifier: Apache-2.0
// A context on the host for tests of core.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "context/context.hpp"
#include "enabled.hpp"

namespace mp::test {

// Memory of the C library, nothing logged, one thread.
inline ContextOptions context_options() {
    ContextOptions options;
    options.memory = {
        [](std::size_t size, std::size_t alignment, void*) {
            return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        },
        [](void* pointer, std::size_t, std::size_t, void*) { std::free(pointer); }, nullptr};
    options.log = {[](int32_t, const char*, void*) {}, nullptr};
    options.num_threads = 1;
    return options;
}

inline std::shared_ptr<Context> make_context(const std::string& backend = "", int32_t threads = 1) {
    ContextOptions options = context_options();
    options.num_threads = threads;
    options.host_backend = backend;
    return std::make_shared<Context>(options, enabled_backends(), nullptr);
}

} // namespace mp::test
