// SPDX-License-Identifier: Apache-2.0
#include "host/device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include <omp.h>

#include "host/gemm/candidates.hpp"
#include "host/gemm/host_gemm.hpp"
#include "host/isa/isa.hpp"
#include "host/memory.hpp"
#include "kokkos/host_ops.hpp"

namespace mp::backends::host {

namespace {

// Levels of the log, as in mixedprec/context.h.
constexpr int32_t kWarning = 2;
constexpr int32_t kInfo = 3;

// Below this size one thread is as fast: waking others costs as much as the copy.
constexpr std::size_t kParallelCopy = std::size_t{1} << 20;
constexpr std::size_t kPage = 4096;

// Calls body(begin, end) for each thread's share of `bytes`, cut at page boundaries.
template <typename Body> void share_out(int32_t threads, std::size_t bytes, const Body& body) {
    if (bytes < kParallelCopy || threads == 1) {
        body(std::size_t{0}, bytes);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const auto team = static_cast<std::size_t>(omp_get_num_threads());
        const auto rank = static_cast<std::size_t>(omp_get_thread_num());
        const std::size_t share = (bytes / team + kPage) / kPage * kPage;
        const std::size_t begin = std::min(bytes, rank * share);
        body(begin, std::min(bytes, begin + share));
    }
}

} // namespace

HostDevice::HostDevice(const DeviceConfig& config, topology::Topology topology,
                       const ThreadCount& threads) noexcept
    : config_(config), topology_(std::move(topology)), threads_(threads), scratch_(config.memory) {}

Status HostDevice::open(const DeviceConfig& config, Device** out) noexcept {
    topology::Topology topology = topology::detect();
    ThreadCount threads;
    const Status status = choose_threads(config.num_threads, topology, threads);
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
    *out = device;
    return {};
}

void HostDevice::log(int32_t level, const char* message) const noexcept {
    config_.log.write(level, message, config_.log.payload);
}

void HostDevice::bind() noexcept {
    const Status status = bind_workers(topology_, threads_.count);
    is_bound_ = status.ok();
    if (!status.ok()) {
        log(kWarning, status.text());
    }
}

void HostDevice::describe(char* buffer, std::size_t capacity) const noexcept {
    TextLine<1024> products;
    describe_gemm_order(products);
    TextLine<512> onednn;
    describe_onednn(onednn);
    (void)std::snprintf(
        buffer, capacity,
        R"({"name": "host", "isa": "%s", "threads": %d, "threads_reason": "%s", "threads_bound": %s, )"
        R"("topology": "%s", "onednn": "%s", "gemm": %s})",
        active_isa().name, static_cast<int>(threads_.count), threads_.reason.c_str(),
        is_bound_ ? "true" : "false", topology_.sentence.c_str(), onednn.c_str(), products.c_str());
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
    share_out(threads_.count, bytes, [&](std::size_t begin, std::size_t end) {
        if (end > begin) {
            std::memcpy(static_cast<char*>(destination) + begin,
                        static_cast<const char*>(source) + begin, end - begin);
        }
    });
    return {};
}

Status HostDevice::zero(Queue& /*queue*/, void* destination, std::size_t bytes) noexcept {
    share_out(threads_.count, bytes, [&](std::size_t begin, std::size_t end) {
        if (end > begin) {
            std::memset(static_cast<char*>(destination) + begin, 0, end - begin);
        }
    });
    return {};
}

CandidateList HostDevice::candidates(OpKind kind) const noexcept {
    return kind == OpKind::gemm ? gemm_candidates() : kokkos::host_candidates(kind);
}

} // namespace mp::backends::host
