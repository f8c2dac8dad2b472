// SPDX-License-Identifier: Apache-2.0
// A device on host memory of which nothing but its operations is special: memory by the caller's hooks, and queues on
// which everything is done when the call returns.
#pragma once

#include <cstdio>
#include <cstring>
#include <new>

#include <unistd.h>

#include "device/backend.hpp"

namespace mp {

class PlainQueue final : public Queue {
  public:
    Status sync() noexcept override { return {}; }
};

class PlainDevice final : public Device {
  public:
    using Candidates = CandidateList (*)(OpKind kind) noexcept;

    // Of a backend that has one device. `instruction_set`: for describe(). All text is static.
    static Status open(const DeviceConfig& config, const char* backend, const char* instruction_set,
                       int32_t threads, Candidates candidates_of, Device** out) noexcept {
        *out = nullptr;
        if (config.device_index != 0) {
            return Status::error(Code::device_unavailable,
                                 "%s: device %d was asked for; there is only device 0", backend,
                                 static_cast<int>(config.device_index));
        }
        *out = new (std::nothrow)
            PlainDevice(config.memory, backend, instruction_set, threads, candidates_of);
        return *out != nullptr
                   ? Status()
                   : Status::error(Code::out_of_memory, "%s: no memory for a device", backend);
    }

    [[nodiscard]] DeviceKind kind() const noexcept override { return DeviceKind::host; }
    [[nodiscard]] int32_t index() const noexcept override { return 0; }
    [[nodiscard]] int32_t num_threads() const noexcept override { return threads_; }
    void describe(Properties& to) const noexcept override {
        to.text("backend", backend_);
        to.text("instruction_set", instruction_set_);
    }

    Status allocate(std::size_t bytes, void** out) noexcept override {
        *out = memory_.take(bytes, kAlignment);
        return *out != nullptr || bytes == 0
                   ? Status()
                   : Status::error(Code::out_of_memory, "%s: the allocator gave no %zu bytes",
                                   backend_, bytes);
    }
    void release(void* pointer, std::size_t bytes) noexcept override {
        memory_.give_back(pointer, bytes, kAlignment);
    }

    Status create_queue(void* native, Queue** out) noexcept override {
        *out = nullptr;
        if (native != nullptr) {
            return Status::error(Code::invalid_argument,
                                 "%s: a host device has no stream of the caller's to use; pass a "
                                 "null native handle",
                                 backend_);
        }
        *out = new (std::nothrow) PlainQueue;
        return *out != nullptr
                   ? Status()
                   : Status::error(Code::out_of_memory, "%s: no memory for a queue", backend_);
    }
    Status copy(Queue& /*queue*/, void* destination, const void* source, std::size_t bytes,
                CopyKind /*kind*/) noexcept override {
        if (bytes != 0) {
            std::memcpy(destination, source, bytes);
        }
        return {};
    }
    Status zero(Queue& /*queue*/, void* destination, std::size_t bytes) noexcept override {
        if (bytes != 0) {
            std::memset(destination, 0, bytes);
        }
        return {};
    }

    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override {
        return candidates_(kind);
    }

  private:
    static constexpr std::size_t kAlignment = 64;

    PlainDevice(const MemoryTable& memory, const char* backend, const char* instruction_set,
                int32_t threads, Candidates candidates_of) noexcept
        : memory_(memory), backend_(backend), instruction_set_(instruction_set), threads_(threads),
          candidates_(candidates_of) {}

    MemoryTable memory_;
    const char* backend_;
    const char* instruction_set_;
    int32_t threads_;
    Candidates candidates_;
};

// Backend::device_count of a backend that always has one.
inline Status count_one_device(int32_t* count) noexcept {
    *count = 1;
    return {};
}

// Backend::summarize of a backend on the host.
inline Status summarize_host(int32_t /*index*/, DeviceSummary* out) noexcept {
    (void)std::snprintf(out->name, sizeof out->name, "host");
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    out->memory_bytes = pages > 0 && page > 0 ? int64_t{pages} * page : 0;
    return {};
}

} // namespace mp
