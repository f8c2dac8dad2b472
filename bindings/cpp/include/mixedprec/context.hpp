// SPDX-License-Identifier: Apache-2.0
// The library itself, contexts with their devices, queues and events.
#pragma once

#include "handle.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** Version of the loaded library, in the form of MP_VERSION. */
inline std::uint32_t version() { return mp_library_version(); }
inline const char* build_info() { return mp_library_build_info(); }
/** Final; see mp_library_shutdown. */
inline result<void> shutdown() { return detail::call(mp_library_shutdown); }

class Context : public Handle<mp_context, mp_context_destroy> {
  public:
    using Handle::Handle;
    static result<Context> create(const ContextOptions& options = {}) {
        using Log = decltype(ContextOptions::on_log);
        mp_context_desc desc = options;
        std::shared_ptr<void> keep;
        if (options.on_log) {
            keep = std::make_shared<Log>(options.on_log);
            desc.log_payload = keep.get();
            desc.log = [](std::int32_t level, const char* message, void* payload) {
                detail::guarded([&] { return (*static_cast<Log*>(payload))(level, message), 0; });
            };
        }
        mp_context* raw = nullptr;
        return detail::made<Context>(mp_context_create(&desc, &raw), raw, keep);
    }
    result<void> sync() const { return call(mp_context_sync); }
    result<int> num_threads() const { return value<int>(mp_context_get_num_threads); }
    /** JSON. */
    result<std::string> describe() const { return text(mp_context_describe); }
    static result<int> device_count(std::int32_t kind) {
        return detail::value<int>(mp_device_get_count, kind);
    }
    /** Success where the device can be opened; the error says why not. */
    static result<void> device_available(std::int32_t kind, std::int32_t index = 0) {
        return detail::call(mp_device_available, kind, index);
    }
    static result<std::string> device_name(std::int32_t kind, std::int32_t index = 0) {
        return detail::text(mp_device_get_name, kind, index);
    }
    static result<std::int64_t> device_memory(std::int32_t kind, std::int32_t index = 0) {
        return detail::value<std::int64_t>(mp_device_get_memory, kind, index);
    }
};

class Event : public Handle<mp_event, mp_event_destroy> {
  public:
    using Handle::Handle;
    static result<Event> create(const Context& context) {
        return detail::make<Event>(mp_event_create, context);
    }
    result<void> record(QueueRef queue = {}) { return call(mp_event_record, queue); }
    result<bool> reached() const { return detail::tested(mp_event_test, raw_); }
    result<void> sync() { return call(mp_event_sync); }
};

class Queue : public Handle<mp_queue, mp_queue_destroy> {
  public:
    using Handle::Handle;
    static result<Queue> create(const Context& context) {
        return detail::make<Queue>(mp_queue_create, context);
    }
    /** Over a stream of the caller's: wrap(context, cuda_stream). */
    template <class Stream>
    static result<Queue> wrap(const Context& context, const Stream& stream) {
        return detail::make<Queue>(mp_queue_wrap_native, context, &stream);
    }
    template <class Stream> result<Stream> native() const {
        Stream stream{};
        return detail::give(mp_queue_get_native(raw_, &stream, sizeof(stream)), stream);
    }
    result<void> sync() { return call(mp_queue_sync); }
    result<void> wait(const Event& event) { return call(mp_queue_wait_event, event); }
};

/** The most scratch bytes a queue's work has needed; the default queue is nullptr where the C function takes one. */
inline result<std::size_t> workspace_peak(QueueRef queue) {
    return detail::value<std::size_t>(mp_queue_get_workspace_peak, queue);
}
/** Scratch memory of the caller's, which stays until it is replaced or the queue ends. */
inline result<void> set_workspace(QueueRef queue, void* memory, std::size_t bytes) {
    return detail::call(mp_queue_set_workspace, queue, memory, bytes);
}

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
