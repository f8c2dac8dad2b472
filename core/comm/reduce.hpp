// SPDX-License-Identifier: Apache-2.0
// What is made of a reduce-scatter and a gather: the sum on every rank, maxima of |x|.
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
        : comm_(comm), stream_(stream.shared_from_this()), scatter_(comm, stream),
          gather_(comm, stream) {}

    void begin(const ReduceDesc& desc, std::span<const ArrayRef> sources,
               const TensorRef& destination, const Format* gather = nullptr);
    void wait();
    // Without waiting for other ranks, but begins the second half when the first is done; true at the end.
    bool test();
    // One short step of that; sums are made on `stream`, which may be another one of the same device.
    Advance step(Stream& stream);
    // As of a reduce-scatter.
    [[nodiscard]] bool begins_more() const noexcept { return scatter_.is_open(); }
    void begin_rest();

  private:
    void begin_native(const ReduceDesc& desc, const ArrayRef& source);
    void end_native(WireBuffer& buffer) const;
    void begin_gather();

    Communicator& comm_;
    std::shared_ptr<Stream> stream_;
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

// destination[i] = the largest bits(|x|) of all ranks' source[i], as fp32: NaN (always the same one), infinity,
// numbers. What a float maximum would lose stays. Blocking; host memory.
void all_reduce_max_abs(Communicator& comm, Stream& stream, const TensorRef& source,
                        const TensorRef& destination, const CallOptions& options);

} // namespace mp::comm
