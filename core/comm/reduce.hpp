// SPDX-License-Identifier: Apache-2.0
// What is made of a reduce-scatter and a gather: the sum on every rank, two levels for nodes, maxima of |x|.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/gather.hpp"
#include "comm/reduce_scatter.hpp"

namespace mp::comm {

// The sum on every rank: reduced in shares of multiples of 128 elements, then gathered. The gather's type is the
// destination's unless `gather` says fp8. Order fast takes the transport's own sum where that has one and wire and
// destination are fp32.
class AllReduce {
  public:
    AllReduce(Communicator& comm, Stream& stream)
        : comm_(comm), stream_(stream), scatter_(comm, stream), gather_(comm, stream) {}

    void begin(const ReduceDesc& desc, std::span<const WireSource> sources,
               const TensorRef& destination, const WireFormat* gather = nullptr);
    void wait();
    // Without waiting for other ranks, but begins the second half when the first is done; true at the end.
    bool test();
    // One short step of that; sums are made on `stream`, which may be another one of the same device.
    Advance step(Stream& stream);

  private:
    void begin_native(const ReduceDesc& desc, const WireSource& source);
    void end_native();
    void begin_gather();

    Communicator& comm_;
    Stream& stream_;
    std::unique_ptr<WireBuffer> native_; // where the transport adds
    CommRequest native_request_;
    ReduceScatter scatter_;
    AllGatherValues gather_;
    GatherDesc gather_desc_;
    std::vector<int64_t> counts_;
    TensorRef destination_;
    TensorRef shard_;
    std::unique_ptr<Scratch> wide_;
};

// Two levels: inside a node first, then equal local ranks across the nodes on one G-th of the elements, so that
// between nodes there go a ring's bytes. Both groups are ordered by rank. Piece l * nodes + m of `counts` becomes that of
// local rank l on node m; between the levels the sum is fp32. Order rank and fast only.
class TwoLevelReduceScatter {
  public:
    TwoLevelReduceScatter(Communicator& node, Communicator& across, Stream& stream)
        : across_(across), stream_(stream), inside_(node, stream), between_(across, stream),
          local_ranks_(node.size()), local_rank_(node.rank()) {}

    void begin(const ReduceDesc& desc, const WireSource& source, std::span<const int64_t> counts,
               const TensorRef& result);
    void wait();

  private:
    Communicator& across_;
    Stream& stream_;
    ReduceScatter inside_;
    ReduceScatter between_;
    int32_t local_ranks_;
    int32_t local_rank_;
    ReduceDesc desc_;
    std::vector<int64_t> piece_counts_; // of this local rank, by node
    TensorRef result_;
    std::unique_ptr<Scratch> wide_;
    int64_t wide_count_ = 0;
    int64_t wide_first_ = 0;
};

// destination[i] = the largest bits(|x|) of all ranks' source[i], as fp32: NaN (always the same one), infinity,
// numbers. What a float maximum would lose stays. Blocking; host memory.
void all_reduce_max_abs(Communicator& comm, Stream& stream, const TensorRef& source,
                        const TensorRef& destination, const CallOptions& options);

} // namespace mp::comm
