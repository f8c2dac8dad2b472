// SPDX-License-Identifier: Apache-2.0
// A device whose candidates, failures and memory the test decides.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "device/backend.hpp"

namespace mp_test {

class FakeQueue final : public mp::Queue {
  public:
    mp::Status sync() noexcept override { return {}; }
    mp::Status capture(uint64_t* number) noexcept override {
        *number = captured_as;
        return {};
    }
    uint64_t captured_as = 0; // the test's: the capture that it is in
};

// Reached when the test says so.
class FakeEvent final : public mp::Event {
  public:
    explicit FakeEvent(const bool& is_reached) : is_reached_(is_reached) {}
    mp::Status record(mp::Queue& /*queue*/) noexcept override { return {}; }
    mp::Status wait_in(mp::Queue& /*queue*/) noexcept override { return {}; }
    mp::Status sync() noexcept override { return {}; }
    mp::Status test(bool* reached) noexcept override {
        *reached = is_reached_;
        return {};
    }

  private:
    const bool& is_reached_;
};

class FakeDevice final : public mp::Device {
  public:
    std::vector<mp::Candidate> list; // for every kind of operation
    int64_t allocations_left = -1;   // -1: no limit
    int64_t live_bytes = 0;
    bool has_events = false;
    bool are_events_reached = false;

    [[nodiscard]] mp::DeviceKind kind() const noexcept override { return mp::DeviceKind::host; }
    [[nodiscard]] int32_t index() const noexcept override { return 0; }
    void describe(mp::Properties& to) const noexcept override { to.text("backend", "fake"); }
    [[nodiscard]] int32_t num_threads() const noexcept override { return 1; }
    mp::Status allocate(std::size_t bytes, void** out) noexcept override {
        if (allocations_left == 0) {
            return mp::Status::error(mp::Code::out_of_memory, "fake: no memory for %zu bytes",
                                     bytes);
        }
        allocations_left -= allocations_left > 0 ? 1 : 0;
        live_bytes += static_cast<int64_t>(bytes);
        *out = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
        return {};
    }
    void release(void* pointer, std::size_t bytes) noexcept override {
        live_bytes -= static_cast<int64_t>(bytes);
        std::free(pointer);
    }
    mp::Status create_queue(void* /*native*/, mp::Queue** out) noexcept override {
        *out = new (std::nothrow) FakeQueue;
        return {};
    }
    mp::Status create_event(mp::Event** out) noexcept override {
        *out = has_events ? new (std::nothrow) FakeEvent(are_events_reached) : nullptr;
        return {};
    }
    mp::Status copy(mp::Queue& /*queue*/, void* destination, const void* source, std::size_t bytes,
                    mp::CopyKind /*kind*/) noexcept override {
        std::memcpy(destination, source, bytes);
        return {};
    }
    mp::Status zero(mp::Queue& /*queue*/, void* destination, std::size_t bytes) noexcept override {
        std::memset(destination, 0, bytes);
        return {};
    }
    [[nodiscard]] mp::CandidateList candidates(mp::OpKind /*kind*/) const noexcept override {
        return {list.data(), static_cast<int32_t>(list.size())};
    }
};

} // namespace mp_test
