// SPDX-License-Identifier: Apache-2.0
// Agreement: the one message in which ranks agree before anything is applied. Everything in it is taken as the maximum over
// the ranks, of 32-bit words, so the order of ranks does not matter and every rank reads the same answer.
//
// What must be equal goes in as x and as its complement: max(x) == ~max(~x) exactly where all x are the same. A
// float's magnitude may go in by its bits, whose maximum keeps NaN and infinity.
//
// Values of the device go along by its own order where it orders messages, else by way of the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

class Agreement {
  public:
    Agreement() = default;
    // With values of the device, in the order of this stream.
    explicit Agreement(Stream& stream) : stream_(&stream) {}

    // `name` and `shown` outlive the agreement. Where ranks disagree the message has the name and, of a rank on each side, what
    // is shown; or the number, where that is empty.
    void must_equal(const char* name, uint64_t value, const char* shown = "");
    // Returns the place of the first one, for maximum(); the others follow. Every rank adds as many.
    std::size_t add_maxima(std::span<const uint32_t> values);
    // The same of the device's memory. Null, and that is 0: on every rank, or what is said before this differs.
    void must_equal_on_device(const char* name, const void* value, std::size_t bytes);
    // The same in the device's memory, in place; contents do not matter where reach() fails. maximum() has them where they are
    // asked for there.
    std::size_t add_maxima_of_device(uint32_t* values, int64_t count, bool for_host = false);
    // This rank cannot go on: every rank's reach() fails with peer_error, or with this status on this rank.
    void decline(const Status& reason);

    // The memory of the transport's that reach() takes, which this rank can be refused now without ending the communicator.
    [[nodiscard]] Status reserve(Communicator& comm);
    // Collective. rank_mismatch names what differs and the ranks on each side; peer_error names the first rank that
    // declined. After any failure nothing may be applied.
    Status reach(Communicator& comm, const CallOptions& options = {});
    // After reach(): the largest of all ranks.
    [[nodiscard]] uint32_t maximum(std::size_t place) const { return maxima_.at(place); }

  private:
    struct Field {
        const char* name;
        uint64_t value;
        const char* shown;
        const void* device = nullptr; // where its value is
        std::size_t bytes = 0;
    };
    struct DeviceMaxima {
        uint32_t* values;
        int64_t count;
        std::size_t first; // among the maxima
        bool for_host;
    };
    struct Reported;

    // Runs of the maxima that go in the host's words: where the device orders messages, its own are not among them.
    using Run = std::span<uint32_t>;
    [[nodiscard]] std::vector<Run> host_maxima(const Communicator& comm);
    [[nodiscard]] std::vector<uint32_t> words(const Communicator& comm);
    [[nodiscard]] bool is_behind_device(const Communicator& comm) const noexcept;
    Status say(Communicator& comm, const CallOptions& options);
    Status explain(Communicator& comm, std::size_t differing, const CallOptions& options) const;
    static Status disagreement(const char* name, const std::vector<Reported>& reported);
    // By way of the host.
    void read_device();
    void write_device() const;
    Status reach_ordered(Communicator& comm, const CallOptions& options);
    Status bring_maxima(Communicator& comm, const DeviceMaxima& maxima, const CallOptions& behind);
    static Status compare_on_device(Communicator& comm, const Field& field,
                                    const CallOptions& behind);

    Stream* stream_ = nullptr; // of what is on the device
    std::vector<Field> fields_;
    std::vector<uint32_t> maxima_;
    std::vector<DeviceMaxima> device_maxima_;
    Status reason_; // ok: takes part
};

} // namespace mp::comm
