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

    // Finds the amaxes. `contributions` are fp32.
    SharedBucket(Stream& stream, comm::Communicator& comm, SharedScales& scales,
                 const Layout& layout, std::vector<std::unique_ptr<Scratch>> contributions);

    void begin(Stream& stream);
    // One short step that waits for nobody: the message, or codes of a run of elements. done: sources() are there.
    comm::Advance step(Stream& stream);
    void wait(Stream& stream);
    [[nodiscard]] std::vector<ArrayRef> sources() const;

    // Codes of the sums of this rank's slices, which `wide` has in units of the scales; added to those that `sums` has, which
    // waits for the stream.
    void store(Stream& stream, const TensorRef& wide, const TensorRef& sums, bool adds);

  private:
    [[nodiscard]] int64_t total() const;
    [[nodiscard]] std::size_t places() const { return layout_.bucket->parameters.size(); }
    [[nodiscard]] float* amax(std::size_t place) const;
    [[nodiscard]] float* scale(std::size_t place) const;
    void agree(Stream& stream);
    // At most so many elements more; true when these were the last.
    bool pack(Stream& stream, int64_t most);
    // By place: the scale of the sums' codes, which scale() becomes, and what fresh sums and those before are multiplied with.
    struct Rescaled {
        std::vector<numerics::DelayedState> fresh;
        std::vector<float> before;
    };
    [[nodiscard]] Rescaled rescaled(Stream& stream, bool adds) const;

    comm::Communicator& comm_;
    SharedScales& scales_;
    Layout layout_;
    std::vector<std::unique_ptr<Scratch>> contributions_; // fp32
    std::vector<std::unique_ptr<Scratch>> codes_;         // of each contribution
    comm::WireBuffer amaxes_;                             // by place in the bucket
    Scratch agreed_;                                      // scales of this reduction, by place
    comm::CommRequest request_;
    bool has_agreed_ = false;
    std::size_t contribution_ = 0; // that is being packed
    std::size_t slice_ = 0;
    int64_t packed_ = 0; // elements of that slice
};

} // namespace mp::shard
