// SPDX-License-Identifier: Apache-2.0
// What all groups over one MPI communicator share: the duplicate of the caller's communicator, the staging buffers, and
// whether it still works. Memory that a pending MPI call may still write is never freed.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "status/status.hpp"

namespace mp::comm {

// Messages carry at most this much; below the 2^30 bytes that an int count of bytes can name, whatever the MPI. Two of
// them in flight to each rank: the copy of one overlaps the transfer of the other, and both stay in the cache.
inline constexpr int64_t kChunkBytes = int64_t{1} << 20;
inline constexpr int64_t kFirstBytes =
    16384; // payload beside the header of a channel's first message

// Says what a channel carries, so that ranks that do not ask for the same find it out.
struct ChannelHeader {
    uint64_t sequence;
    int64_t total; // bytes of the channel
    int64_t count; // of maxima
    int32_t kind;
    int32_t root;
};

using Buffer = std::unique_ptr<unsigned char[]>;

class Base {
  public:
    explicit Base(MPI_Comm comm);
    ~Base();
    Base(const Base&) = delete;
    Base& operator=(const Base&) = delete;

    [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }
    [[nodiscard]] bool is_broken() const noexcept { return is_broken_; }
    // From now on nothing is freed, canceled or finalized.
    void set_broken() noexcept;

    // Buffers of kChunkBytes, or of kFirstBytes and the header; used again and again. Throws std::bad_alloc.
    Buffer take(bool is_large);
    void give(Buffer buffer, bool is_large) noexcept;

    // The next free number of a group, for all groups over this communicator.
    [[nodiscard]] const std::shared_ptr<int32_t>& next_context() const noexcept {
        return next_context_;
    }
    // The highest tag there is.
    [[nodiscard]] int64_t highest_tag() const noexcept;

  private:
    MPI_Comm comm_;
    std::atomic<bool> is_broken_{false};
    std::shared_ptr<int32_t> next_context_;
    std::mutex mutex_; // of free_: transports of one base may be used by a thread each
    std::array<std::vector<Buffer>, 2> free_;
};

// ok for MPI_SUCCESS; peer_lost where MPI says that a process failed; mpi_error otherwise, with its words.
Status mpi_status(int error, const char* what) noexcept;

// How many communicators of this process live, and whether one has broken: then MPI is not finalized.
struct ProcessState {
    std::atomic<int> live{0};
    std::atomic<bool> has_broken{false};
    std::atomic<bool> is_initialized_by_us{false};
};
ProcessState& process_state() noexcept;
// MPI is initialized and not finalized: handles mean something.
bool mpi_is_alive() noexcept;
// bad_state after MPI_Finalize: MPI ends a process that calls it then.
Status check_not_finalized() noexcept;

} // namespace mp::comm
