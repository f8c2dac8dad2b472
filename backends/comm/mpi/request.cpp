// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/request.hpp"

#include <algorithm>
#include <cstring>

#include "comm/mpi/transport.hpp"

namespace mp::comm {
namespace {

// What all requests share: their channels, and what becomes of them.
class ChannelRequest : public TransportRequest {
  public:
    ChannelRequest(MpiTransport& transport, const Collective& what)
        : transport_(transport), what_(what) {}

    ~ChannelRequest() override {
        Base& base = transport_.base();
        if (!is_over_) {
            base.set_broken();
            transport_.notices().notify_others();
        }
        for (SendChannel& channel : sends_) {
            channel.close(base);
        }
        for (ReceiveChannel& channel : receives_) {
            channel.close(base);
        }
    }

    Status poll(bool* done) noexcept override {
        *done = false;
        Status status = transport_.notices().check();
        try {
            status = status.ok() ? poll_channels(done) : status;
        } catch (const std::exception&) {
            status = Status::error(Code::out_of_memory, "no memory for staging buffers");
        }
        is_over_ = *done;
        return status.ok() ? status : transport_.with_failed_ranks(status);
    }

    [[nodiscard]] int64_t moved_bytes() const noexcept override {
        int64_t bytes = 0;
        for (const SendChannel& channel : sends_) {
            bytes += channel.moved_bytes();
        }
        for (const ReceiveChannel& channel : receives_) {
            bytes += channel.moved_bytes();
        }
        return bytes;
    }

    int32_t missing(int32_t* ranks, int32_t capacity) const noexcept override {
        int32_t count = 0;
        for (const ReceiveChannel& channel : receives_) {
            if (!channel.is_done()) {
                if (count < capacity) {
                    ranks[count] = channel.end().rank;
                }
                ++count;
            }
        }
        return count;
    }

  protected:
    // Moves on; `done` when nothing is left to do.
    virtual Status poll_channels(bool* done) = 0;

    [[nodiscard]] ChannelHeader header(int64_t bytes) const noexcept {
        return {what_.sequence, bytes, what_.count, static_cast<int32_t>(what_.kind), what_.root};
    }
    void add_send(int32_t rank, const void* data, int64_t bytes) {
        sends_.emplace_back().start(transport_.channel_end(rank, what_.sequence), header(bytes),
                                    data);
    }
    void add_receive(int32_t rank, void* data, int64_t bytes) {
        receives_.emplace_back().start(transport_.channel_end(rank, what_.sequence), header(bytes),
                                       data);
    }
    Status poll_all(bool* done) {
        *done = true;
        for (ReceiveChannel& channel : receives_) {
            if (!channel.is_done()) {
                const Status status = channel.poll(transport_.base());
                if (!status.ok()) {
                    return status;
                }
                *done = *done && channel.is_done();
            }
        }
        for (SendChannel& channel : sends_) {
            if (!channel.is_done()) {
                const Status status = channel.poll(transport_.base());
                if (!status.ok()) {
                    return status;
                }
                *done = *done && channel.is_done();
            }
        }
        return {};
    }

    MpiTransport& transport_;
    Collective what_;
    std::vector<SendChannel> sends_;
    std::vector<ReceiveChannel> receives_;

  private:
    bool is_over_ = false;
};

// Everyone to everyone: each pair has a channel each way, also where it carries nothing, so that ranks that do not ask for
// the same find it out at once.
class ExchangeRequest final : public ChannelRequest {
  public:
    ExchangeRequest(MpiTransport& transport, const Collective& what)
        : ChannelRequest(transport, what) {
        const int32_t size = transport.size();
        const int32_t own = transport.rank();
        for (int32_t step = 1; step < size; ++step) {
            const int32_t to = (own + step) % size;
            const int32_t from = (own + size - step) % size;
            add_send(to, send_of(to), send_bytes(to));
            add_receive(from, receive_of(from), what.receive_bytes[from]);
        }
        if (what.receive_bytes[own] > 0 && receive_of(own) != send_of(own)) {
            std::memmove(receive_of(own), send_of(own),
                         static_cast<std::size_t>(what.receive_bytes[own]));
        }
    }

  private:
    [[nodiscard]] bool is_gather() const noexcept {
        return what_.kind == CollectiveKind::all_gather;
    }
    [[nodiscard]] int64_t send_bytes(int32_t rank) const noexcept {
        return what_.send_bytes[is_gather() ? 0 : rank];
    }
    [[nodiscard]] const unsigned char* send_of(int32_t rank) const noexcept {
        return static_cast<const unsigned char*>(what_.send) +
               (is_gather() || send_bytes(rank) == 0 ? 0 : what_.send_offsets[rank]);
    }
    [[nodiscard]] unsigned char* receive_of(int32_t rank) const noexcept {
        return static_cast<unsigned char*>(what_.receive) +
               (what_.receive_bytes[rank] == 0 ? 0 : what_.receive_offsets[rank]);
    }
    Status poll_channels(bool* done) override { return poll_all(done); }
};

// A binomial tree from the root: rank v (counted from the root) has its bytes from v without its lowest bit.
class BroadcastRequest final : public ChannelRequest {
  public:
    BroadcastRequest(MpiTransport& transport, const Collective& what)
        : ChannelRequest(transport, what), size_(transport.size()),
          place_((transport.rank() - what.root + size_) % size_) {
        if (place_ == 0) {
            add_children();
        } else {
            add_receive(rank_at(place_ & (place_ - 1)), what.receive, what.receive_bytes[0]);
        }
    }

  private:
    [[nodiscard]] int32_t rank_at(int32_t place) const noexcept {
        return (place + what_.root) % size_;
    }
    void add_children() {
        has_children_ = true;
        const int32_t lowest = place_ == 0 ? size_ : place_ & -place_;
        for (int32_t bit = 1; bit < lowest && place_ + bit < size_; bit *= 2) {
            add_send(rank_at(place_ + bit), what_.receive, what_.receive_bytes[0]);
        }
        // The largest subtree first.
        std::reverse(sends_.begin(), sends_.end());
    }
    Status poll_channels(bool* done) override {
        Status status = poll_all(done);
        if (status.ok() && *done && !has_children_) {
            add_children();
            status = poll_all(done);
        }
        return status;
    }

    int32_t size_;
    int32_t place_;
    bool has_children_ = false;
};

// Maxima, and the barrier as maxima of nothing: in round k each rank sends the one 2^k after it what it knows. As the
// maximum of a value with itself is the value, it does not matter that ranks are heard of more than once.
class MaximumRequest final : public ChannelRequest {
  public:
    MaximumRequest(MpiTransport& transport, const Collective& what)
        : ChannelRequest(transport, what), values_(static_cast<std::size_t>(what.count)),
          theirs_(values_.size()) {
        const auto* own = static_cast<const uint32_t*>(what.receive);
        std::copy(own, own + what.count, values_.begin());
        add_round();
    }

  private:
    void add_round() {
        const int32_t size = transport_.size();
        if (distance_ < size) {
            const auto bytes = static_cast<int64_t>(values_.size() * sizeof(uint32_t));
            sends_.clear();
            receives_.clear();
            add_send((transport_.rank() + distance_) % size, values_.data(), bytes);
            add_receive((transport_.rank() + size - distance_) % size, theirs_.data(), bytes);
        }
    }
    Status poll_channels(bool* done) override {
        *done = false;
        while (distance_ < transport_.size()) {
            bool is_round_done = false;
            const Status status = poll_all(&is_round_done);
            if (!status.ok() || !is_round_done) {
                return status;
            }
            for (std::size_t i = 0; i < values_.size(); ++i) {
                values_[i] = std::max(values_[i], theirs_[i]);
            }
            distance_ *= 2;
            add_round();
        }
        std::copy(values_.begin(), values_.end(), static_cast<uint32_t*>(what_.receive));
        *done = true;
        return {};
    }

    std::vector<uint32_t> values_;
    std::vector<uint32_t> theirs_;
    int32_t distance_ = 1;
};

// MPI's own sum, in pieces, out of a buffer of ours.
class SumRequest final : public TransportRequest {
  public:
    SumRequest(MpiTransport& transport, const Collective& what)
        : transport_(transport), what_(what),
          buffer_(new float[static_cast<std::size_t>(what.count)]) {
        const auto* own = static_cast<const float*>(what.receive);
        std::copy(own, own + what.count, buffer_.get());
        for (int64_t start = 0; start < what.count; start += kPiece) {
            requests_.push_back(MPI_REQUEST_NULL);
        }
    }
    ~SumRequest() override {
        if (!is_over_) {
            transport_.base().set_broken();
            transport_.notices().notify_others();
            (void)buffer_.release(); // MPI may still use it: never freed
        }
    }
    // Apart from the making: what is given to MPI before a failure must not be freed.
    void start() {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            const int64_t start = static_cast<int64_t>(i) * kPiece;
            check(mpi_status(MPI_Iallreduce(MPI_IN_PLACE, buffer_.get() + start,
                                            static_cast<int>(std::min(kPiece, what_.count - start)),
                                            MPI_FLOAT, MPI_SUM, transport_.base().comm(),
                                            &requests_[i]),
                             "MPI_Iallreduce"));
        }
    }
    Status poll(bool* done) noexcept override {
        *done = false;
        Status status = transport_.notices().check();
        for (std::size_t i = 0; i < requests_.size() && status.ok(); ++i) {
            int flag = 0;
            status = mpi_status(MPI_Test(&requests_[i], &flag, MPI_STATUS_IGNORE), "MPI_Test");
            if (status.ok() && flag == 0) {
                return {};
            }
        }
        if (!status.ok()) {
            return transport_.with_failed_ranks(status);
        }
        std::copy(buffer_.get(), buffer_.get() + what_.count, static_cast<float*>(what_.receive));
        is_over_ = true;
        *done = true;
        return {};
    }

  private:
    static constexpr int64_t kPiece = int64_t{1} << 28; // floats: 2^30 bytes

    MpiTransport& transport_;
    Collective what_;
    std::unique_ptr<float[]> buffer_;
    std::vector<MPI_Request> requests_;
    bool is_over_ = false;
};

} // namespace

TransportRequest* start_request(MpiTransport& transport, const Collective& what) {
    switch (what.kind) {
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_gather:
        return new ExchangeRequest(transport, what);
    case CollectiveKind::broadcast:
        return new BroadcastRequest(transport, what);
    case CollectiveKind::barrier:
    case CollectiveKind::max_u32:
        return new MaximumRequest(transport, what);
    case CollectiveKind::sum_f32: {
        auto request = std::make_unique<SumRequest>(transport, what);
        request->start();
        return request.release();
    }
    }
    fail(Code::internal, "collective kind %d", static_cast<int>(what.kind));
}

} // namespace mp::comm
