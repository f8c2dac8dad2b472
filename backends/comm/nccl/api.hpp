// SPDX-License-Identifier: Apache-2.0
// NCCL's functions, looked up by name in the library that is there: nothing is linked, no header of NCCL's is needed, and
// a test can put a script in their place. The types mirror NCCL's C ABI from 2.18 on (a test compares them with nccl.h).
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "status/status.hpp"

namespace mp::comm {

using NcclComm = void*;
using NcclStream = void*;
using NcclResult = int; // its number of results grows: never switched over as if they were known
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

inline constexpr int kNcclUint8 = 1;
inline constexpr int kNcclUint32 = 3;
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclSum = 0;
inline constexpr int kNcclMax = 2;
inline constexpr int kNcclNoColor = -1;
inline constexpr int kNcclMinimumVersion = 21800;

struct NcclUniqueId {
    char internal[128];
};

// ncclConfig_t of 2.18; newer ones have more at the end, and take this one by its size and version.
struct NcclConfig {
    std::size_t size = sizeof(NcclConfig);
    unsigned magic = 0xcafebeef;
    unsigned version = 21801;
    int blocking = 0;
    int cga_cluster_size = INT_MIN;
    int min_ctas = INT_MIN;
    int max_ctas = INT_MIN;
    const char* net_name = nullptr;
    int split_share = INT_MIN;
};

#define MP_NCCL_FUNCTIONS(X)                                                                       \
    X(GetVersion, (int*))                                                                          \
    X(GetUniqueId, (NcclUniqueId*))                                                                \
    X(CommInitRankConfig, (NcclComm*, int, NcclUniqueId, int, NcclConfig*))                        \
    X(CommGetAsyncError, (NcclComm, NcclResult*))                                                  \
    X(CommFinalize, (NcclComm))                                                                    \
    X(CommDestroy, (NcclComm))                                                                     \
    X(CommAbort, (NcclComm))                                                                       \
    X(CommSplit, (NcclComm, int, int, NcclComm*, NcclConfig*))                                     \
    X(CommCount, (NcclComm, int*))                                                                 \
    X(CommUserRank, (NcclComm, int*))                                                              \
    X(CommCuDevice, (NcclComm, int*))                                                              \
    X(GroupStart, ())                                                                              \
    X(GroupEnd, ())                                                                                \
    X(Send, (const void*, std::size_t, int, int, NcclComm, NcclStream))                            \
    X(Recv, (void*, std::size_t, int, int, NcclComm, NcclStream))                                  \
    X(Broadcast, (const void*, void*, std::size_t, int, int, NcclComm, NcclStream))                \
    X(AllReduce, (const void*, void*, std::size_t, int, int, NcclComm, NcclStream))

struct NcclApi {
#define X(name, arguments) NcclResult(*name) arguments = nullptr;
    MP_NCCL_FUNCTIONS(X)
#undef X
    const char* (*GetErrorString)(NcclResult) = nullptr;
    const char* (*GetLastError)(NcclComm) = nullptr;
    int version = 0;
    const char* label = ""; // of a script in its place
    // Empty when the library is there and complete; otherwise why not, and what to do.
    TextLine<512> reason;
    [[nodiscard]] bool is_there() const noexcept { return reason.empty(); }
};

// The library named by MIXEDPREC_NCCL_LIBRARY; or else the one this process has loaded already; or else the system's.
const NcclApi& nccl() noexcept;

// Fills a table by asking `find` for each function by its full name. For nccl(), and for its test.
void fill_nccl(NcclApi& api, void* (*find)(void* library, const char* name),
               void* library) noexcept;

// ok for success and "in progress"; peer_lost for a remote error; nccl_error otherwise, in NCCL's words.
Status nccl_status(const NcclApi& api, NcclResult result, const char* what, NcclComm comm) noexcept;

} // namespace mp::comm
