// SPDX-License-Identifier: Apache-2.0
#include "context/context.hpp"

#include "runtime/describe.hpp"

namespace mp {
namespace {

std::shared_ptr<Stream> open_device(const Backend& backend, const ContextOptions& options,
                                    int32_t index) {
    int32_t count = 0;
    check(backend.device_count(&count));
    if (index < 0 || index >= count) {
        fail(Code::device_unavailable,
             "device_index is %d but backend '%s' has %d device(s), numbered from 0", index,
             backend.name, count);
    }
    DeviceConfig config;
    config.memory = options.memory;
    config.log = options.log;
    config.device_index = index;
    config.num_threads = options.num_threads;
    config.bind_threads = options.bind_threads;
    config.parallel = options.parallel;
    Device* device = nullptr;
    check(backend.open(config, &device));
    return std::make_shared<Stream>(std::shared_ptr<Device>(device), nullptr);
}

} // namespace

const Backend& find_backend(BackendList backends, const std::string& name, DeviceKind kind) {
    std::string names;
    for (int32_t i = 0; i < backends.count; ++i) {
        const Backend& backend = *backends.items[i];
        if (backend.kind != kind) {
            continue;
        }
        if (name.empty() || name == backend.name) {
            return backend;
        }
        names += names.empty() ? backend.name : std::string(", ") + backend.name;
    }
    fail(Code::unknown_name, "backend '%s' is not in this build; there is: %s", name.c_str(),
         names.c_str());
}

Context::Context(const ContextOptions& options, BackendList backends, const Backend* accelerator)
    : host_backend_(&find_backend(backends, options.host_backend, DeviceKind::host)),
      memory_(options.memory), log_(options.log),
      host_(
          open_device(*host_backend_, options, accelerator == nullptr ? options.device_index : 0)),
      own_(accelerator == nullptr ? host_
                                  : open_device(*accelerator, options, options.device_index)) {}

std::shared_ptr<Stream> Context::open_host_stream(int32_t threads) const {
    DeviceConfig config;
    config.memory = memory_;
    config.log.write = [](int32_t, const char*, void*) {}; // the log has a line of the host already
    config.num_threads = threads;
    Device* device = nullptr;
    check(host_backend_->open(config, &device));
    return std::make_shared<Stream>(std::shared_ptr<Device>(device), nullptr);
}

std::shared_ptr<Stream> Context::open_stream(void* native) {
    auto stream = std::make_shared<Stream>(own_->shared_device(), native);
    const std::lock_guard lock(streams_mutex_);
    std::erase_if(streams_, [](const auto& other) { return other.expired(); });
    streams_.push_back(stream);
    return stream;
}

void Context::give_back(const Deleter& deleter, const Device& device) noexcept {
    std::vector<std::shared_ptr<Stream>> users;
    if (!device.is_host() && !deleter.needs_no_wait) {
        const std::lock_guard lock(streams_mutex_);
        try {
            users.push_back(own_);
            for (const auto& other : streams_) {
                if (auto stream = other.lock(); stream != nullptr) {
                    users.push_back(std::move(stream));
                }
            }
        } catch (const std::bad_alloc&) {
            for (const auto& other : streams_) { // as device memory does that is freed
                if (const auto stream = other.lock(); stream != nullptr) {
                    stream->finish();
                }
            }
            own_->finish();
            users.clear();
        }
    }
    given_back_.add(deleter, users);
    given_back_.run_due();
}

Stream& Context::stream_of(DeviceKind kind, int32_t index) const {
    for (Stream* stream : {own_.get(), host_.get()}) {
        if (stream->device().kind() == kind && stream->device().index() == index) {
            return *stream;
        }
    }
    fail(Code::invalid_argument,
         "%s device %d is not open in this context; open it with mp_context_create",
         row_of(kind).label, index);
}

std::string Context::describe() const {
    system::JsonWriter json(system::JsonForm::indented);
    json.begin('{');
    json.key("host");
    mp::describe(host_->device(), json);
    if (own_ != host_) {
        json.key("accelerator");
        mp::describe(own_->device(), json);
    }
    json.end();
    return json.take();
}

} // namespace mp
