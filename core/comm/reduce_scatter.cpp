// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_scatter.hpp"

#include <algorithm>

#include "comm/capture.hpp"
#include "comm/shares.hpp"
#include "numerics/part_sum.hpp"
#include "numerics/philox.hpp"
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

// What one step sums: short enough that nobody waits for it, a whole number of blocks of every kind.
constexpr int64_t kSumStep = int64_t{1} << 18;
static_assert(kSumStep % numerics::kExactBlock == 0);

// The part from an element on that begins a block of its scales.
SumPart part_from(const SumPart& part, int64_t first, const ScaleGrid& grid) {
    SumPart rest = part;
    rest.codes = static_cast<const char*>(part.codes) + bytes_of(part.dtype, first);
    if (part.scale_inv != nullptr && grid.block_columns > 0) {
        rest.scale_inv = static_cast<const char*>(part.scale_inv) +
                         first / grid.block_columns * dtype_size(grid.dtype);
    }
    return rest;
}

// How parts, each the sum of a run of slots, add up to the sum of `whole`.
void set_merges(std::vector<SumPart>& parts, std::span<const SlotRun> runs, SlotRun whole,
                const ReduceDesc& desc) {
    const auto tree = traits(desc.order).merges;
    const std::vector<int32_t> merges =
        tree != nullptr && !parts.empty() ? tree(runs, whole, desc.slots) : std::vector<int32_t>();
    for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i].merges = tree != nullptr ? merges[i] : i == 0 ? 0 : 1;
    }
}

} // namespace

void ReduceScatter::check_arguments(std::span<const ArrayRef> sources,
                                    std::span<const int64_t> counts,
                                    const TensorRef& result) const {
    constexpr const char* kWhat = "reduce-scatter";
    check_reduce(desc_, result.dtype, kWhat);
    if (counts.size() != static_cast<std::size_t>(comm_.size())) {
        fail(Code::invalid_argument, "%s: %zu counts for %d ranks", kWhat, counts.size(),
             comm_.size());
    }
    if (std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; })) {
        fail(Code::invalid_argument, "%s: a count is negative", kWhat);
    }
    const auto wanted =
        has_slots(desc_.order) ? static_cast<std::size_t>(run_.count()) : std::size_t{1};
    if (sources.size() != wanted) {
        fail(Code::invalid_argument, "%s: %zu arrays, but rank %d of %d has %zu of the %d slots",
             kWhat, sources.size(), comm_.rank(), comm_.size(), wanted, desc_.slots);
    }
    const int64_t total = total_of(counts);
    for (const ArrayRef& source : sources) {
        if (source.count() != total) {
            fail(Code::invalid_shape,
                 "%s: an array has %lld elements, but the counts add up to %lld", kWhat,
                 static_cast<long long>(source.count()), static_cast<long long>(total));
        }
    }
    if (result.count != counts[static_cast<std::size_t>(comm_.rank())]) {
        fail(Code::invalid_shape, "%s: the result has %lld elements; this rank's count is %lld",
             kWhat, static_cast<long long>(result.count),
             static_cast<long long>(counts[static_cast<std::size_t>(comm_.rank())]));
    }
    const int64_t block = wire_block(desc_.wire);
    int64_t begin = desc_.rounding.first_element;
    for (const int64_t count : counts) {
        if (has_slots(desc_.order) && count > 0 && begin % block != 0) {
            fail(Code::unsupported,
                 "%s: order %s needs shares that begin at multiples of %lld elements, as the "
                 "wire's scales do; one begins at %lld",
                 kWhat, order_name(desc_.order), static_cast<long long>(block),
                 static_cast<long long>(begin));
        }
        begin += count;
    }
}

CallOptions ReduceScatter::options() const {
    return {desc_.deadline_ms, desc_.site, &stream_->queue()};
}

void ReduceScatter::begin(const ReduceDesc& desc, std::span<const ArrayRef> sources,
                          std::span<const int64_t> counts, const TensorRef& result) {
    if (is_open_) {
        fail(Code::bad_state, "reduce-scatter: the last one has not been waited for");
    }
    refuse_capture(*stream_);
    desc_ = desc;
    desc_.slots = !has_slots(desc.order) || desc.slots == 0 ? comm_.size() : desc.slots;
    run_ = slots_of(comm_.rank(), comm_.size(), desc_.slots);
    check_arguments(sources, counts, result);
    sources_.assign(sources.begin(), sources.end());
    counts_.assign(counts.begin(), counts.end());
    offsets_ = sums_before(counts);
    result_ = result;
    finds_amax_ = false;
    has_arrived_ = false;
    summed_ = 0;
    pack_leaves();
    if (traits(desc_.order).is_fixed) {
        begin_amax();
    } else {
        begin_exchange();
    }
    is_open_ = true;
}

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
    set_merges(parts, runs, slots, desc_);
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
    if (device_amax_ != nullptr) {
        const int64_t block = numerics::kExactBlock;
        op.block_amax = static_cast<uint32_t*>(device_amax_->data()) +
                        (first / block - desc_.rounding.first_element / block);
    }
    return op;
}

// Fixed point: the largest |x| of each block of 128 over all slots, then over all ranks.
void ReduceScatter::begin_amax() {
    const int64_t total = total_of(counts_);
    const int64_t into = desc_.rounding.first_element % numerics::kExactBlock;
    const int64_t blocks =
        total == 0 ? 0 : (into + total + numerics::kExactBlock - 1) / numerics::kExactBlock;
    const std::size_t bytes = static_cast<std::size_t>(blocks) * sizeof(uint32_t);
    device_amax_ = std::make_unique<Scratch>(*stream_, bytes);
    std::vector<uint32_t> largest(static_cast<std::size_t>(blocks), 0);
    block_amax_.assign(static_cast<std::size_t>(blocks), 0);
    // A block may lie on the border of two shares, so they are looked at one by one.
    for (std::size_t r = 0; r < counts_.size() && !sources_.empty(); ++r) {
        if (counts_[r] == 0) {
            continue;
        }
        const auto to = static_cast<int32_t>(r);
        SumPartsDesc op = sum_desc(to, 0, counts_[r], {});
        op.mode = SumMode::largest;
        sum_parts(*stream_, leaves(run_, to), op);
        const int64_t first = desc_.rounding.first_element + offsets_[r];
        const int64_t begin =
            first / numerics::kExactBlock - desc_.rounding.first_element / numerics::kExactBlock;
        const int64_t end = (first + counts_[r] - 1) / numerics::kExactBlock -
                            desc_.rounding.first_element / numerics::kExactBlock + 1;
        const auto at = static_cast<std::size_t>(begin);
        stream_->copy(largest.data() + at, op.block_amax,
                      static_cast<std::size_t>(end - begin) * sizeof(uint32_t),
                      CopyKind::device_to_host);
        stream_->sync();
        for (auto i = at; i < static_cast<std::size_t>(end); ++i) {
            block_amax_[i] = std::max(block_amax_[i], largest[i]);
        }
    }
    check(comm_.begin_max_u32(block_amax_.data(), blocks, options(), &request_));
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
    check(comm_.begin_all_to_all({send_->wire(), send_bytes.data(), send_offsets_.data(),
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
    set_merges(parts, runs, {0, desc_.slots}, desc_);
    return parts;
}

void ReduceScatter::arrive() {
    if (!finds_amax_) {
        receive_->from_wire();
        has_arrived_ = true;
        return;
    }
    finds_amax_ = false;
    if (!block_amax_.empty()) {
        stream_->copy(device_amax_->data(), block_amax_.data(),
                      block_amax_.size() * sizeof(uint32_t), CopyKind::host_to_device);
    }
    begin_exchange();
}

Advance ReduceScatter::poll() {
    is_open_ = false; // where it fails
    const Advance advance = comm::step(request_);
    if (advance == Advance::done) {
        arrive();
    }
    is_open_ = true;
    return advance;
}

bool ReduceScatter::sum(Stream& stream, int64_t most) {
    is_open_ = false; // where it fails
    const int64_t count = std::min(most, result_.count - summed_);
    if (count > 0) {
        std::vector<SumPart> parts = received_parts();
        for (SumPart& part : parts) {
            part = part_from(part, summed_, wire_grid(desc_.wire));
        }
        sum_parts(stream, parts,
                  sum_desc(comm_.rank(), summed_, count, slice(result_, summed_, count)));
        stream.sync();
        summed_ += count;
    }
    is_open_ = summed_ < result_.count;
    if (!is_open_) {
        send_.reset();
        receive_.reset();
        device_amax_.reset();
    }
    return !is_open_;
}

void ReduceScatter::check_open() const {
    if (!is_open_) {
        fail(Code::bad_state, "reduce-scatter: none was begun");
    }
}

void ReduceScatter::begin_rest() {
    while (begins_more()) {
        is_open_ = false; // where it fails
        check(request_.wait());
        arrive();
        is_open_ = true;
    }
}

void ReduceScatter::wait() {
    check_open();
    while (!has_arrived_) {
        is_open_ = false; // where it fails
        check(request_.wait());
        arrive();
    }
    sum(*stream_, result_.count);
}

bool ReduceScatter::test() {
    check_open();
    while (!has_arrived_) {
        if (poll() != Advance::done) {
            return false;
        }
    }
    return sum(*stream_, result_.count);
}

Advance ReduceScatter::step(Stream& stream) {
    check_open();
    if (!has_arrived_) {
        return poll() == Advance::waits ? Advance::waits : Advance::moved;
    }
    return sum(stream, kSumStep) ? Advance::done : Advance::moved;
}

} // namespace mp::comm
