// SPDX-License-Identifier: Apache-2.0
// The requests of one warp. Lanes run one after another here, so what they do in lockstep on a GPU is put together: the k-th
// time that each of them comes to an instruction, since the warp last met, is one request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernel_calls.hpp"
#include "report.hpp"

namespace mp::blocks {

enum class Access { load, store, atomic };

struct LaneAccess {
    Access how = Access::load;
    bool is_shared = false;
    uintptr_t address = 0;
    std::size_t bytes = 0;
    uint64_t instruction = 0; // with the calls that led there
};

class Requests {
  public:
    void record(unsigned lane, const LaneAccess& access);
    // The warp meets: counts what was recorded, and begins again.
    void count(Counters& to);

  private:
    struct Request {
        Access how = Access::load;
        bool is_shared = false;
        std::size_t bytes = 0; // of a lane
        uint64_t instruction = 0;
        uint32_t lanes = 0;
        std::array<uintptr_t, kWarp> addresses = {};
    };
    void record_piece(unsigned lane, const LaneAccess& access);
    static void count_banks(const Request& request, Banks& to);
    // How many bytes they are, each counted once. `known`: sectors of this pass so far.
    static int64_t count_sectors(const Request& request, Traffic& to,
                                 std::unordered_set<uintptr_t>& known);

    std::vector<Request> requests_;
    std::unordered_map<uint64_t, std::size_t> places_; // of an instruction's k-th time
    std::array<std::unordered_map<uint64_t, uint32_t>, kWarp> times_;
};

} // namespace mp::blocks
