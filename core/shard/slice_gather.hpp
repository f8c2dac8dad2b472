// SPDX-License-Identifier: Apache-2.0
// SliceGather: the all-gather of slices of many tensors in one message. It owns how the slices lie behind each other (by
// rank, a rank's in the order of the tensors); what a slice looks like on the wire is the caller's.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/advance.hpp"
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

    // comm outlives this.
    SliceGather(Stream& stream, comm::Communicator& comm, const Slices& tensors,
                const SliceBytes& slice_bytes);

    [[nodiscard]] const std::vector<Slice>& slices() const noexcept { return slices_; }
    [[nodiscard]] bool is_own(const Slice& slice) const noexcept;
    // Device memory of a slice: written before begin() where it is this rank's own, to be read once all have arrived.
    [[nodiscard]] char* at(const Slice& slice) const noexcept;

    void begin(Stream& stream, const char* site);
    // Without waiting; done once all slices are there.
    comm::Advance step();
    void wait();

  private:
    void lay_out(const Slices& tensors, const SliceBytes& slice_bytes);
    void arrive();

    comm::Communicator& comm_;
    std::vector<Slice> slices_;            // by rank
    std::vector<int64_t> bytes_, offsets_; // of each rank
    std::unique_ptr<comm::WireBuffer> buffer_;
    comm::CommRequest request_;
    bool has_arrived_ = false;
};

} // namespace mp::shard
