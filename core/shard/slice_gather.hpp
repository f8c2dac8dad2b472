// SPDX-License-Identifier: Apache-2.0
// SliceGather: the all-gather of slices of many tensors in one message. It owns how the slices lie behind each other (by
// rank, a rank's in the order of the tensors), or where ranks that share memory read them; what a slice looks like on the wire
// is the caller's.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/advance.hpp"
#include "comm/lent_exchange.hpp"
#include "comm/wire_buffer.hpp"
#include "shard/plan.hpp"

namespace mp::shard {

class SliceGather {
  public:
    struct Slice {
        std::size_t tensor;
        ShardSlice elements;
        int64_t offset; // bytes in the buffer
    };
    // The slices of each tensor, by start, over all ranks.
    using Slices = std::vector<const std::vector<ShardSlice>*>;
    // How many bytes so many elements of a tensor take.
    using SliceBytes = std::function<int64_t(std::size_t tensor, int64_t count)>;

    // Brings a slice that is there from its bytes on the wire to its place.
    using Arrive = std::function<void(Stream& stream, const Slice& slice, const char* bytes)>;

    // comm outlives this, and `between` too: not null where ranks read each other's slices where they lie
    // (comm/lent_exchange.hpp).
    SliceGather(Stream& stream, comm::Communicator& comm, const Slices& tensors,
                const SliceBytes& slice_bytes, Stream* between, Arrive arrive);
    SliceGather(const SliceGather&) = delete;
    SliceGather& operator=(const SliceGather&) = delete;

    [[nodiscard]] const std::vector<Slice>& slices() const noexcept { return slices_; }
    [[nodiscard]] bool is_own(const Slice& slice) const noexcept;
    [[nodiscard]] bool is_lent() const noexcept { return exchange_ != nullptr; }
    // Where this rank writes a slice of its own before begin().
    [[nodiscard]] char* at(Stream& stream, const Slice& slice);
    // Where is_lent(): or where it lies as it is, and stays until all have read it.
    void lend(const Slice& slice, const void* bytes);

    void begin(Stream& stream, const char* site);
    // One short step that waits for nobody: the transfer, or one slice's arrival. done: all slices have arrived.
    comm::Advance step(Stream& stream);
    void wait(Stream& stream);

  private:
    void lay_out(const Slices& tensors, const SliceBytes& slice_bytes);
    bool arrive_next(Stream& stream, const void* const* lent);

    comm::Communicator& comm_;
    Arrive arrive_;
    std::vector<Slice> slices_;            // by rank
    std::vector<int64_t> bytes_, offsets_; // of each rank
    std::unique_ptr<comm::WireBuffer> buffer_;
    std::vector<const char*> lent_; // by slice, this rank's own; what it lends
    std::size_t arrived_ = 0;       // slices
    bool is_transferred_ = false;
    comm::CommRequest request_;
    std::unique_ptr<comm::LentExchange> exchange_; // in place of the request; goes first
};

} // namespace mp::shard
