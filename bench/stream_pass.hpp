// SPDX-License-Identifier: Apache-2.0
// The loop of the streaming baseline, compiled once for each instruction set. Nothing here may bring in an inline
// function of another header: the linker would keep one copy, perhaps that of the widest set.
#pragma once

#include <cstddef>

namespace mp_bench {

enum class Access { read, read_write, write };

// An array that a pass goes over once.
struct Stream {
    char* data; // 64 bytes aligned
    std::size_t bytes_per_element;
    Access access;
};

// Which stores go around the caches, and whether lines are fetched ahead by instructions.
struct Method {
    bool non_temporal_writes;  // to arrays that are only written
    bool non_temporal_updates; // to arrays that are read, too
    bool prefetch;
};

// Elements from `begin` up to `end` of all streams, by one thread.
using StreamPass = void(const Stream* streams, std::size_t stream_count, std::size_t begin,
                        std::size_t end, const Method& method);

namespace baseline {
StreamPass stream_pass;
}
#if defined(__x86_64__)
namespace avx2 {
StreamPass stream_pass;
}
namespace avx512 {
StreamPass stream_pass;
}
#endif

} // namespace mp_bench
