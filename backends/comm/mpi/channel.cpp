// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/channel.hpp"

#include <algorithm>
#include <cstring>

#include "transport/transport.hpp"

namespace mp::comm {
namespace {

constexpr auto kHeaderBytes = static_cast<int64_t>(sizeof(ChannelHeader));

} // namespace

Status Channel::test(StagedMessage& message, bool* done, MPI_Status* status) noexcept {
    int flag = 0;
    const Status result = mpi_status(MPI_Test(&message.request, &flag, status), "MPI_Test");
    *done = flag != 0;
    return result;
}

void Channel::close(Base& base) noexcept {
    for (StagedMessage& message : messages_) {
        if (message.is_active) {
            (void)message.buffer.release(); // MPI may still use it: never freed
            message.is_active = false;
        } else if (message.buffer != nullptr) {
            base.give(std::move(message.buffer), message.is_large);
        }
    }
}

// ---- sending

void SendChannel::start(const ChannelEnd& end, const ChannelHeader& header,
                        const void* data) noexcept {
    end_ = end;
    header_ = header;
    total_ = header.total;
    data_ = static_cast<const unsigned char*>(data);
}

Status SendChannel::put(Base& base, StagedMessage& message) {
    const bool is_first = !first_began_;
    message.is_large = !is_first;
    message.buffer = base.take(message.is_large);
    unsigned char* payload = message.buffer.get();
    int64_t bytes = next_bytes();
    if (is_first) {
        bytes = std::min(bytes, kFirstBytes);
        std::memcpy(payload, &header_, sizeof header_);
        payload += kHeaderBytes;
    }
    if (bytes > 0) {
        std::memcpy(payload, data_ + started_, static_cast<std::size_t>(bytes));
    }
    message.bytes = bytes;
    started_ += bytes;
    first_began_ = true;
    message.is_active = true;
    return mpi_status(MPI_Isend(message.buffer.get(),
                                static_cast<int>(bytes + (is_first ? kHeaderBytes : 0)), MPI_BYTE,
                                end_.peer, end_.tag, base.comm(), &message.request),
                      "MPI_Isend");
}

Status SendChannel::poll(Base& base) {
    for (StagedMessage& message : messages_) {
        if (message.is_active) {
            bool done = false;
            const Status status = test(message, &done, MPI_STATUS_IGNORE);
            if (!status.ok()) {
                return status;
            }
            if (done) {
                message.is_active = false;
                base.give(std::move(message.buffer), message.is_large);
                finished_ += message.bytes;
                has_first_ = true; // or a later one, and then the first is counted by its bytes
            }
        }
        if (!message.is_active && (!first_began_ || started_ < total_)) {
            const Status status = put(base, message);
            if (!status.ok()) {
                return status;
            }
        }
    }
    return {};
}

// ---- receiving

void ReceiveChannel::start(const ChannelEnd& end, const ChannelHeader& header,
                           void* data) noexcept {
    end_ = end;
    header_ = header;
    total_ = header.total;
    data_ = static_cast<unsigned char*>(data);
}

Status ReceiveChannel::post(Base& base, StagedMessage& message) {
    const bool is_first = !first_began_;
    message.is_large = !is_first;
    message.buffer = base.take(message.is_large);
    message.bytes = is_first ? std::min(total_, kFirstBytes) : next_bytes();
    // Room for any first message, so that one that does not fit is still read.
    const int64_t room = is_first ? kFirstBytes + kHeaderBytes : message.bytes;
    started_ += message.bytes;
    first_began_ = true;
    message.is_active = true;
    return mpi_status(MPI_Irecv(message.buffer.get(), static_cast<int>(room), MPI_BYTE, end_.peer,
                                end_.tag, base.comm(), &message.request),
                      "MPI_Irecv");
}

Status ReceiveChannel::check_first(const StagedMessage& message,
                                   const MPI_Status& status) noexcept {
    int bytes = 0;
    (void)MPI_Get_count(&status, MPI_BYTE, &bytes);
    ChannelHeader theirs{};
    if (bytes >= kHeaderBytes) {
        std::memcpy(&theirs, message.buffer.get(), sizeof theirs);
    }
    if (bytes < kHeaderBytes || theirs.sequence != header_.sequence) {
        return Status::error(Code::rank_mismatch,
                             "rank %d is at its collective #%llu, this rank at #%llu", end_.rank,
                             static_cast<unsigned long long>(theirs.sequence),
                             static_cast<unsigned long long>(header_.sequence));
    }
    if (theirs.kind < 0 || theirs.kind >= kCollectiveKindCount) {
        return Status::error(Code::corrupt_data, "rank %d sent a header of kind %d", end_.rank,
                             theirs.kind);
    }
    if (theirs.kind != header_.kind) {
        return Status::error(Code::rank_mismatch, "rank %d calls %s", end_.rank,
                             collective_name(static_cast<CollectiveKind>(theirs.kind)));
    }
    if (theirs.root != header_.root) {
        return Status::error(Code::rank_mismatch, "root is %d on rank %d, but %d here", theirs.root,
                             end_.rank, header_.root);
    }
    if (theirs.count != header_.count) {
        return Status::error(Code::rank_mismatch, "count is %lld on rank %d, but %lld here",
                             static_cast<long long>(theirs.count), end_.rank,
                             static_cast<long long>(header_.count));
    }
    if (theirs.total != total_ || bytes != kHeaderBytes + message.bytes) {
        return Status::error(
            Code::rank_mismatch, "rank %d sends %lld bytes, but this rank expects %lld from it",
            end_.rank, static_cast<long long>(theirs.total), static_cast<long long>(total_));
    }
    return {};
}

Status ReceiveChannel::finish(Base& base, StagedMessage& message,
                              const MPI_Status& status) noexcept {
    message.is_active = false;
    const bool is_first = !has_first_;
    if (is_first) {
        const Status checked = check_first(message, status);
        if (!checked.ok()) {
            return checked;
        }
        has_first_ = true;
    }
    if (message.bytes > 0) {
        std::memcpy(data_ + finished_, message.buffer.get() + (is_first ? kHeaderBytes : 0),
                    static_cast<std::size_t>(message.bytes));
    }
    finished_ += message.bytes;
    base.give(std::move(message.buffer), message.is_large);
    return {};
}

Status ReceiveChannel::poll(Base& base) {
    // In the order they were posted, which is the order of the bytes.
    for (std::size_t i = 0; i < kDepth; ++i) {
        StagedMessage& message = messages_.at(oldest_);
        if (!message.is_active) {
            break;
        }
        bool done = false;
        MPI_Status status = {};
        Status result = test(message, &done, &status);
        if (result.ok() && done) {
            result = finish(base, message, status);
            oldest_ = (oldest_ + 1) % kDepth;
        }
        if (!result.ok() || !done) {
            return result;
        }
    }
    for (std::size_t i = 0; i < kDepth; ++i) {
        StagedMessage& message = messages_.at((oldest_ + i) % kDepth);
        const bool wants_more = !first_began_ || started_ < total_;
        if (!message.is_active && wants_more) {
            const Status result = post(base, message);
            if (!result.ok()) {
                return result;
            }
        }
    }
    return {};
}

} // namespace mp::comm
