// SPDX-License-Identifier: Apache-2.0
#include "host/device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <omp.h>
#include <sys/mman.h>

#include "host/gemm_candidates.hpp"
#include "host/isa/isa.hpp"
#include "kokkos/host_ops.hpp"

namespace mp::backends::host {
namespace {

constexpr std::size_t kCacheLine = 64;
// From this size on memory comes in huge pages where the system has them: fewer address translations make
// streaming reads about a tenth faster.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kParallelCopy = std::size_t{4} << 20; // below, one thread is as fast

std::size_t alignment_for(std::size_t bytes) { return bytes >= kHugePage ? kHugePage : kCacheLine; }

// Calls body(begin, end) with the share of each thread, cut at page boundaries.
template <typename Body> void share_out(int32_t threads, std::size_t bytes, const Body& body) {
    if (bytes < kParallelCopy || threads == 1) {
        body(std::size_t{0}, bytes);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        const auto team = static_cast<std::size_t>(omp_get_num_threads());
        const auto rank = static_cast<std::size_t>(omp_get_thread_num());
        const std::size_t share = (bytes / team + 4095) / 4096 * 4096;
        const std::size_t begin = std::min(bytes, rank * share);
        body(begin, std::min(bytes, begin + share));
    }
}

} // namespace

HostDevice::HostDevice(const DeviceConfig& config)
    : config_(config), topology_(topology::detect()),
      num_threads_(config.num_threads > 0 ? config.num_threads : topology_.physical_cores) {
    thread_reason_.set(config.num_threads > 0 ? "as the caller asked"
                                              : "one for each physical core");
    if (config.bind_threads) {
#pragma omp parallel num_threads(num_threads_)
        {
            const Status status = topology::bind_current_thread(omp_get_thread_num());
            if (!status.ok()) {
                config_.log.write(2, status.text(), config_.log.payload);
            }
        }
    }
    config_.log.write(3, topology_.sentence.c_str(), config_.log.payload);
}

void HostDevice::describe(char* buffer, std::size_t capacity) const noexcept {
    TextLine<2048> ranking;
    describe_gemm_ranking(*this, ranking);
    (void)std::snprintf(
        buffer, capacity,
        R"({"name": "host", "isa": "%s", "threads": %d, "threads_reason": "%s", "topology": "%s", "gemm": %s})",
        active_isa().name, num_threads_, thread_reason_.c_str(), topology_.sentence.c_str(),
        ranking.c_str());
}

Status HostDevice::allocate(std::size_t bytes, void** out) noexcept {
    const std::size_t alignment = alignment_for(bytes);
    *out = config_.memory.allocate(bytes, alignment, config_.memory.payload);
    if (*out == nullptr) {
        return Status::error(Code::out_of_memory, "host: no memory for %zu bytes", bytes);
    }
    if (alignment == kHugePage) {
        (void)madvise(*out, bytes, MADV_HUGEPAGE); // advice: without it everything works, slower
    }
    return {};
}

void HostDevice::release(void* pointer, std::size_t bytes) noexcept {
    config_.memory.release(pointer, bytes, alignment_for(bytes), config_.memory.payload);
}

Status HostDevice::create_queue(void* native, Queue** out) noexcept {
    if (native != nullptr) {
        return Status::error(Code::unsupported, "host: there are no native streams to wrap");
    }
    *out = new (std::nothrow) HostQueue;
    return *out != nullptr ? Status()
                           : Status::error(Code::out_of_memory, "host: no memory for a queue");
}

Status HostDevice::copy(Queue& /*queue*/, void* destination, const void* source, std::size_t bytes,
                        CopyKind /*kind*/) noexcept {
    share_out(num_threads_, bytes, [&](std::size_t begin, std::size_t end) {
        std::memcpy(static_cast<char*>(destination) + begin,
                    static_cast<const char*>(source) + begin, end - begin);
    });
    return {};
}

Status HostDevice::zero(Queue& /*queue*/, void* destination, std::size_t bytes) noexcept {
    share_out(num_threads_, bytes, [&](std::size_t begin, std::size_t end) {
        std::memset(static_cast<char*>(destination) + begin, 0, end - begin);
    });
    return {};
}

CandidateList HostDevice::candidates(OpKind kind) const noexcept {
    return kind == OpKind::gemm ? gemm_candidates(*this) : kokkos::host_candidates(kind);
}

} // namespace mp::backends::host
