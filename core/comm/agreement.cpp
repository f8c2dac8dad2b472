// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace mp::comm {
namespace {

// Words before the fields: ~rank and code of a rank that declines, so that the lowest such rank is named.
constexpr std::size_t kHead = 2;
constexpr std::size_t kWordsOfField = 4; // low, high, and their complements

uint32_t low(uint64_t value) { return static_cast<uint32_t>(value & 0xffffffffU); }
uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

// "0, 2, 5", cut where there are many.
std::string rank_list(const std::vector<int32_t>& ranks) {
    constexpr std::size_t kMost = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    return ranks.size() > kMost ? text + ", ..." : text;
}

// What a rank reports of a value that others do not have.
struct Reported {
    uint64_t value;
    char shown[120];
};
std::string text_of(const Reported& reported) {
    const std::string_view shown(reported.shown, strnlen(reported.shown, sizeof reported.shown));
    if (shown.empty()) {
        return std::to_string(reported.value);
    }
    std::string text =
        "'"; // gcc 12 warns of an overlap that there is not where it is inserted in front
    text.append(shown);
    return text.append("'");
}

} // namespace

void Agreement::must_equal(const char* name, uint64_t value, const char* shown) {
    fields_.push_back({name, value, shown});
}

std::size_t Agreement::add_maxima(std::span<const uint32_t> values) {
    const std::size_t first = maxima_.size();
    maxima_.insert(maxima_.end(), values.begin(), values.end());
    return first;
}

void Agreement::decline(const Status& reason) {
    if (reason_.ok()) {
        reason_ = reason;
    }
}

std::vector<uint32_t> Agreement::words(const comm::Communicator& comm) const {
    std::vector<uint32_t> words(kHead, 0);
    if (!reason_.ok()) {
        words[0] = ~static_cast<uint32_t>(comm.rank());
        words[1] = static_cast<uint32_t>(-static_cast<int32_t>(reason_.code()));
    }
    for (const Field& field : fields_) {
        words.insert(words.end(),
                     {low(field.value), high(field.value), ~low(field.value), ~high(field.value)});
    }
    words.insert(words.end(), maxima_.begin(), maxima_.end());
    return words;
}

Status Agreement::reach(comm::Communicator& comm, const comm::CallOptions& options) {
    std::vector<uint32_t> all = words(comm);
    const Status sent = comm.run(MaxU32{all.data(), static_cast<int64_t>(all.size())}, options);
    if (!sent.ok()) {
        return sent;
    }
    if (all[0] != 0) {
        return !reason_.ok()
                   ? reason_
                   : Status::error(
                         Code::peer_error,
                         "rank %u could not go on (status -%u); no rank changed anything. "
                         "Its own message says why",
                         ~all[0], all[1]);
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) {
        const uint32_t* word = &all[kHead + i * kWordsOfField];
        if (word[0] != ~word[2] || word[1] != ~word[3]) {
            return explain(comm, i, options);
        }
    }
    std::copy(all.end() - static_cast<std::ptrdiff_t>(maxima_.size()), all.end(), maxima_.begin());
    return {};
}

// All ranks have seen the same words, so all are here.
Status Agreement::explain(comm::Communicator& comm, std::size_t differing,
                          const comm::CallOptions& options) const {
    const auto size = static_cast<std::size_t>(comm.size());
    std::vector<Reported> reported(size);
    const std::vector<int64_t> bytes(size, sizeof(Reported));
    std::vector<int64_t> offsets(size);
    for (std::size_t i = 0; i < size; ++i) {
        offsets[i] = static_cast<int64_t>(i * sizeof(Reported));
    }
    Reported own{fields_[differing].value, {}};
    (void)std::snprintf(own.shown, sizeof own.shown, "%s", fields_[differing].shown);
    const Status gathered = comm.run(
        AllGather{&own, sizeof own, reported.data(), bytes.data(), offsets.data()}, options);
    if (!gathered.ok()) {
        return gathered;
    }
    std::vector<int32_t> as_first;
    std::vector<int32_t> others;
    for (std::size_t i = 0; i < size; ++i) {
        (reported[i].value == reported[0].value ? as_first : others)
            .push_back(static_cast<int32_t>(i));
    }
    const std::size_t other = others.empty() ? 0 : static_cast<std::size_t>(others[0]);
    return Status::error(Code::rank_mismatch,
                         "ranks disagree in %s: rank(s) %s have %s, rank(s) %s do not; rank %zu "
                         "has %s. All ranks must say the same; nothing was changed",
                         fields_[differing].name, rank_list(as_first).c_str(),
                         text_of(reported[0]).c_str(), rank_list(others).c_str(), other,
                         text_of(reported[other]).c_str());
}

} // namespace mp::comm
