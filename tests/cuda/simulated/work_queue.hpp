// SPDX-License-Identifier: Apache-2.0
// The work of one stream of the simulated device, in order. In one of two ways for the whole process: as late as CUDA allows,
// when somebody waits for it; or, with MP_SIMULATED_THREADS, in a thread of its own.
#pragma once

#include <functional>
#include <memory>

namespace mp::simulated {

using Work = std::function<void()>;

// A point in a stream's work, as an event is one.
class Mark {
  public:
    Mark() = default;
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    virtual ~Mark() = default;
    // Who finds it reached, or has waited, sees what the work before it wrote, and nothing of later work.
    [[nodiscard]] virtual bool is_reached() noexcept = 0;
    virtual void wait() = 0;
    // The same as work of another stream.
    [[nodiscard]] virtual Work waiting() const = 0;
};

class WorkQueue {
  public:
    WorkQueue() = default;
    WorkQueue(const WorkQueue&) = delete;
    WorkQueue& operator=(const WorkQueue&) = delete;
    virtual ~WorkQueue() = default;
    virtual void add(Work work) = 0;
    // Behind all work so far.
    [[nodiscard]] virtual std::shared_ptr<Mark> mark() = 0;
};

[[nodiscard]] std::shared_ptr<WorkQueue> make_work_queue();

// Whether each stream has a thread.
[[nodiscard]] bool has_threads() noexcept;

} // namespace mp::simulated
