// SPDX-License-Identifier: Apache-2.0
// The host's operations: each cuts its work into jobs, which the device's threads do by the compiled bodies of the
// instruction set in use (host/kernels). They take all that has a meaning; none depends on how the work was cut.
#pragma once

#include <type_traits>

#include "device/supports.hpp"
#include "dtype/divide.hpp"
#include "host/kernels/isa.hpp"
#include "host/resources/resources.hpp"

namespace mp::backends::host {

inline constexpr const char* kName = "host";

// From so many bytes on, what is written is written around the caches: it would not stay there anyway.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

inline ThreadPool& threads_of(Device& device) noexcept { return resources_of(device).threads; }

// Elements of the chunk that begins at `start`.
inline int64_t chunk_length(int64_t count, int64_t start) {
    return count - start < kChunkElements ? count - start : kChunkElements;
}

// Memory for each of the threads of a loop, from the device's pool.
class ThreadScratch {
  public:
    // `bytes`: a multiple of 64 for each thread.
    Status take(const Resources& from, std::size_t bytes) noexcept {
        bytes_ = bytes;
        return from.scratch.take(bytes * static_cast<std::size_t>(from.threads.threads()), lease_);
    }
    [[nodiscard]] void* of(int32_t thread) const noexcept {
        return static_cast<char*>(lease_.data()) + static_cast<std::size_t>(thread) * bytes_;
    }

  private:
    ScratchPool::Lease lease_;
    std::size_t bytes_ = 0;
};

// The largest magnitude among all elements, as a bit pattern.
uint32_t largest_pattern(ThreadPool& threads, const TensorRef& source) noexcept;

// Candidate::run by run(threads, desc) of an operation, or by run(device, desc) of one that needs scratch memory.
template <auto kRun, class Desc>
Status run_on_threads(Device& device, Queue& /*queue*/, const OpDesc& op) noexcept {
    const auto& desc = static_cast<const Desc&>(op);
    if constexpr (std::is_invocable_v<decltype(kRun), const Resources&, const Desc&>) {
        return kRun(resources_of(device), desc);
    } else {
        kRun(threads_of(device), desc);
        return {};
    }
}
template <auto kRun, class Desc>
inline constexpr Candidate kByThreads = {kName, takes_all<Desc>, run_on_threads<kRun, Desc>,
                                         nullptr, nullptr};

// Of products there are more (host/gemm); the one here takes every product, slowly.
#define X(name, desc, candidate) extern const Candidate candidate;
#include "device/op_kinds.def"
#undef X

} // namespace mp::backends::host
