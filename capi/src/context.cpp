// SPDX-License-Identifier: Apache-2.0
// context.h, queue.h
#include <charconv>
#include <cstring>

#include "boundary.hpp"
#include "context_registry.hpp"
#include "device_kinds.hpp"
#include "objects.hpp"
#include "process/environment.hpp"
#include "process/float_environment.hpp"
#include "system/memory.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

// The caller's log with its level; kept alive by the context.
struct LogSink {
    mp_log_fn write;
    void* payload;
    int32_t level;
};

void write_log(int32_t level, const char* text, void* payload) {
    const auto* sink = static_cast<const LogSink*>(payload);
    if (sink->write != nullptr && level <= sink->level) {
        const process::CallerFloats floats;
        sink->write(level, text, sink->payload);
    }
}

// Whether there may be so many says the device.
int32_t thread_count(int32_t wanted) {
    const char* text = wanted == 0 ? process::environment("MIXEDPREC_NUM_THREADS") : nullptr;
    if (text != nullptr && *text != '\0') {
        const char* end = text + std::strlen(text);
        const auto parsed = std::from_chars(text, end, wanted);
        if (parsed.ec != std::errc() || parsed.ptr != end || wanted < 0) {
            fail(Code::invalid_argument,
                 "MIXEDPREC_NUM_THREADS is '%.32s'; it must be a number of threads, or 0 or empty "
                 "for "
                 "as many as suit",
                 text);
        }
    }
    return wanted;
}

MemoryTable memory_of(const mp_context_desc& desc) {
    if ((desc.allocate == nullptr) != (desc.release == nullptr)) {
        fail(Code::invalid_argument, "allocate and release must both be given, or neither");
    }
    return desc.allocate == nullptr
               ? system::default_memory()
               : MemoryTable{desc.allocate, desc.release, desc.allocator_payload, true};
}

std::shared_ptr<Context> open(const mp_context_desc& desc) {
    check_flags(desc.flags, MP_CONTEXT_BIND_THREADS, "flags");
    if (desc.api_version > MP_VERSION) {
        fail(Code::version_mismatch,
             "the program was compiled for version %u but this library is %u; install a newer one",
             desc.api_version, static_cast<unsigned>(MP_VERSION));
    }
    const int32_t level = desc.log_level == 0 ? MP_LOG_WARNING : desc.log_level;
    if (level < MP_LOG_ERROR || level > MP_LOG_DEBUG) {
        fail(Code::invalid_argument,
             "log_level is %d; it must be 0 or MP_LOG_ERROR (1) .. MP_LOG_DEBUG (4)", level);
    }
    const auto sink = std::make_shared<LogSink>(LogSink{desc.log, desc.log_payload, level});
    ContextOptions options;
    options.kind =
        desc.device_kind == MP_DEVICE_DEFAULT ? DeviceKind::host : device_kind_of(desc.device_kind);
    options.device_index = desc.device_index;
    options.num_threads = thread_count(desc.num_threads);
    options.bind_threads = (desc.flags & MP_CONTEXT_BIND_THREADS) != 0;
    options.parallel = {desc.parallel, desc.parallel_payload};
    if (options.bind_threads && desc.parallel != nullptr) {
        fail(Code::invalid_argument,
             "MP_CONTEXT_BIND_THREADS binds threads of the library's, but with a parallel loop "
             "of the caller's it has none; bind them there");
    }
    options.host_backend = desc.backend != nullptr ? desc.backend : "";
    options.memory = memory_of(desc);
    options.log = {write_log, sink.get()};
    return open_context(options, sink);
}

const Backend& backend_of_device(int32_t kind, int32_t index) {
    const Backend& backend = backend_of(device_kind_of(kind), "");
    int32_t count = 0;
    check(backend.device_count(&count));
    if (index < 0 || index >= count) {
        fail(Code::device_unavailable,
             "device_index is %d but there are %d device(s), numbered from 0",
             static_cast<int>(index), count);
    }
    return backend;
}

DeviceSummary summary_of(int32_t kind, int32_t index) {
    DeviceSummary summary;
    check(backend_of_device(kind, index).summarize(index, &summary));
    return summary;
}

} // namespace

mp_status mp_context_create(const mp_context_desc* desc, mp_context** out) {
    return boundary([&] {
        output(out);
        *out = make_handle<mp_context>(open(read_optional_struct(desc, "desc")));
    });
}

void mp_context_destroy(mp_context* context) {
    const process::DefaultFloats floats;
    if (const std::shared_ptr<Context> object = take_object(context); object != nullptr) {
        object->give_back_all(); // objects that live on may wait for it otherwise
    }
}

mp_status mp_context_get_num_threads(const mp_context* context, int32_t* num_threads) {
    return boundary([&] {
        *required(num_threads, "num_threads") =
            object_of(context, "context")->host_stream().device().num_threads();
    });
}

mp_status mp_context_describe(const mp_context* context, char* buffer, size_t capacity,
                              size_t* needed) {
    return boundary(
        [&] { copy_text(object_of(context, "context")->describe(), buffer, capacity, needed); });
}

mp_status mp_device_get_count(int32_t device_kind, int32_t* count) {
    return boundary([&] {
        *required(count, "count") = 0;
        check(backend_of(device_kind_of(device_kind), "").device_count(count));
    });
}

mp_status mp_device_available(int32_t device_kind, int32_t device_index) {
    return boundary([&] { (void)backend_of_device(device_kind, device_index); });
}

mp_status mp_device_get_name(int32_t device_kind, int32_t device_index, char* buffer,
                             size_t capacity, size_t* needed) {
    return boundary(
        [&] { copy_text(summary_of(device_kind, device_index).name, buffer, capacity, needed); });
}

mp_status mp_device_get_memory(int32_t device_kind, int32_t device_index, int64_t* bytes) {
    return boundary(
        [&] { *required(bytes, "bytes") = summary_of(device_kind, device_index).memory_bytes; });
}

mp_status mp_context_sync(mp_context* context) {
    return boundary([&] {
        const std::shared_ptr<Context>& object = object_of(context, "context");
        object->stream().sync();
        object->give_back_due();
    });
}

mp_status mp_queue_create(mp_context* context, mp_queue** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        *out = make_handle<mp_queue>(std::make_shared<QueueObject>(owner, nullptr));
    });
}

mp_status mp_queue_wrap_native(mp_context* context, const void* native, mp_queue** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        if (owner->stream().device().is_host()) {
            fail(Code::unsupported, "the host has no native streams to wrap; use mp_queue_create");
        }
        void* stream = *static_cast<void* const*>(required(native, "native"));
        if (stream == nullptr) {
            fail(Code::invalid_argument, "*native is NULL, which stands for the device's default "
                                         "stream; give the handle that this has by "
                                         "name, or a stream of your own");
        }
        *out = make_handle<mp_queue>(std::make_shared<QueueObject>(owner, stream));
    });
}

mp_status mp_queue_get_native(const mp_queue* queue, void* native, size_t size) {
    return boundary([&] {
        const Stream& stream = *object_of(queue, "queue")->stream;
        if (stream.device().is_host()) {
            fail(Code::unsupported,
                 "the host has no native streams; queue is one of the library's own");
        }
        if (size != sizeof(void*)) {
            fail(Code::invalid_argument, "size is %zu; the handle of a stream has %zu bytes", size,
                 sizeof(void*));
        }
        *static_cast<void**>(required(native, "native")) = stream.queue().native();
    });
}

mp_status mp_queue_sync(mp_queue* queue) {
    return boundary([&] {
        const std::shared_ptr<QueueObject> object = object_of(queue, "queue");
        object->stream->sync();
        object->context->give_back_due();
    });
}

mp_status mp_queue_get_workspace_peak(const mp_queue* queue, size_t* bytes) {
    return boundary([&] {
        const std::shared_ptr<QueueObject> object = object_of(queue, "queue");
        *required(bytes, "bytes") = object->stream->workspace_peak();
    });
}

mp_status mp_queue_set_workspace(mp_queue* queue, void* memory, size_t bytes) {
    return boundary([&] {
        const std::shared_ptr<QueueObject> object = object_of(queue, "queue");
        check_lent(memory, bytes);
        object->stream->set_workspace(memory, bytes);
    });
}

mp_status mp_queue_get_workspace(const mp_queue* queue, void** memory, size_t* bytes) {
    return boundary([&] {
        const Stream& stream = *object_of(queue, "queue")->stream;
        *required(memory, "memory") = stream.workspace();
        if (bytes != nullptr) {
            *bytes = stream.workspace_bytes();
        }
    });
}

void mp_queue_destroy(mp_queue* queue) { destroy_handle(queue); }
