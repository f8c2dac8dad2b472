// SPDX-License-Identifier: Apache-2.0
// Where the kernels of the tests' NCCL meet: the ranks of one communicator, each in a stream of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace mp::simulated {

// What one call between ncclGroupStart and ncclGroupEnd asked for.
struct NcclPart {
    enum Kind { send, receive, broadcast, all_reduce };
    Kind kind;
    const void* from; // of a receive: none
    void* to;         // of a send: none
    std::size_t bytes;
    int type;
    int operation; // all_reduce
    int peer;      // or the root
};

class NcclRanks {
  public:
    NcclRanks(int64_t number, int size) : number_(number), size_(size), collectives_of_(size, 0) {}
    [[nodiscard]] int64_t number() const noexcept {
        return number_;
    } // no other communicator has it
    [[nodiscard]] int size() const noexcept { return size_; }

    // A rank's kernel: over when all its parts are done, which takes the other ranks; or when it is given up, with nothing left
    // behind that another rank could still use.
    void run(int rank, const std::vector<NcclPart>& parts, const std::atomic<bool>& is_given_up);
    // Somebody has given up.
    void wake();
    // Parts that did not fit to what other ranks asked for.
    [[nodiscard]] static std::atomic<int64_t>& mismatches() noexcept;

  private:
    // A part in a kernel that runs.
    struct Posted {
        const NcclPart* part;
        int* open; // parts of its kernel that are not done
    };
    using Channel = std::pair<int, int>; // from, to

    void post(int rank, const Posted& posted);
    void meet(std::deque<Posted>& mine, std::deque<Posted>& others, const Posted& posted);
    void join(int rank, const Posted& posted);
    void withdraw(const int* open);

    int64_t number_;
    int size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Channel, std::deque<Posted>> sends_;
    std::map<Channel, std::deque<Posted>> receives_;
    std::vector<int64_t> collectives_of_;               // that each rank has begun
    std::map<int64_t, std::deque<Posted>> collectives_; // that not all have
};

} // namespace mp::simulated
