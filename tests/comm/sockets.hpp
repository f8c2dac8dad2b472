// SPDX-License-Identifier: Apache-2.0
// A transport in the manner of a caller: ranks are processes, joined by a Unix socket pair for each two of them, behind
// a table of callbacks. A rank whose process ends is seen at once, since its sockets close.
#pragma once

#include <memory>
#include <vector>

#include "mixedprec.h"

namespace mp_test {

// The sockets of all pairs; made before the ranks are forked.
class Mesh {
  public:
    explicit Mesh(int32_t size);
    ~Mesh();
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    [[nodiscard]] int32_t size() const { return size_; }
    // The sockets of one rank, which closes all others; by peer, its own is -1.
    std::vector<int> keep(int32_t rank);
    void close_all();

  private:
    int32_t size_;
    std::vector<int> sockets_; // [rank * size + peer]
};

// The table of a rank; its destroy frees what it holds. `spare` are the sockets for one group of all ranks, for a
// sharded optimizer, which makes one of its own; without them it cannot be split.
mp_comm_callbacks socket_callbacks(Mesh& mesh, int32_t rank, Mesh* spare = nullptr);

} // namespace mp_test
