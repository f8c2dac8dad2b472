// SPDX-License-Identifier: Apache-2.0
// LentExchange: an all-to-all or all-gather whose bytes nobody copies: every rank reads what the others lend, where that lies.
// For transports whose ranks share memory.
//
// Whoever polls the communicator reads a run, for another message's sake too: so ranks may wait for messages in any order.
// Whoever steps or waits here gives the stream that reads. Else it is `between`, which all who poll may use.
#pragma once

#include <functional>
#include <memory>

#include "comm/advance.hpp"
#include "comm/communicator.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

class LentExchange final : private PeerReader {
  public:
    // Reads a run, or all that is left where it `may_take_long`; true when nothing is left. lent[r]: what rank r lends. What
    // it enqueues is over when it returns.
    using Read = std::function<bool(Stream& stream, const void* const* lent, bool may_take_long)>;

    // comm and `between` outlive this.
    LentExchange(Communicator& comm, Stream& between, Read read)
        : comm_(comm), between_(between), read_(std::move(read)) {}

    // What is sent is what this rank lends; it stays until all have read, or this is gone. There are no offsets, and nothing is
    // received.
    void begin(AllToAll what, const CallOptions& options);
    void begin(AllGather what, const CallOptions& options);
    // One short step that waits for nobody. done: all ranks have read.
    Advance step(Stream& stream);
    void wait(Stream& stream);

  private:
    class Driver;

    Status read(const void* const* lent, bool* finished) noexcept override;

    Communicator& comm_;
    Stream& between_;
    Read read_;
    Stream* stream_ = nullptr; // of whoever steps or waits; else null
    bool may_take_long_ = false;
    int64_t runs_ = 0;
    CommRequest request_; // goes first: until then others may read, and this may be told to
};

} // namespace mp::comm
