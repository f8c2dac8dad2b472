// SPDX-License-Identifier: Apache-2.0
#include "host/device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "dtype/divide.hpp"
#include "host/gemm/candidates.hpp"
#include "host/gemm/host_gemm.hpp"
#include "host/kernels/isa.hpp"
#include "host/ops/candidates.hpp"
#include "host/resources/memory.hpp"
#include "host/resources/openmp_neighbours.hpp"

namespace mp::backends::host {

namespace {

// Levels of the log, as in mixedprec/context.h.
constexpr int32_t kWarning = 2;
constexpr int32_t kInfo = 3;

// Below this size one thread is as fast: waking others costs as much as the copy.
constexpr std::size_t kParallelCopy = std::size_t{1} << 20;
constexpr std::size_t kPart = std::size_t{1} << 18;
// From so many bytes on a copy goes around the caches: else each of its lines is first read from memory. What is copied so is
// seldom one array alone, as weights of other ranks, so little of it would stay there.
constexpr std::size_t kStreamCopy = std::size_t{4} << 20;

// Calls body(begin, end) for each part of `bytes`.
template <typename Body> void share_out(ThreadPool& threads, std::size_t bytes, const Body& body) {
    if (bytes < kParallelCopy) {
        body(std::size_t{0}, bytes);
        return;
    }
    threads.for_each(static_cast<int64_t>(divide_up(bytes, kPart)), [&](int64_t i) {
        const std::size_t begin = static_cast<std::size_t>(i) * kPart;
        body(begin, std::min(bytes, begin + kPart));
    });
}

} // namespace

HostDevice::HostDevice(const DeviceConfig& config, topology::Topology topology,
                       const ThreadCount& threads) noexcept
    : HostBase(config.memory, threads.count, config.parallel), config_(config),
      topology_(std::move(topology)), count_(threads) {}

Status HostDevice::open(const DeviceConfig& config, Device** out) noexcept {
    topology::Topology topology = topology::detect();
    ThreadCount threads;
    ThreadLimits limits = thread_limits();
    if (config.bind_threads) {
        limits.free_cores = topology::free_cores(topology);
    }
    const Status status = choose_threads(config.num_threads, topology, limits, threads);
    if (!status.ok()) {
        return status;
    }
    auto* device = new (std::nothrow) HostDevice(config, std::move(topology), threads);
    if (device == nullptr) {
        return Status::error(Code::out_of_memory, "host: no memory for a device");
    }
    if (config.bind_threads) {
        device->bind();
    }
    TextLine<512> line;
    line.set("host: %d thread(s), %s; %s; instruction set %s", static_cast<int>(threads.count),
             threads.reason.c_str(), device->topology_.sentence.c_str(), active_isa().name);
    device->log(kInfo, line.c_str());
    if (config.parallel.run == nullptr) {
        const OpenmpReport openmp = describe_openmp_neighbours(threads.count);
        line.set("host: %s%s", openmp.sentence.c_str(),
                 openmp.spins
                     ? ": its threads spin on the cores that ours want; set OMP_WAIT_POLICY=passive"
                     : "");
        device->log(openmp.spins ? kWarning : kInfo, line.c_str());
    }
    *out = device;
    return {};
}

void HostDevice::log(int32_t level, const char* message) const noexcept {
    config_.log.write(level, message, config_.log.payload);
}

void HostDevice::bind() noexcept {
    Status status = cores_.take(topology_, count_.count);
    if (status.ok()) {
        status = threads().bind(cores_.cpus());
    }
    is_bound_ = status.ok();
    if (!status.ok()) {
        log(kWarning, status.text());
    }
}

void HostDevice::describe(Properties& to) const noexcept {
    TextLine<512> onednn;
    describe_onednn(onednn);
    to.text("backend", "host");
    to.text("instruction_set", active_isa().name);
    to.text("threads_reason", count_.reason.c_str());
    to.flag("threads_bound", is_bound_);
    to.text("parallel", config_.parallel.run != nullptr ? "the caller's loop" : "own threads");
    to.text("openmp", config_.parallel.run != nullptr
                          ? "the caller's loop"
                          : describe_openmp_neighbours(count_.count).sentence.c_str());
    to.text("topology", topology_.sentence.c_str());
    to.text("onednn", onednn.c_str());
    to.text("products_ranked_for", gemm_processor());
}

DeviceCapability HostDevice::capability() const noexcept {
    DeviceCapability capability;
    (void)std::snprintf(capability.name, sizeof(capability.name), "host (%s)", active_isa().name);
    capability.has_fast_bf16 = backends::host::has_fast_bf16();
    return capability;
}

Status HostDevice::allocate(std::size_t bytes, void** out) noexcept {
    *out = allocate_host(config_.memory, bytes);
    if (*out == nullptr && bytes != 0) {
        return Status::error(Code::out_of_memory, "host: no memory for %zu bytes", bytes);
    }
    return {};
}

void HostDevice::release(void* pointer, std::size_t bytes) noexcept {
    release_host(config_.memory, pointer, bytes);
}

Status HostDevice::create_queue(void* native, Queue** out) noexcept {
    *out = nullptr;
    if (native != nullptr) {
        return Status::error(
            Code::invalid_argument,
            "host: a host device has no stream of the caller's to use; pass a null native handle");
    }
    *out = new (std::nothrow) HostQueue;
    return *out != nullptr ? Status()
                           : Status::error(Code::out_of_memory, "host: no memory for a queue");
}

Status HostDevice::copy(Queue& /*queue*/, void* destination, const void* source, std::size_t bytes,
                        CopyKind /*kind*/) noexcept {
    const IsaTable& table = active_isa();
    share_out(threads(), bytes, [&](std::size_t begin, std::size_t end) {
        char* const to = static_cast<char*>(destination) + begin;
        const char* const from = static_cast<const char*>(source) + begin;
        if (bytes >= kStreamCopy) {
            table.stream_copy(to, from, static_cast<int64_t>(end - begin));
        } else if (end > begin) {
            std::memcpy(to, from, end - begin);
        }
    });
    return {};
}

Status HostDevice::zero(Queue& /*queue*/, void* destination, std::size_t bytes) noexcept {
    share_out(threads(), bytes, [&](std::size_t begin, std::size_t end) {
        if (end > begin) {
            std::memset(static_cast<char*>(destination) + begin, 0, end - begin);
        }
    });
    return {};
}

CandidateList HostDevice::candidates(OpKind kind) const noexcept {
    static constexpr const Candidate* kAll[] = {
#define X(name, desc, candidate) &candidate,
#include "device/op_kinds.def"
#undef X
    };
    return kind == OpKind::gemm ? gemm_candidates()
                                : CandidateList{kAll[static_cast<std::size_t>(kind)], 1};
}

} // namespace mp::backends::host
