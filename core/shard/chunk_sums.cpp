// SPDX-License-Identifier: Apache-2.0
#include "shard/chunk_sums.hpp"

#include <algorithm>

#include "comm/arrival.hpp"

namespace mp::shard {
namespace {

constexpr int32_t kNowhere = -1;
constexpr const char* kSite = "sums of squares";

int64_t bytes_of_sums(std::size_t count) { return static_cast<int64_t>(count * sizeof(double)); }

} // namespace

ChunkSums::Message ChunkSums::message_of(std::span<const int32_t> parameters) const {
    std::vector<std::vector<int32_t>> by_rank(static_cast<std::size_t>(comm_.size()));
    Message message;
    for (std::size_t i = 0; i < is_trained_.size(); ++i) {
        if (!is_trained_[i]) {
            continue;
        }
        const auto parameter = static_cast<int32_t>(i);
        const bool counts = std::binary_search(parameters.begin(), parameters.end(), parameter);
        for (const ShardSlice& slice : plan_.slices_of(parameter)) {
            std::vector<int32_t>& numbers = by_rank[static_cast<std::size_t>(slice.rank)];
            for (int64_t start = 0; start < slice.count; start += kChunkElements) {
                numbers.push_back(counts ? message.count++ : kNowhere);
            }
        }
    }
    message.offsets.push_back(0);
    for (const std::vector<int32_t>& numbers : by_rank) {
        message.numbers.insert(message.numbers.end(), numbers.begin(), numbers.end());
        message.bytes.push_back(bytes_of_sums(numbers.size()));
        message.offsets.push_back(message.offsets.back() + message.bytes.back());
    }
    return message;
}

std::vector<double> ChunkSums::on_host(std::span<const double> own,
                                       std::span<const int32_t> parameters) const {
    const Message message = message_of(parameters);
    const auto rank = static_cast<std::size_t>(comm_.rank());
    const std::size_t first = static_cast<std::size_t>(message.offsets[rank]) / sizeof(double);
    const std::size_t end = static_cast<std::size_t>(message.offsets[rank + 1]) / sizeof(double);
    std::vector<double> sent;
    std::size_t next = 0;
    for (std::size_t i = first; i < end; ++i) {
        sent.push_back(message.numbers[i] != kNowhere ? own[next++] : 0.0);
    }
    std::vector<double> all(message.numbers.size());
    comm::CallOptions options;
    options.site = kSite;
    check(comm_.run(comm::AllGather{sent.data(), message.bytes[rank], all.data(),
                                    message.bytes.data(), message.offsets.data()},
                    options));
    std::vector<double> whole(static_cast<std::size_t>(message.count));
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (message.numbers[i] != kNowhere) {
            whole[static_cast<std::size_t>(message.numbers[i])] = all[i];
        }
    }
    return whole;
}

std::optional<ChunkSumExchange::Placed> ChunkSums::on_device(Stream& stream, const double* own,
                                                             std::span<const int32_t> parameters) {
    const auto is_counted = [&, next = std::size_t{0}](bool is_trained) mutable {
        const auto index = static_cast<int32_t>(next++);
        return is_trained == std::binary_search(parameters.begin(), parameters.end(), index);
    };
    if (!comm::is_ordered(stream, comm_) ||
        !std::all_of(is_trained_.begin(), is_trained_.end(), is_counted)) {
        return {};
    }
    if (whole_.bytes.empty()) {
        Message message = message_of(parameters);
        std::vector<int32_t> places(message.numbers.size());
        for (std::size_t i = 0; i < places.size(); ++i) {
            places[static_cast<std::size_t>(message.numbers[i])] = static_cast<int32_t>(i);
        }
        places_ = stream.allocate(places.size() * sizeof(int32_t));
        if (!places.empty()) {
            stream.copy(places_.data(), places.data(), places_.bytes(), CopyKind::host_to_device);
        }
        whole_ = std::move(message);
    }
    ChunkSumExchange::Placed placed;
    placed.sums =
        std::make_unique<Scratch>(stream, static_cast<std::size_t>(whole_.offsets.back()));
    placed.places = places_.as<int32_t>();
    placed.count = whole_.count;
    comm::CallOptions options;
    options.site = kSite;
    options.queue = &stream.queue();
    comm::CommRequest request;
    check(comm_.begin(comm::AllGather{own, whole_.bytes[static_cast<std::size_t>(comm_.rank())],
                                      placed.sums->data(), whole_.bytes.data(),
                                      whole_.offsets.data()},
                      options, &request));
    comm::await_arrival(stream, comm_, request);
    return placed;
}

} // namespace mp::shard
