// SPDX-License-Identifier: Apache-2.0
// SharedBucket: a bucket of gradients whose contributions travel as E4M3 codes under scales that all ranks share, and
// whose sums are kept as such codes. First one message of integer maxima with the amax of each gradient; then every rank
// makes codes, which are plain numbers to the reduction: the scale is the same on all, and a power of two.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/advance.hpp"
#include "comm/reduce_scatter.hpp"
#include "shard/shared_scales.hpp"

namespace mp::shard {

class SharedBucket {
  public:
    // How its slices lie in a contribution, behind each other by the rank that they go to. Outlives the bucket.
    struct Layout {
        const ShardBucket* bucket = nullptr;
        const std::vector<ShardSlice>* slices = nullptr;
        const std::vector<int64_t>* offsets = nullptr; // elements, by slice
        const std::vector<int64_t>* counts = nullptr;  // elements, by rank
    };

    // Finds the amaxes; waits for the stream. `contributions` are fp32.
    SharedBucket(Stream& stream, comm::Communicator& comm, SharedScales& scales,
                 const Layout& layout, std::vector<std::unique_ptr<Scratch>> contributions);

    void begin();
    // One short step that waits for nobody: the message, or codes of a run of elements. done: sources() are there.
    comm::Advance step(Stream& stream);
    void wait(Stream& stream);
    [[nodiscard]] std::vector<ArrayRef> sources() const;

    // Codes of the sums of this rank's slices, which `wide` has in units of the scales; added to those that `sums` has.
    // Waits for the stream.
    void store(Stream& stream, const TensorRef& wide, const TensorRef& sums, bool adds);

  private:
    [[nodiscard]] int64_t total() const;
    void agree(Stream& stream);
    // At most so many elements more; true when these were the last.
    bool pack(Stream& stream, int64_t most);
    // The next elements of `slice` of one contribution, from `first` on.
    void quantize(Stream& stream, const TensorRef& source, std::size_t place, void* codes,
                  numerics::QuantStats* stats) const;
    void write_scales(Stream& stream, const std::vector<float>& multiply);

    comm::Communicator& comm_;
    SharedScales& scales_;
    Layout layout_;
    std::vector<std::unique_ptr<Scratch>> contributions_; // fp32
    std::vector<std::unique_ptr<Scratch>> codes_;         // of each contribution
    std::vector<uint32_t> amaxes_;                        // by place in the bucket, as bits
    std::vector<numerics::BlockScale> agreed_;            // by place, of this reduction
    comm::CommRequest request_;
    bool has_agreed_ = false;
    std::size_t contribution_ = 0; // that is being packed
    std::size_t slice_ = 0;
    int64_t packed_ = 0; // elements of that slice
    std::vector<numerics::DelayedState> host_scales_;
    std::unique_ptr<Scratch> device_scales_;
    std::unique_ptr<Scratch> unused_scale_; // the rule's own, which a given scale leaves alone
};

} // namespace mp::shard
