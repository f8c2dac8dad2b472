// SPDX-License-Identifier: Apache-2.0
// What the messages of a reduce-scatter hold: slots as they are on the wire, sums of some, and the parts that a received
// message is.
#include <algorithm>

#include "comm/reduce_scatter.hpp"
#include "comm/shares.hpp"
#include "numerics/part_sum.hpp"
#include "numerics/philox.hpp"
#include "quant/quantize.hpp"
#include "status/status.hpp"

namespace mp::comm {
namespace {

SumPart part_at(char* data, int64_t count, const Format& format) {
    SumPart part;
    const bool has_scale = carries_scales(format);
    part.codes = data + (has_scale ? wire_scale_bytes(count, format) : 0);
    part.scale_inv = has_scale ? data : nullptr;
    part.dtype = format.dtype;
    return part;
}

} // namespace

bool ReduceScatter::is_direct(std::size_t slot) const {
    return !sources_[slot].format.is_quantized() && sources_[slot].dtype() == desc_.wire.dtype;
}

// Every slot as it is on the wire, in a message for each rank.
void ReduceScatter::pack_leaves() {
    leaf_offsets_.assign(counts_.size() + 1, 0);
    for (std::size_t r = 0; r < counts_.size(); ++r) {
        leaf_offsets_[r + 1] =
            leaf_offsets_[r] + round_up(wire_bytes(counts_[r], desc_.wire), kLine);
    }
    leaves_.clear();
    leaves_.resize(sources_.size());
    for (std::size_t slot = 0; slot < sources_.size(); ++slot) {
        if (is_direct(slot)) {
            continue;
        }
        leaves_[slot] = std::make_unique<WireBuffer>(*stream_, comm_, leaf_offsets_.back());
        PackOptions packing;
        packing.rounding = desc_.rounding;
        packing.rounding.uid = numerics::splitmix64(desc_.rounding.uid ^
                                                    (static_cast<uint64_t>(run_.first) + slot + 1));
        for (std::size_t r = 0; r < counts_.size(); ++r) {
            packing.rounding.first_element = desc_.rounding.first_element + offsets_[r];
            pack(*stream_, sources_[slot], offsets_[r], counts_[r], desc_.wire,
                 leaves_[slot]->device() + leaf_offsets_[r], packing);
        }
    }
}

SumPart ReduceScatter::leaf(std::size_t slot, int32_t to) const {
    const auto r = static_cast<std::size_t>(to);
    char* data = is_direct(slot)
                     ? static_cast<char*>(slice(sources_[slot].elements(), offsets_[r], 0).data)
                     : leaves_[slot]->device() + leaf_offsets_[r];
    return part_at(data, counts_[r], desc_.wire);
}

std::vector<SumPart> ReduceScatter::leaves(SlotRun slots, int32_t to) const {
    std::vector<SumPart> parts;
    std::vector<SlotRun> runs;
    for (int32_t slot = slots.first; slot < slots.end; ++slot) {
        parts.push_back(leaf(static_cast<std::size_t>(slot - run_.first), to));
        runs.push_back({slot, slot + 1});
    }
    set_merges(parts, runs, slots, desc_.order, desc_.slots);
    return parts;
}

SumPartsDesc ReduceScatter::sum_desc(int32_t of, int64_t start, int64_t count,
                                     const TensorRef& to) const {
    SumPartsDesc op{};
    const int64_t first =
        desc_.rounding.first_element + offsets_[static_cast<std::size_t>(of)] + start;
    op.mode = traits(desc_.order).is_fixed           ? SumMode::fixed
              : desc_.accumulate == Accumulate::fp64 ? SumMode::fp64
                                                     : SumMode::fp32;
    op.count = count;
    op.grid = wire_grid(desc_.wire);
    op.destination = to;
    op.first_element = first;
    op.fixed_bits = numerics::fixed_bits(tree_levels(desc_.slots));
    if (block_amax_ != nullptr) {
        const int64_t block = numerics::kExactBlock;
        op.block_amax = reinterpret_cast<uint32_t*>(block_amax_->device()) +
                        (first / block - desc_.rounding.first_element / block);
    }
    return op;
}

// Fixed point: the largest |x| of each block of 128 over all slots, then over all ranks.
void ReduceScatter::begin_amax() {
    constexpr int64_t kBlock = numerics::kExactBlock;
    const int64_t into = desc_.rounding.first_element % kBlock;
    const int64_t total = total_of(counts_);
    const int64_t blocks = total == 0 ? 0 : (into + total + kBlock - 1) / kBlock;
    const int64_t bytes = blocks * static_cast<int64_t>(sizeof(uint32_t));
    block_amax_ = std::make_unique<WireBuffer>(*stream_, comm_, bytes);
    if (bytes > 0) {
        stream_->zero(block_amax_->device(), static_cast<std::size_t>(bytes));
    }
    // A block may lie on the border of shares, so they are looked at one by one.
    const Scratch before(*stream_, sizeof(float));
    int64_t end = 0; // of the blocks so far
    for (std::size_t r = 0; r < counts_.size() && !sources_.empty(); ++r) {
        if (counts_[r] == 0) {
            continue;
        }
        const auto to = static_cast<int32_t>(r);
        SumPartsDesc op = sum_desc(to, 0, counts_[r], {});
        op.mode = SumMode::largest;
        auto* const first = reinterpret_cast<float*>(op.block_amax);
        const bool is_shared = (into + offsets_[r]) / kBlock < end;
        if (is_shared) {
            stream_->copy(before.data(), first, sizeof(float), CopyKind::device_to_device);
        }
        sum_parts(*stream_, leaves(run_, to), op);
        if (is_shared) {
            quant::raise_amax(*stream_, static_cast<const float*>(before.data()), first);
        }
        end = (into + offsets_[r] + counts_[r] - 1) / kBlock + 1;
    }
    block_amax_->to_wire();
    check(comm_.begin(MaxU32{reinterpret_cast<uint32_t*>(block_amax_->wire()), blocks}, options(),
                      &request_));
    finds_amax_ = true;
}

// One message: leaves as they are, sums of several in fp32 or units.
void ReduceScatter::write_message(int32_t to, char* base) {
    const int64_t count = counts_[static_cast<std::size_t>(to)];
    if (count == 0) {
        return;
    }
    for (const MessageLayout::Part& part :
         message_layout(desc_, comm_.rank(), comm_.size(), count).parts) {
        const std::vector<SumPart> below = leaves(part.slots, to);
        if (below.size() == 1) {
            const SumPart& only = below[0];
            stream_->copy(base + part.offset,
                          only.scale_inv != nullptr ? only.scale_inv : only.codes,
                          static_cast<std::size_t>(wire_bytes(count, part.format)),
                          CopyKind::device_to_device);
        } else {
            sum_parts(*stream_, below,
                      sum_desc(to, 0, count, {base + part.offset, count, part.format.dtype}));
        }
    }
}

void ReduceScatter::begin_exchange() {
    const auto ranks = static_cast<std::size_t>(comm_.size());
    const auto me = static_cast<std::size_t>(comm_.rank());
    std::vector<int64_t> send_bytes(ranks);
    std::vector<int64_t> receive_bytes(ranks);
    send_offsets_.assign(ranks, 0);
    receive_offsets_.assign(ranks, 0);
    int64_t sent = 0;
    int64_t received = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        const auto rank = static_cast<int32_t>(r);
        send_offsets_[r] = sent;
        send_bytes[r] = message_layout(desc_, comm_.rank(), comm_.size(), counts_[r]).bytes;
        sent += round_up(send_bytes[r], kLine);
        receive_offsets_[r] = received;
        receive_bytes[r] =
            r == me ? 0 : message_layout(desc_, rank, comm_.size(), counts_[me]).bytes;
        received += round_up(receive_bytes[r], kLine);
    }
    if (sources_.size() == 1 && is_direct(0)) {
        const TensorRef values = sources_[0].elements();
        send_ = std::make_unique<WireBuffer>(*stream_, comm_, values.data,
                                             bytes_of(values.dtype, values.count));
        for (std::size_t r = 0; r < ranks; ++r) {
            send_offsets_[r] = bytes_of(values.dtype, offsets_[r]);
        }
    } else if (sources_.size() == 1) {
        send_ = std::move(leaves_[0]);
        send_offsets_.assign(leaf_offsets_.begin(), leaf_offsets_.end() - 1);
    } else {
        send_ = std::make_unique<WireBuffer>(*stream_, comm_, sent);
        for (std::size_t r = 0; r < ranks; ++r) {
            write_message(static_cast<int32_t>(r), send_->device() + send_offsets_[r]);
        }
        leaves_.clear();
    }
    receive_ = std::make_unique<WireBuffer>(*stream_, comm_, received);
    send_bytes[me] = 0; // its own message a rank reads where it is
    send_->to_wire();
    check(comm_.begin(AllToAll{send_->wire(), send_bytes.data(), send_offsets_.data(),
                               receive_->wire(), receive_bytes.data(), receive_offsets_.data()},
                      options(), &request_));
}

std::vector<SumPart> ReduceScatter::received_parts() const {
    std::vector<SumPart> parts;
    std::vector<SlotRun> runs;
    for (int32_t r = 0; r < comm_.size(); ++r) {
        const auto at = static_cast<std::size_t>(r);
        char* base = r == comm_.rank() ? send_->device() + send_offsets_[at]
                                       : receive_->device() + receive_offsets_[at];
        for (const MessageLayout::Part& part :
             message_layout(desc_, r, comm_.size(), result_.count).parts) {
            parts.push_back(part_at(base + part.offset, result_.count, part.format));
            runs.push_back(part.slots);
        }
    }
    set_merges(parts, runs, {0, desc_.slots}, desc_.order, desc_.slots);
    return parts;
}

} // namespace mp::comm
