// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "comm/arrival.hpp"
#include "status/guarded.hpp"

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

} // namespace

// What a rank reports of a value that others do not have.
struct Agreement::Reported {
    uint64_t value;
    char shown[120];

    [[nodiscard]] std::string text() const {
        const std::string_view line(shown, strnlen(shown, sizeof shown));
        if (line.empty()) {
            return std::to_string(value);
        }
        std::string quoted =
            "'"; // gcc 12 warns of an overlap that there is not where it is inserted in front
        quoted.append(line);
        return quoted.append("'");
    }
};

void Agreement::must_equal(const char* name, uint64_t value, const char* shown) {
    fields_.push_back({name, value, shown});
}

void Agreement::must_equal_on_device(const char* name, const void* value, std::size_t bytes) {
    fields_.push_back({name, 0, "", value, bytes});
}

std::size_t Agreement::add_maxima_of_device(uint32_t* values, int64_t count, bool for_host) {
    const std::size_t first = maxima_.size();
    if (count > 0) {
        device_maxima_.push_back({values, count, first, for_host});
        maxima_.resize(first + static_cast<std::size_t>(count));
    }
    return first;
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

bool Agreement::is_behind_device(const Communicator& comm) const noexcept {
    return stream_ != nullptr && is_ordered(*stream_, comm);
}

std::vector<Agreement::Run> Agreement::host_maxima(const Communicator& comm) {
    const Run all = maxima_;
    std::vector<Run> runs;
    std::size_t at = 0;
    for (const DeviceMaxima& each : device_maxima_) {
        if (is_behind_device(comm)) {
            runs.push_back(all.subspan(at, each.first - at));
            at = each.first + static_cast<std::size_t>(each.count);
        }
    }
    runs.push_back(all.subspan(at));
    return runs;
}

std::vector<uint32_t> Agreement::words(const Communicator& comm) {
    std::vector<uint32_t> words(kHead, 0);
    if (!reason_.ok()) {
        words[0] = ~static_cast<uint32_t>(comm.rank());
        words[1] = static_cast<uint32_t>(-static_cast<int32_t>(reason_.code()));
    }
    for (const Field& field : fields_) {
        words.insert(words.end(),
                     {low(field.value), high(field.value), ~low(field.value), ~high(field.value)});
    }
    for (const Run& run : host_maxima(comm)) {
        words.insert(words.end(), run.begin(), run.end());
    }
    return words;
}

Status Agreement::reserve(Communicator& comm) {
    std::size_t bytes = words(comm).size() * sizeof(uint32_t);
    bytes = std::max(bytes, static_cast<std::size_t>(comm.size()) * sizeof(Reported));
    for (const DeviceMaxima& each : device_maxima_) {
        bytes = std::max(bytes, static_cast<std::size_t>(each.count) * sizeof(uint32_t));
    }
    return comm.reserve(static_cast<int64_t>(bytes));
}

Status Agreement::reach(Communicator& comm, const CallOptions& options) {
    if (is_behind_device(comm)) {
        try {
            return reach_ordered(comm, options);
        } catch (const std::bad_alloc&) { // between messages: the others wait for this rank's
            const Status own = Status::error(Code::out_of_memory, "an agreement: no memory");
            comm.abort(own);
            return own;
        }
    }
    decline(guarded("an agreement", [&]() -> Status {
        read_device();
        return {};
    }));
    const Status status = say(comm, options);
    return !status.ok() ? status : guarded("an agreement", [&]() -> Status {
        write_device();
        return {};
    });
}

void Agreement::read_device() {
    bool is_read = !device_maxima_.empty();
    for (Field& field : fields_) {
        if (field.device != nullptr) {
            stream_->copy(&field.value, field.device, field.bytes, CopyKind::device_to_host);
            is_read = true;
        }
    }
    for (const DeviceMaxima& each : device_maxima_) {
        stream_->copy(&maxima_[each.first], each.values,
                      static_cast<std::size_t>(each.count) * sizeof(uint32_t),
                      CopyKind::device_to_host);
    }
    if (is_read) {
        stream_->sync();
    }
}

void Agreement::write_device() const {
    for (const DeviceMaxima& each : device_maxima_) {
        stream_->copy(each.values, &maxima_[each.first],
                      static_cast<std::size_t>(each.count) * sizeof(uint32_t),
                      CopyKind::host_to_device);
    }
}

// Maxima come first, and are there with the host's words. What must be equal comes after these: ranks that differ in what they
// compare have heard it then.
Status Agreement::reach_ordered(Communicator& comm, const CallOptions& options) {
    CallOptions behind = options;
    behind.queue = &stream_->queue();
    std::vector<CommRequest> requests(device_maxima_.size());
    Status status;
    for (std::size_t i = 0; i < requests.size() && status.ok(); ++i) {
        status = comm.begin(MaxU32{device_maxima_[i].values, device_maxima_[i].count}, behind,
                            &requests[i]);
    }
    status = status.ok() ? say(comm, options) : status;
    for (CommRequest& request : requests) {
        const Status arrived = request.wait();
        status = status.ok() ? arrived : status;
    }
    for (std::size_t i = 0; i < device_maxima_.size() && status.ok(); ++i) {
        status =
            device_maxima_[i].for_host ? bring_maxima(comm, device_maxima_[i], behind) : status;
    }
    for (std::size_t i = 0; i < fields_.size() && status.ok(); ++i) {
        status =
            fields_[i].device != nullptr ? compare_on_device(comm, fields_[i], behind) : status;
    }
    return status;
}

// They are the same on every rank's device.
Status Agreement::bring_maxima(Communicator& comm, const DeviceMaxima& maxima,
                               const CallOptions& behind) {
    std::vector<int64_t> bytes(static_cast<std::size_t>(comm.size()), 0);
    bytes[0] = maxima.count * static_cast<int64_t>(sizeof(uint32_t));
    const std::vector<int64_t> offsets(bytes.size(), 0);
    return comm.run(AllGather{maxima.values, bytes[static_cast<std::size_t>(comm.rank())],
                              &maxima_[maxima.first], bytes.data(), offsets.data()},
                    behind);
}

Status Agreement::compare_on_device(Communicator& comm, const Field& field,
                                    const CallOptions& behind) {
    const auto size = static_cast<std::size_t>(comm.size());
    std::vector<Reported> reported(size);
    std::vector<unsigned char> values(size * field.bytes);
    const std::vector<int64_t> bytes(size, static_cast<int64_t>(field.bytes));
    std::vector<int64_t> offsets(size);
    for (std::size_t i = 0; i < size; ++i) {
        offsets[i] = static_cast<int64_t>(i * field.bytes);
    }
    const Status gathered = comm.run(
        AllGather{field.device, bytes[0], values.data(), bytes.data(), offsets.data()}, behind);
    if (!gathered.ok()) {
        return gathered;
    }
    bool is_equal = true;
    for (std::size_t i = 0; i < size; ++i) {
        std::memcpy(&reported[i].value, &values[i * field.bytes], field.bytes);
        is_equal = is_equal && reported[i].value == reported[0].value;
    }
    return is_equal ? Status() : disagreement(field.name, reported);
}

// The words of the host.
Status Agreement::say(Communicator& comm, const CallOptions& options) {
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
    const uint32_t* next = all.data() + kHead + fields_.size() * kWordsOfField;
    for (const Run& run : host_maxima(comm)) {
        std::copy(next, next + run.size(), run.begin());
        next += run.size();
    }
    return {};
}

// All ranks have seen the same words, so all are here.
Status Agreement::explain(Communicator& comm, std::size_t differing,
                          const CallOptions& options) const {
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
    return disagreement(fields_[differing].name, reported);
}

Status Agreement::disagreement(const char* name, const std::vector<Reported>& reported) {
    std::vector<int32_t> as_first;
    std::vector<int32_t> others;
    for (std::size_t i = 0; i < reported.size(); ++i) {
        (reported[i].value == reported[0].value ? as_first : others)
            .push_back(static_cast<int32_t>(i));
    }
    const std::size_t other = others.empty() ? 0 : static_cast<std::size_t>(others[0]);
    return Status::error(Code::rank_mismatch,
                         "ranks disagree in %s: rank(s) %s have %s, rank(s) %s do not; rank %zu "
                         "has %s. All ranks must say the same; nothing was changed",
                         name, rank_list(as_first).c_str(), reported[0].text().c_str(),
                         rank_list(others).c_str(), other, reported[other].text().c_str());
}

} // namespace mp::comm
