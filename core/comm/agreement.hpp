// SPDX-License-Identifier: Apache-2.0
// Agreement: the one message in which ranks agree before anything is applied. Everything in it is taken as the maximum over
// the ranks, of 32-bit words, so the order of ranks does not matter and every rank reads the same answer.
//
// What must be equal goes in as x and as its complement: max(x) == ~max(~x) exactly where all x are the same. A
// float's magnitude may go in by its bits, whose maximum keeps NaN and infinity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace mp::comm {

class Agreement {
  public:
    // `name` and `shown` outlive the agreement. Where ranks disagree the message has the name and, of a rank on each side, what
    // is shown; or the number, where that is empty.
    void must_equal(const char* name, uint64_t value, const char* shown = "");
    // Returns the place of the first one, for maximum(); the others follow. Every rank adds as many.
    std::size_t add_maxima(std::span<const uint32_t> values);
    // This rank cannot go on: every rank's reach() fails with peer_error, or with this status on this rank.
    void decline(const Status& reason);

    // Collective. rank_mismatch names what differs and the ranks on each side; peer_error names the first rank that
    // declined. After any failure nothing may be applied.
    Status reach(comm::Communicator& comm, const comm::CallOptions& options = {});
    // After reach(): the largest of all ranks.
    [[nodiscard]] uint32_t maximum(std::size_t place) const { return maxima_.at(place); }

  private:
    struct Field {
        const char* name;
        uint64_t value;
        const char* shown;
    };

    [[nodiscard]] std::vector<uint32_t> words(const comm::Communicator& comm) const;
    Status explain(comm::Communicator& comm, std::size_t differing,
                   const comm::CallOptions& options) const;

    std::vector<Field> fields_;
    std::vector<uint32_t> maxima_;
    Status reason_; // ok: takes part
};

} // namespace mp::comm
