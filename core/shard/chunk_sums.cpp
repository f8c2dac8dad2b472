// SPDX-License-Identifier: Apache-2.0
#include "shard/chunk_sums.hpp"

#include <algorithm>

#include "comm/arrival.hpp"
#include "comm/wire_buffer.hpp"
#include "dtype/divide.hpp"

namespace mp::shard {
namespace {

constexpr const char* kSite = "sums of squares";

int64_t chunks_of(const ShardSlice& slice) { return divide_up(slice.count, kChunkElements); }

} // namespace

ChunkSums::ChunkSums(comm::Communicator& comm, const ShardPlan& plan,
                     const std::vector<bool>& is_trained)
    : comm_(comm), plan_(plan), bytes_(static_cast<std::size_t>(comm.size())) {
    for (std::size_t i = 0; i < is_trained.size(); ++i) {
        for (const ShardSlice& slice : plan.slices_of(static_cast<int32_t>(i))) {
            bytes_[static_cast<std::size_t>(slice.rank)] +=
                is_trained[i] ? chunks_of(slice) * static_cast<int64_t>(sizeof(double)) : 0;
        }
    }
    offsets_.push_back(0);
    for (const int64_t bytes : bytes_) {
        offsets_.push_back(offsets_.back() + bytes);
    }
}

void ChunkSums::place(Stream& stream, std::span<const int32_t> parameters) {
    if (places_.data() != nullptr &&
        std::equal(parameters.begin(), parameters.end(), placed_.begin(), placed_.end())) {
        return;
    }
    std::vector<int64_t> next = offsets_;
    std::vector<int32_t> places;
    for (const int32_t parameter : parameters) {
        for (const ShardSlice& slice : plan_.slices_of(parameter)) {
            int64_t& at = next[static_cast<std::size_t>(slice.rank)];
            for (int64_t chunk = 0; chunk < chunks_of(slice); ++chunk) {
                places.push_back(static_cast<int32_t>(at / static_cast<int64_t>(sizeof(double))));
                at += static_cast<int64_t>(sizeof(double));
            }
        }
    }
    if (places_.data() == nullptr) { // for all that is trained: none is made in a step again
        places_ = stream.allocate(static_cast<std::size_t>(offsets_.back()) / sizeof(double) *
                                  sizeof(int32_t));
    }
    placed_.clear(); // where the copy fails
    count_ = 0;
    if (!places.empty()) {
        stream.copy(places_.data(), places.data(), places.size() * sizeof(int32_t),
                    CopyKind::host_to_device);
    }
    placed_.assign(parameters.begin(), parameters.end());
    count_ = static_cast<int64_t>(places.size());
}

PlacedSums ChunkSums::exchange(Stream& stream, const PlacedSums& own,
                               std::span<const int32_t> parameters) {
    place(stream, parameters);
    PlacedSums all;
    all.memory = std::make_unique<Scratch>(stream, static_cast<std::size_t>(offsets_.back()));
    all.sums = static_cast<double*>(all.memory->data());
    all.places = places_.as<int32_t>();
    all.count = count_;
    all.held = offsets_.back() / static_cast<int64_t>(sizeof(double));
    const auto rank = static_cast<std::size_t>(comm_.rank());
    comm::WireBuffer message(stream, comm_, all.sums, offsets_.back());
    char* const mine = message.device() + offsets_[rank];
    const auto given = static_cast<std::size_t>(own.count) * sizeof(double);
    if (bytes_[rank] > 0) { // also where some of it does not count
        stream.zero(mine, static_cast<std::size_t>(bytes_[rank]));
    }
    if (given > 0) {
        stream.copy(mine, own.sums, given, CopyKind::device_to_device);
    }
    message.to_wire();
    comm::CallOptions options;
    options.site = kSite;
    options.queue = &stream.queue();
    comm::CommRequest request;
    check(comm_.begin(comm::AllGather{message.wire() + offsets_[rank], bytes_[rank], message.wire(),
                                      bytes_.data(), offsets_.data()},
                      options, &request));
    comm::await_arrival(stream, comm_, request);
    message.from_wire();
    return all;
}

void ChunkSums::decline() const {
    const auto rank = static_cast<std::size_t>(comm_.rank());
    std::vector<char> all(static_cast<std::size_t>(offsets_.back()));
    comm::CallOptions options;
    options.site = kSite;
    check(comm_.run(comm::AllGather{all.data() + offsets_[rank], bytes_[rank], all.data(),
                                    bytes_.data(), offsets_.data()},
                    options));
}

} // namespace mp::shard
