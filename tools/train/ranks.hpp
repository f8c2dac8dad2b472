// SPDX-License-Identifier: Apache-2.0
// Ranks that share a step: threads of this process, or processes under mpirun. The passes of a step are numbered through
// all of them: of A passes, rank r of N takes those from r A / N up to (r + 1) A / N.
#pragma once

#include <functional>
#include <vector>

#include "options.hpp"
#include "support.hpp"

namespace train {

struct Ranks {
    mp_comm* comm = nullptr; // none: nothing is shared, and this is the only one
    int32_t rank = 0, count = 1;
    int32_t neighbours = 1; // ranks on this machine, this one too

    // Which of `total` things are this rank's.
    [[nodiscard]] int64_t first(int64_t total) const { return rank * total / count; }
    [[nodiscard]] int64_t end(int64_t total) const { return (rank + 1) * total / count; }

    // Each rank has filled in its own of the values; after it all have all.
    void share(std::vector<double>& values, int64_t total) const;
    // Whether any rank says so.
    [[nodiscard]] bool any(bool mine) const;
};

// What a rank does. A Failure is printed and makes the whole a failure.
using RankBody = std::function<void(const Ranks&)>;

// The processes of --mpi for as long as this lives; alone without.
class Processes {
  public:
    explicit Processes(const Options& options);
    // Whether this process is the one that prints and writes files.
    [[nodiscard]] bool is_first() const { return mine_.rank == 0; }
    // That they are on, as many ranks on each.
    [[nodiscard]] double machines() const {
        return mine_.neighbours > 0 ? real(mine_.count) / real(mine_.neighbours) : 1.0;
    }
    // Runs what every process does before it trains, and throws on all where it failed on one: nobody waits for a rank
    // that is gone.
    void begin(const std::function<void()>& body) const;
    // Throws where processes have other values, with the name of the first.
    void must_agree(const std::vector<Options::Setting>& settings) const;
    // Calls body once for each rank of this process, all at the same time, rank 0 on this thread; false if any failed.
    bool run(const Options& options, const RankBody& body) const;

  private:
    Comm comm_;
    Ranks mine_;
};

} // namespace train
