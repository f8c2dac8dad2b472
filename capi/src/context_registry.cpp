// SPDX-License-Identifier: Apache-2.0
#include "context_registry.hpp"

#include <mutex>
#include <set>

#include "context/module_loader.hpp"
#include "enabled.hpp"

namespace mp::capi {
namespace {

struct Registry {
    std::mutex mutex;
    int64_t live_contexts = 0;
    bool is_shut_down = false;
    std::set<const Backend*> modules;
    std::set<const TransportModule*> transports;
};

// Never destroyed: contexts may end during exit.
Registry& registry() {
    static auto* instance = new Registry;
    return *instance;
}

void forget(Context* context) {
    delete context;
    const std::lock_guard lock(registry().mutex);
    --registry().live_contexts;
}

} // namespace

const Backend& backend_of(DeviceKind kind, const std::string& host_backend) {
    if (kind == DeviceKind::host) {
        return find_backend(enabled_backends(), host_backend, DeviceKind::host);
    }
    const Backend& backend = load_module(row_of(kind).name);
    const std::lock_guard lock(registry().mutex);
    registry().modules.insert(&backend);
    return backend;
}

std::shared_ptr<Context> open_context(const ContextOptions& options,
                                      const std::shared_ptr<void>& keep) {
    {
        const std::lock_guard lock(registry().mutex);
        if (registry().is_shut_down) {
            fail(
                Code::bad_state,
                "mp_library_shutdown was called; the library cannot be used again in this process");
        }
        ++registry().live_contexts; // before the devices open, so that no shutdown comes between
    }
    try {
        const Backend* accelerator = options.kind == DeviceKind::host
                                         ? nullptr
                                         : &backend_of(options.kind, options.host_backend);
        auto context = std::make_unique<Context>(options, enabled_backends(), accelerator);
        return {context.release(), [keep](Context* last) { forget(last); }};
    } catch (...) {
        const std::lock_guard lock(registry().mutex);
        --registry().live_contexts;
        throw;
    }
}

void shutdown_backends() {
    const std::lock_guard lock(registry().mutex);
    if (registry().live_contexts > 0) {
        fail(Code::bad_state,
             "mp_library_shutdown: %lld context(s) are still alive; destroy them and all that was "
             "made from them first",
             static_cast<long long>(registry().live_contexts));
    }
    if (registry().is_shut_down) {
        return;
    }
    registry().is_shut_down = true;
    for (const TransportModule* transport : registry().transports) {
        if (transport->shutdown != nullptr) {
            transport->shutdown();
        }
    }
    std::set<const Backend*> backends = registry().modules;
    const BackendList compiled_in = enabled_backends();
    backends.insert(compiled_in.items, compiled_in.items + compiled_in.count);
    for (const Backend* backend : backends) {
        if (backend->shutdown != nullptr) {
            backend->shutdown();
        }
    }
}

const TransportModule& transport_of(const std::string& module) {
    const TransportModule& transport = load_transport(module);
    const std::lock_guard lock(registry().mutex);
    if (registry().is_shut_down) {
        fail(Code::bad_state,
             "mp_library_shutdown was called; the library cannot be used again in this process");
    }
    registry().transports.insert(&transport);
    return transport;
}

} // namespace mp::capi
