// SPDX-License-Identifier: Apache-2.0
// Followed: what work of a stream has been put behind by the device's own order, and what may never come: other ranks, say.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "status/status.hpp"

namespace mp {

// Something that ends by itself, or by a deadline of its own. From any thread.
class Awaited {
  public:
    Awaited() = default;
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;
    virtual ~Awaited() = default;

    // Until it is over. Whoever is behind it can go on then, also where it has failed.
    virtual Status wait() noexcept = 0;
    [[nodiscard]] virtual bool is_over() noexcept = 0;
};

// Thread-safe.
class Followed {
  public:
    using List = std::vector<std::shared_ptr<Awaited>>;

    void add(std::shared_ptr<Awaited> what);
    void add(const List& list);
    [[nodiscard]] bool exists() noexcept;
    // What is not over.
    [[nodiscard]] List open();
    // Waits for all of it. The first failure since the last time.
    Status settle() noexcept;

  private:
    void drop_ended() noexcept;

    std::mutex mutex_;
    List list_;
    Status failure_; // of what is not in the list any more
};

} // namespace mp
