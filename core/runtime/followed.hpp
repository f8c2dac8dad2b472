// SPDX-License-Identifier: Apache-2.0
// Followed: what work of a stream has been put behind by the device's own order, and what may never come: other ranks, say.
// Whoever waits for the stream, or for its whole device as memory that is given back does, waits for that first.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "status/status.hpp"

namespace mp {

class Device;

// Something that ends by itself, or by a deadline of its own. From any thread.
class Awaited {
  public:
    Awaited() = default;
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;
    virtual ~Awaited() = default;

    // Until it is over: the same status each time. Whoever is behind it can go on then, also where it has failed.
    virtual Status wait() noexcept = 0;
    [[nodiscard]] virtual bool is_over() noexcept = 0;
};

// Thread-safe.
class Followed {
  public:
    using List = std::vector<std::shared_ptr<Awaited>>;

    // Of one stream.
    static std::shared_ptr<Followed> make(const Device& device);

    void add(std::shared_ptr<Awaited> what);
    void add(const List& list);
    [[nodiscard]] bool exists() noexcept;
    // What is not over, and what has failed and nobody was told.
    [[nodiscard]] List open();
    // Waits for all of it; the first failure. await() tells whoever comes next, too.
    Status await() noexcept;
    Status settle() noexcept;
    // await() of all streams of a device.
    static void await_all(const Device& device) noexcept;

  private:
    explicit Followed(const Device& device) : device_(&device) {}
    // `all`: also those that have failed.
    void drop_ended(bool all) noexcept;
    [[nodiscard]] bool has_open() noexcept;

    const Device* device_; // never looked at
    std::mutex mutex_;
    List list_;
};

} // namespace mp
