// SPDX-License-Identifier: Apache-2.0
#include "comm/lent_sum.hpp"

#include <algorithm>

#include "status/status.hpp"

namespace mp::comm {

void LentSum::begin(Stream& stream, const ReduceDesc& desc, const LentSlots& slots,
                    std::span<const int64_t> counts, std::span<const LentPiece> pieces,
                    const TensorRef& result) {
    constexpr const char* kWhat = "reduce-scatter of lent memory";
    check_reduce(desc, result.dtype, kWhat);
    if (!may_be_lent(desc)) {
        fail(Code::internal, "%s: order %s of %s", kWhat, order_name(desc.order),
             wire_text(desc.wire).c_str());
    }
    desc_ = desc;
    desc_.slots = slots_of_all(desc, comm_.size());
    pieces_.assign(pieces.begin(), pieces.end());
    result_ = result;
    const auto ranks = static_cast<std::size_t>(comm_.size());
    const auto me = static_cast<std::size_t>(comm_.rank());
    // As many as would be sent, so that ranks that differ in them hear of it, and traffic is what it is elsewhere.
    std::vector<int64_t> sent(ranks);
    std::vector<int64_t> received(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        if (r != me) {
            const auto rank = static_cast<int32_t>(r);
            sent[r] = message_layout(desc_, comm_.rank(), comm_.size(), counts[r]).bytes;
            received[r] = message_layout(desc_, rank, comm_.size(), counts[me]).bytes;
        }
    }
    AllToAll what;
    what.send = &slots;
    what.send_bytes = sent.data();
    what.receive_bytes = received.data();
    stream.sync();
    exchange_.begin(what, {desc.deadline_ms, desc.site, &stream.queue()});
}

bool LentSum::sum(Stream& stream, const void* const* lent, bool whole) {
    int64_t most = whole ? INT64_MAX : kSumStep;
    while (piece_ < pieces_.size() && most > 0) {
        const LentPiece& piece = pieces_[piece_];
        const int64_t count = std::min(most, piece.count - summed_);
        sum_run(stream, lent, piece, summed_, count);
        most -= count;
        summed_ += count;
        if (summed_ == piece.count) {
            zero_after(stream, piece_);
            summed_ = 0;
            ++piece_;
        }
    }
    stream.sync();
    return piece_ == pieces_.size();
}

void LentSum::sum_run(Stream& stream, const void* const* lent, const LentPiece& piece,
                      int64_t first, int64_t count) const {
    if (count == 0) {
        return;
    }
    std::vector<SumPart> parts;
    std::vector<SlotRun> runs;
    for (int32_t r = 0; r < comm_.size(); ++r) {
        SlotRun slots = slots_of(r, comm_.size(), desc_.slots);
        for (const auto& slot : *static_cast<const LentSlots*>(lent[r])) {
            const LentElements& from = slot[piece.index];
            SumPart part;
            part.codes = static_cast<const char*>(from.data) + bytes_of(from.dtype, first);
            part.dtype = from.dtype;
            parts.push_back(part);
            runs.push_back({slots.first, slots.first + 1});
            ++slots.first;
        }
    }
    set_merges(parts, runs, {0, desc_.slots}, desc_.order, desc_.slots);
    SumPartsDesc op{};
    op.count = count;
    op.destination = slice(result_, piece.first + first, count);
    op.written_first = desc_.written_first;
    sum_parts(stream, parts, op);
}

void LentSum::zero_after(Stream& stream, std::size_t piece) const {
    const int64_t end = pieces_[piece].first + pieces_[piece].count;
    const int64_t next = piece + 1 < pieces_.size() ? pieces_[piece + 1].first : result_.count;
    if (next > end) {
        const TensorRef gap = slice(result_, end, next - end);
        stream.zero(gap.data, static_cast<std::size_t>(bytes_of(gap.dtype, gap.count)));
    }
}

} // namespace mp::comm
