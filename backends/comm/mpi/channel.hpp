// SPDX-License-Identifier: Apache-2.0
// Channels: the bytes of one collective from one rank to another, in pieces through staging buffers. The first message
// has a header, and is looked at before the rest; more follow only for what does not fit beside it.
#pragma once

#include <array>
#include <cstdint>

#include "comm/mpi/base.hpp"

namespace mp::comm {

struct ChannelEnd {
    int peer = 0; // in the base communicator
    int rank = 0; // in the group, for words
    int tag = 0;
};

// A staging buffer of the channel, and what MPI was asked to do with it.
struct StagedMessage {
    Buffer buffer;
    MPI_Request request = MPI_REQUEST_NULL;
    int64_t bytes = 0; // of payload
    bool is_active = false;
    bool is_large = false;
};

class Channel {
  public:
    Channel() = default;
    Channel(Channel&&) = default;
    Channel& operator=(Channel&&) = default;
    ~Channel() = default;

    [[nodiscard]] bool is_done() const noexcept { return has_first_ && finished_ == total_; }
    [[nodiscard]] const ChannelEnd& end() const noexcept { return end_; }
    // Handed to MPI, and done with.
    [[nodiscard]] int64_t moved_bytes() const noexcept { return started_ + finished_; }
    // Buffers go back, or are given up where MPI still has them.
    void close(Base& base) noexcept;

  protected:
    static constexpr std::size_t kDepth = 2;

    [[nodiscard]] int64_t next_bytes() const noexcept {
        return total_ - started_ < kChunkBytes ? total_ - started_ : kChunkBytes;
    }
    static Status test(StagedMessage& message, bool* done, MPI_Status* status) noexcept;

    ChannelEnd end_;
    ChannelHeader header_{};
    int64_t total_ = 0;
    int64_t started_ = 0;
    int64_t finished_ = 0;
    bool has_first_ = false; // is over
    bool first_began_ = false;
    std::array<StagedMessage, kDepth> messages_;
    std::size_t oldest_ = 0;
};

class SendChannel : public Channel {
  public:
    void start(const ChannelEnd& end, const ChannelHeader& header, const void* data) noexcept;
    Status poll(Base& base);

  private:
    Status put(Base& base, StagedMessage& message);
    const unsigned char* data_ = nullptr;
};

class ReceiveChannel : public Channel {
  public:
    // `header` is what the other rank's must be.
    void start(const ChannelEnd& end, const ChannelHeader& header, void* data) noexcept;
    Status poll(Base& base);

  private:
    Status post(Base& base, StagedMessage& message);
    Status check_first(const StagedMessage& message, const MPI_Status& status) noexcept;
    Status finish(Base& base, StagedMessage& message, const MPI_Status& status) noexcept;
    unsigned char* data_ = nullptr;
};

} // namespace mp::comm
