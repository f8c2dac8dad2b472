// SPDX-License-Identifier: Apache-2.0
// What core sees of a backend and of a device. A device is its services (memory, queues, copies) and, for each
// kind of operation, an ordered list of candidates; core takes the first that supports the operation.
//
// These types cross between binaries (modules are opened at run time), so: no standard-library type in a
// signature, nothing throws, and kInterfaceVersion changes with any change of this file or of ops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device_kinds.hpp"
#include "device/ops.hpp"
#include "process/float_environment.hpp"
#include "status/status.hpp"

namespace mp {

inline constexpr uint32_t kInterfaceVersion = 19;

// Host memory, by the caller's hooks or the C library; never null.
struct MemoryTable {
    void* (*allocate)(std::size_t size, std::size_t alignment, void* payload) = nullptr;
    void (*release)(void* pointer, std::size_t size, std::size_t alignment,
                    void* payload) = nullptr;
    void* payload = nullptr;
    bool is_callers = false; // so these functions run under the caller's floating-point environment

    // Nothing is asked of them for zero bytes: what they would return is not defined.
    [[nodiscard]] void* take(std::size_t bytes, std::size_t alignment) const noexcept {
        if (bytes == 0) {
            return nullptr;
        }
        const process::CallerFloats floats(is_callers);
        return allocate(bytes, alignment, payload);
    }
    void give_back(void* pointer, std::size_t bytes, std::size_t alignment) const noexcept {
        if (pointer != nullptr) {
            const process::CallerFloats floats(is_callers);
            release(pointer, bytes, alignment, payload);
        }
    }
};

// One line for the caller's log; never null.
struct LogTable {
    void (*write)(int32_t level, const char* message, void* payload) = nullptr;
    void* payload = nullptr;
};

// A parallel loop of the caller's: task(data, index) for 0 <= index < count, in any order. Null: the device's own threads.
struct ParallelTable {
    void (*run)(int32_t count, void (*task)(void* data, int32_t index), void* data,
                void* payload) = nullptr;
    void* payload = nullptr;
};

struct DeviceConfig {
    MemoryTable memory;
    LogTable log;
    int32_t device_index = 0;
    int32_t num_threads = 0; // 0: the device decides
    bool bind_threads = false;
    ParallelTable parallel;
};

// Device memory for work on one queue, in its order: core's, which the backend's products use too (runtime/queue_scratch.hpp).
class ScratchSource {
  public:
    // Aligned to 256 bytes. Work enqueued until give() may use it; who takes it next enqueues behind that work.
    // bad_state where a capture would have to allocate.
    virtual Status take(std::size_t bytes, void** out) noexcept = 0;
    virtual void give(void* memory) noexcept = 0;

  protected:
    ~ScratchSource() = default;
};

// An in-order stream of work; each backend derives its own.
class Queue {
  public:
    Queue() = default;
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;
    virtual ~Queue() = default;
    // Waits for the work so far; reports what failed in it.
    virtual Status sync() noexcept = 0;
    // The caller's own handle for this stream (a cudaStream_t, a hipStream_t), or null.
    [[nodiscard]] virtual void* native() const noexcept { return nullptr; }
    // The capture into a graph that the stream is in, by a number that no other capture of the process has; 0 for none.
    virtual Status capture(uint64_t* number) noexcept {
        *number = 0;
        return {};
    }
    // What a graph would keep for every replay, or what a capture forbids: bad_state in a capture. `what` is a sentence.
    Status refuse_capture(const char* what) noexcept {
        uint64_t number = 0;
        if (Status status = capture(&number); !status.ok() || number == 0) {
            return status;
        }
        return Status::error(Code::bad_state,
                             "%s, but the queue's stream is being captured into a graph; do it, or "
                             "the same step once, before the capture begins",
                             what);
    }
    // Set once, by who made the queue and the scratch memory.
    void set_scratch(ScratchSource* source) noexcept { scratch_ = source; }
    [[nodiscard]] ScratchSource* scratch() const noexcept { return scratch_; }

  private:
    ScratchSource* scratch_ = nullptr;
};

// A point in the work of a queue, of the same device.
class Event {
  public:
    Event() = default;
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    virtual ~Event() = default;
    // After the queue's work so far; again: it is another point.
    virtual Status record(Queue& queue) noexcept = 0;
    // What is enqueued on this queue from now on begins after it.
    virtual Status wait_in(Queue& queue) noexcept = 0;
    virtual Status sync() noexcept = 0;
    virtual Status test(bool* reached) noexcept = 0;
};

class Device;

// What a candidate prepared for one operation and keeps between runs (a primitive, packed weights, ...).
class Plan {
  public:
    Plan() = default;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    virtual ~Plan() = default;
};

struct Candidate {
    const char* name = nullptr;
    // Whether run() takes this operation; if not, says why in one line without the candidate's name.
    bool (*supports)(const Device& device, const OpDesc& op, Reason& reason) noexcept = nullptr;
    // Enqueues the operation. Not set for gemm, which is planned.
    Status (*run)(Device& device, Queue& queue, const OpDesc& op) noexcept = nullptr;
    // gemm only: makes a plan (deleted by the caller) and runs it. The GemmDesc is copied by the plan.
    Status (*prepare)(Device& device, const GemmDesc& op, Plan** plan) noexcept = nullptr;
    Status (*run_plan)(Device& device, Queue& queue, Plan& plan,
                       const GemmBuffers& buffers) noexcept = nullptr;
};

struct CandidateList {
    const Candidate* items = nullptr;
    int32_t count = 0;
};

enum class CopyKind : int32_t { host_to_device, device_to_host, device_to_device };

// What decides which recipe suits a device: products that are clearly faster than fp32 ones.
struct DeviceCapability {
    char name[48] = "device"; // for messages: "compute capability 9.0"
    bool has_fast_fp16 = false;
    bool has_fast_bf16 = false;
    bool has_fast_fp8 = false; // with one scale for a tensor
};

// What a device says of itself, name by name, each once. Text is UTF-8 and read before the call returns.
class Properties {
  public:
    virtual void text(const char* name, const char* value) noexcept = 0;
    virtual void number(const char* name, int64_t value) noexcept = 0;
    virtual void flag(const char* name, bool value) noexcept = 0;

  protected:
    ~Properties() = default;
};

class Device {
  public:
    Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    virtual ~Device() = default;

    [[nodiscard]] virtual DeviceKind kind() const noexcept = 0;
    // Its memory is the host's, and its work is done when the call returns.
    [[nodiscard]] bool is_host() const noexcept { return kind() == DeviceKind::host; }
    [[nodiscard]] virtual int32_t index() const noexcept = 0;
    // What the device is and what was decided about it: the instruction set, the reason for the threads, versions.
    virtual void describe(Properties& to) const noexcept = 0;
    [[nodiscard]] virtual DeviceCapability capability() const noexcept { return {}; }
    // Host threads this device works with (1 for an accelerator).
    [[nodiscard]] virtual int32_t num_threads() const noexcept = 0;

    // Memory is aligned to 64 bytes at least. Its contents are undefined. No bytes: null.
    virtual Status allocate(std::size_t bytes, void** out) noexcept = 0;
    virtual void release(void* pointer, std::size_t bytes) noexcept = 0;
    // The same in the order of a queue, for memory that comes and goes in every step: all its uses come after the one and before
    // the other there. Where the device orders memory neither waits; else both may wait for all its work.
    [[nodiscard]] virtual bool orders_memory() const noexcept { return false; }
    virtual Status allocate_on(Queue& /*queue*/, std::size_t bytes, void** out) noexcept {
        return allocate(bytes, out);
    }
    virtual void release_on(Queue& queue, void* pointer, std::size_t bytes) noexcept {
        (void)queue.sync();
        release(pointer, bytes);
    }
    // Of such memory, when all work of the device is done.
    virtual void release_ordered(void* pointer, std::size_t bytes) noexcept {
        release(pointer, bytes);
    }

    // `native` null: a new stream; otherwise the caller's.
    virtual Status create_queue(void* native, Queue** out) noexcept = 0;
    // Null where work is done when a call returns: nothing is ever behind.
    virtual Status create_event(Event** out) noexcept {
        *out = nullptr;
        return {};
    }

    // Enqueued. Host memory of a host_to_device copy may be reused when the call returns; a device_to_host
    // copy is complete only after sync().
    virtual Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                        CopyKind kind) noexcept = 0;
    // Whether such a copy, made now, may wait for earlier work of the queue.
    virtual bool copy_waits(Queue& /*queue*/, const void* /*destination*/, const void* /*source*/,
                            std::size_t /*bytes*/, CopyKind /*kind*/) noexcept {
        return false;
    }
    virtual Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept = 0;
    // Host memory that copies of this device shall reach without the host's help; a copy from it must then be waited
    // for before it is reused. Not needed for any copy.
    virtual Status pin(void* /*host*/, std::size_t /*bytes*/) noexcept { return {}; }
    virtual void unpin(void* /*host*/, std::size_t /*bytes*/) noexcept {}

    [[nodiscard]] virtual CandidateList candidates(OpKind kind) const noexcept = 0;
};

// A device before it is opened.
struct DeviceSummary {
    char name[256] = {};
    int64_t memory_bytes = 0; // in all
};

// One backend. Everything is static; opening a device is the first thing that does work.
struct Backend {
    uint32_t version = kInterfaceVersion;
    const char* name = nullptr;
    DeviceKind kind = DeviceKind::host;
    // Number of devices, or a status that says why there is none ("no NVIDIA driver ...").
    Status (*device_count)(int32_t* count) noexcept = nullptr;
    // Of a device that there is.
    Status (*summarize)(int32_t index, DeviceSummary* out) noexcept = nullptr;
    Status (*open)(const DeviceConfig& config, Device** out) noexcept = nullptr;
    // Ends the backend's run-time system for good; may be null.
    void (*shutdown)() noexcept = nullptr;
};

// The list that the build writes (backends/enabled.cpp) and capi hands to core.
struct BackendList {
    const Backend* const* items = nullptr;
    int32_t count = 0;
};

// The one symbol of a module: returns its backend, or null when it cannot serve this kInterfaceVersion.
using ModuleEntry = const Backend* (*)(uint32_t version);
inline constexpr const char* kModuleEntryName = "mp_module_entry_v1";

} // namespace mp
