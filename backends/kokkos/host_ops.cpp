// SPDX-License-Identifier: Apache-2.0
// The Kokkos kernels on the host.
#include "kokkos/host_ops.hpp"

#include <Kokkos_Core.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "host/isa/isa.hpp"
#include "kokkos/candidates.hpp"
#include "kokkos/runtime.hpp"

namespace mp::backends::kokkos {

namespace {

using Space = Kokkos::OpenMP;

// Kokkos keeps a table of this size for each instance and does not check it.
constexpr int32_t kMaxThreads = 512;

// Instances by thread count, for one user each: Kokkos serializes the launches on an instance, and
// ranks that are threads of one process would wait for each other. Never destroyed: a launch may
// come from a destructor that runs after ours would.
class SpacePool {
  public:
    static SpacePool& get() {
        static SpacePool& pool = *new SpacePool;
        return pool;
    }

    Space take(int32_t threads) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            for (std::size_t i = free_.size(); i-- > 0;) {
                if (free_[i].concurrency() == threads) {
                    Space space = std::move(free_[i]);
                    free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
                    return space;
                }
            }
        }
        return make(threads);
    }

    void give_back(Space space) {
        const std::lock_guard<std::mutex> lock(mutex_);
        free_.push_back(std::move(space));
    }

  private:
    // An instance remembers the nesting depth it was made at, so it is made in a fresh thread, at
    // depth 0.
    static Space make(int32_t threads) {
        std::optional<Space> space;
        std::thread([&] { space.emplace(threads); }).join();
        return *std::move(space);
    }

    std::mutex mutex_;
    std::vector<Space> free_;
};

class SpaceLease {
  public:
    explicit SpaceLease(int32_t threads) : space_(SpacePool::get().take(threads)) {}
    SpaceLease(const SpaceLease&) = delete;
    SpaceLease& operator=(const SpaceLease&) = delete;
    ~SpaceLease() {
        try {
            SpacePool::get().give_back(space_);
        } catch (...) { // NOLINT(bugprone-empty-catch): then the instance is made anew next time
        }
    }
    [[nodiscard]] const Space& space() const noexcept { return space_; }

  private:
    Space space_;
};

struct HostAccess {
    static constexpr bool kNeedsAlignment = false;
    static bool takes_gemm(const GemmDesc& /*op*/, Reason& /*reason*/) noexcept { return true; }

    template <class Body>
    static Status with_space(Device& device, Queue& /*queue*/, const Body& body) {
        const int32_t threads = device.num_threads();
        if (threads < 1 || threads > kMaxThreads) {
            return Status::error(Code::unsupported, "kokkos: 1 to %d host threads, not %d",
                                 static_cast<int>(kMaxThreads), static_cast<int>(threads));
        }
        const Status status = start(threads, -1);
        if (!status.ok()) {
            return status;
        }
        const SpaceLease lease(threads);
        body(lease.space(), kernels::TableOps{&host::active_isa()});
        return {};
    }
};

} // namespace

CandidateList host_candidates(OpKind kind) noexcept { return Candidates<HostAccess>::of(kind); }

} // namespace mp::backends::kokkos
