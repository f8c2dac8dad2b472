// SPDX-License-Identifier: Apache-2.0
// HostGradients: gradients that live in host memory, of parameters that nobody shares. A gradient's tensor has memory on the
// device from acquire() to ready(), with what is here, so that more is added to it as if it had stayed. The step reads what is
// here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/host_lane.hpp"
#include "tensor/tensor.hpp"

namespace mp::optim {

class Parameters;

class HostGradients {
  public:
    // `parameters` outlives this.
    HostGradients(std::shared_ptr<HostLane> lane, const Parameters& parameters);
    HostGradients(const HostGradients&) = delete;
    HostGradients& operator=(const HostGradients&) = delete;
    ~HostGradients() { lane_->finish(); }

    // Memory on the device, unless it is there.
    void acquire(Stream& stream, int32_t index);
    // It leaves for the host, and the memory goes; nothing where it has none. Throws for memory that somebody else keeps.
    void ready(Stream& stream, int32_t index);
    // All of them are here: those too that nobody said to be ready, and zeros. Waits.
    void collect(Stream& stream);
    // It is zero, but for what is on the device.
    void set_zero(int32_t index) noexcept;

    // Places for the list as it is, as the calls above make them. Waits where it has changed; where it throws nothing has.
    void follow_list(Stream& stream);

    // Null where it has no place yet.
    [[nodiscard]] ArrayRef array(int32_t index) const;
    [[nodiscard]] int64_t bytes() const noexcept { return static_cast<int64_t>(memory_.bytes()); }

  private:
    struct Entry {
        std::shared_ptr<Tensor> grad; // null: it has none
        std::size_t place = 0;        // byte of memory_
        bool is_zero = true;          // whatever the memory holds
        bool is_written = false;      // as zeros
    };
    [[nodiscard]] bool has_places() const;
    void leave(Stream& stream, Entry& entry);
    [[nodiscard]] float* scale(const Entry& entry) const noexcept;

    std::shared_ptr<HostLane> lane_;
    const Parameters& parameters_;
    PinnedBuffer memory_;
    std::vector<Entry> entries_; // by parameter
};

} // namespace mp::optim
