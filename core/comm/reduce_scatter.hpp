// SPDX-License-Identifier: Apache-2.0
// Reductions: every rank sends each other rank its part once, in the wire type, and adds what it receives in fp32 or
// wider. The bytes are those of a ring (2 (N-1)/N an element of bf16), the roundings are not: nothing is rounded
// on the way. No averages: 1/N belongs into the step's multiplier.
//
// begin() enqueues, waits for the stream where the device does not order messages (comm/arrival.hpp), and starts the transfer;
// wait() finishes. Several objects may be between the two on one communicator (buckets in flight), begun in the same order on
// every rank. All throw Error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/advance.hpp"
#include "comm/communicator.hpp"
#include "comm/order.hpp"
#include "comm/sum.hpp"
#include "comm/wire.hpp"
#include "comm/wire_buffer.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

struct ReduceDesc {
    Format wire = wire_format(DType::bf16);
    SumOrder order = SumOrder::rank;
    Accumulate accumulate = Accumulate::automatic;
    // tree, exact: contributions of all ranks together; rank r has those of slots_of(r). 0: one a rank.
    int32_t slots = 0;
    // Of the array's first element, which is also where blocks of exact sums begin. Each slot draws bits of its own.
    numerics::Rounding rounding;
    int64_t deadline_ms = 0;
    const char* site = nullptr;
    int64_t written_first = 0; // as that of SumPartsDesc, of the result
};

// What one step sums: short enough that nobody waits for it, a whole number of blocks of every kind.
inline constexpr int64_t kSumStep = int64_t{1} << 18;

// Contributions of so many ranks together.
[[nodiscard]] inline int32_t slots_of_all(const ReduceDesc& desc, int32_t ranks) noexcept {
    return !has_slots(desc.order) || desc.slots == 0 ? ranks : desc.slots;
}

// Whether ranks that share memory can add what the others have, as it is: LentSum.
[[nodiscard]] inline bool may_be_lent(const ReduceDesc& desc) noexcept {
    return !desc.wire.is_quantized() && !traits(desc.order).is_fixed &&
           desc.accumulate != Accumulate::fp64;
}

// Throws where the combination has no meaning or breaks the order's promise, and says why.
void check_reduce(const ReduceDesc& desc, DType result, const char* what);

// `total` elements in shares that begin at multiples of `align`; the last ones may be empty.
std::vector<int64_t> even_counts(int64_t total, int32_t ranks, int64_t align);

// How the bytes that one rank sends another are laid out: sums over runs of its slots, each in its own format.
struct MessageLayout {
    struct Part {
        SlotRun slots;
        Format format;
        int64_t offset = 0; // a multiple of 16
    };
    std::vector<Part> parts;
    int64_t bytes = 0;
};
MessageLayout message_layout(const ReduceDesc& desc, int32_t rank, int32_t ranks, int64_t count);

// Rank r gets the sum of elements [counts[0] + ... + counts[r-1], ... + counts[r]) of all contributions.
class ReduceScatter {
  public:
    ReduceScatter(Communicator& comm, Stream& stream)
        : comm_(comm), stream_(stream.shared_from_this()) {}

    // `sources`: one array of all elements for each slot of this rank; they stay until wait(). `result`: fp32, or fp16
    // or bf16 (then rounded once), of counts[rank].
    void begin(const ReduceDesc& desc, std::span<const ArrayRef> sources,
               std::span<const int64_t> counts, const TensorRef& result);
    void wait();
    // Without waiting for other ranks; true when it is done.
    bool test();
    // One short step that waits for nobody: the transfer, or a run of the sum on `stream`, which may be another one of the
    // same device.
    Advance step(Stream& stream);
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }
    // Whether it has a message yet to begin, which must come before what is begun later: the ranks would differ in the order.
    [[nodiscard]] bool begins_more() const noexcept { return is_open_ && finds_amax_; }
    void begin_rest(); // waits until there is none, or the device does

  private:
    void check_arguments(std::span<const ArrayRef> sources, std::span<const int64_t> counts,
                         const TensorRef& result) const;
    void pack_leaves();
    void begin_amax();
    void begin_exchange();
    void write_message(int32_t to, char* base);
    void check_open() const;
    // Of the transfer in flight; where it is over, what is next begins.
    Advance poll();
    // What is next: another transfer, or the sum.
    void take_arrived();
    [[nodiscard]] std::vector<SumPart> received_parts() const;
    // At most so many elements more; true when these were the last, and all is done.
    bool sum(Stream& stream, int64_t most);
    [[nodiscard]] bool is_direct(std::size_t slot) const;
    [[nodiscard]] SumPart leaf(std::size_t slot, int32_t to) const;
    [[nodiscard]] std::vector<SumPart> leaves(SlotRun slots, int32_t to) const;
    // Of elements [first, first + count) of a rank's share.
    [[nodiscard]] SumPartsDesc sum_desc(int32_t of, int64_t first, int64_t count,
                                        const TensorRef& to) const;
    [[nodiscard]] CallOptions options() const;

    Communicator& comm_;
    std::shared_ptr<Stream> stream_;
    bool is_open_ = false;
    bool finds_amax_ = false; // the transfer in flight
    ReduceDesc desc_;
    SlotRun run_;
    std::vector<ArrayRef> sources_;
    std::vector<int64_t> counts_;
    std::vector<int64_t> offsets_; // elements
    TensorRef result_;
    std::vector<std::unique_ptr<WireBuffer>>
        leaves_;                        // by slot; null where the source is sent as it is
    std::vector<int64_t> leaf_offsets_; // bytes, by rank
    std::unique_ptr<WireBuffer> send_;
    std::unique_ptr<WireBuffer> receive_;
    std::vector<int64_t> send_offsets_;
    std::vector<int64_t> receive_offsets_;
    std::unique_ptr<WireBuffer> block_amax_; // fixed point: of all elements
    CommRequest request_;
    bool has_arrived_ = false; // all that is to be summed
    int64_t summed_ = 0;       // elements of the result
};

} // namespace mp::comm
