// SPDX-License-Identifier: Apache-2.0
// Memory of the caller's that no tensor uses any more, but work that is enqueued may: it is given back once that work is done.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/stream.hpp"

namespace mp {

// Gives borrowed memory back; runs once.
struct Deleter {
    void (*call)(void* payload) = nullptr;
    void* payload = nullptr;
    bool needs_no_wait = false; // it gives back no memory that work may use
};

// Thread-safe. Deleters run in the thread of whichever call finds them due, under the caller's floating-point environment.
class GivenBack {
  public:
    GivenBack() = default;
    GivenBack(const GivenBack&) = delete;
    GivenBack& operator=(const GivenBack&) = delete;
    ~GivenBack() { finish(); }

    // When the work so far on these streams is done, at once if it is.
    void add(const Deleter& deleter, const std::vector<std::shared_ptr<Stream>>& streams) noexcept;
    // Those whose work is done by now.
    void run_due() noexcept;
    // All of them: waits.
    void finish() noexcept;

  private:
    // Of a stream that is being captured nothing can be recorded until the capture is over.
    struct Point {
        std::weak_ptr<Stream> stream;
        std::unique_ptr<Event> event;
        bool is_recorded = false;
    };
    struct Entry {
        Deleter deleter;
        std::vector<Point> points;
    };
    static bool is_reached(Point& point) noexcept;
    static bool is_due(Entry& entry) noexcept;

    std::mutex mutex_;
    std::vector<Entry> waiting_;
};

} // namespace mp
