// SPDX-License-Identifier: Apache-2.0
// LentSum: a reduce-scatter over ranks that share memory. Each adds its share of what all have where that lies, in pieces, and
// nothing is copied. The bits are those of a ReduceScatter. For plain elements, and orders that need no message before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/lent_exchange.hpp"
#include "comm/reduce_scatter.hpp"

namespace mp::comm {

// Elements of the wire's type, or of another one whose numbers the wire's has too.
struct LentElements {
    const void* data = nullptr;
    DType dtype = DType::none;
};
// Contributions of one rank: where each piece of each slot begins. Ranks number the pieces alike.
using LentSlots = std::vector<std::vector<LentElements>>;

// A piece of this rank's share.
struct LentPiece {
    std::size_t index = 0; // in each slot
    int64_t first = 0;     // element of the result
    int64_t count = 0;
};

class LentSum {
  public:
    LentSum(Communicator& comm, Stream& between)
        : comm_(comm),
          exchange_(comm, between, [this](Stream& stream, const void* const* lent, bool whole) {
              return sum(stream, lent, whole);
          }) {}

    // As that of a ReduceScatter. The slots stay, and what they lead to, until it is done or this is gone; `stream` has
    // written it. `pieces` in the order of `first`; what lies between them in the result becomes zero.
    void begin(Stream& stream, const ReduceDesc& desc, const LentSlots& slots,
               std::span<const int64_t> counts, std::span<const LentPiece> pieces,
               const TensorRef& result);
    // One short step that waits for nobody. done: all ranks have their sums.
    Advance step(Stream& stream) { return exchange_.step(stream); }
    void wait(Stream& stream) { exchange_.wait(stream); }

  private:
    bool sum(Stream& stream, const void* const* lent, bool whole);
    // Elements [first, first + count) of a piece.
    void sum_run(Stream& stream, const void* const* lent, const LentPiece& piece, int64_t first,
                 int64_t count) const;
    void zero_after(Stream& stream, std::size_t piece) const;

    Communicator& comm_;
    ReduceDesc desc_;
    std::vector<LentPiece> pieces_;
    TensorRef result_;
    std::size_t piece_ = 0; // that is being summed
    int64_t summed_ = 0;    // elements of it
    LentExchange exchange_; // goes first
};

} // namespace mp::comm
