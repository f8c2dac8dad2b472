// SPDX-License-Identifier: Apache-2.0
// Transport: how ranks exchange bytes. It moves bytes and takes integer maxima; floating-point sums are
// core's. One table, so that a simulated transport can stand in for a real one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "status/status.hpp"

namespace mp {

class Transport {
  public:
    Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    virtual ~Transport() = default;

    [[nodiscard]] virtual int32_t rank() const noexcept = 0;
    [[nodiscard]] virtual int32_t size() const noexcept = 0;
    // values[i] = max over ranks.
    virtual Status max_u32(uint32_t* values, int64_t count) noexcept = 0;
    // Rank r sends bytes[i] to rank i from its displacement, and receives likewise.
    virtual Status all_to_all(const void* send, const int64_t* send_bytes,
                              const int64_t* send_offsets, void* receive,
                              const int64_t* receive_bytes,
                              const int64_t* receive_offsets) noexcept = 0;
    // Every rank receives every rank's bytes at the given offsets.
    virtual Status all_gather(const void* send, int64_t send_bytes, void* receive,
                              const int64_t* receive_bytes,
                              const int64_t* receive_offsets) noexcept = 0;
    virtual Status broadcast(void* data, int64_t bytes, int32_t root) noexcept = 0;
    virtual Status barrier() noexcept = 0;
};

} // namespace mp
