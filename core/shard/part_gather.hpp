// SPDX-License-Identifier: Apache-2.0
// PartGather: the all-gather of pieces of many tensors in one message. It owns how the pieces lie behind each other (by
// rank, a rank's in the order of the tensors); what a piece looks like on the wire is the caller's.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/advance.hpp"
#include "comm/wire_buffer.hpp"
#include "shard/plan.hpp"

namespace mp::shard {

class PartGather {
  public:
    struct Part {
        std::size_t tensor;
        ShardSlice piece;
        int64_t offset; // bytes in the buffer
    };
    // The pieces of each tensor, by start, over all ranks.
    using Pieces = std::vector<const std::vector<ShardSlice>*>;
    // How many bytes so many elements of a tensor take.
    using PartBytes = std::function<int64_t(std::size_t tensor, int64_t count)>;

    // comm outlives this.
    PartGather(Stream& stream, comm::Communicator& comm, const Pieces& tensors,
               const PartBytes& part_bytes);

    [[nodiscard]] const std::vector<Part>& parts() const noexcept { return parts_; }
    [[nodiscard]] bool is_own(const Part& part) const noexcept;
    // Device memory of a part: written before begin() where it is this rank's own, to be read once all have arrived.
    [[nodiscard]] char* at(const Part& part) const noexcept;

    void begin(Stream& stream, const char* site);
    // Without waiting; done once all parts are there.
    comm::Advance step();
    void wait();

  private:
    void lay_out(const Pieces& tensors, const PartBytes& part_bytes);
    void arrive();

    comm::Communicator& comm_;
    std::vector<Part> parts_;              // by rank
    std::vector<int64_t> bytes_, offsets_; // of each rank
    std::unique_ptr<comm::WireBuffer> buffer_;
    comm::CommRequest request_;
    bool has_arrived_ = false;
};

} // namespace mp::shard
