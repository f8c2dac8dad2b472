// SPDX-License-Identifier: Apache-2.0
#include "work_queue.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "runtime.hpp"

namespace mp::simulated {

namespace {

// ---- as late as allowed, under the lock of the runtime ------------------------------------------

struct LateWork {
    std::deque<Work> pending;
    uint64_t added = 0;
    uint64_t done = 0;

    void do_until(uint64_t position) {
        while (done < position) {
            const Work work = std::move(pending.front());
            pending.pop_front();
            ++done;
            if (control().broken == cudaSuccess) {
                work();
            }
        }
    }
};

class LateMark final : public Mark {
  public:
    explicit LateMark(std::shared_ptr<LateWork> work)
        : work_(std::move(work)), position_(work_->added) {}
    [[nodiscard]] bool is_reached() noexcept override { return work_->done >= position_; }
    // Work that waits for another stream does that one's first.
    void wait() override { work_->do_until(position_); }
    [[nodiscard]] Work waiting() const override {
        return [work = work_, position = position_] { work->do_until(position); };
    }

  private:
    std::shared_ptr<LateWork> work_;
    uint64_t position_;
};

class LateQueue final : public WorkQueue {
  public:
    void add(Work work) override {
        work_->pending.push_back(std::move(work));
        ++work_->added;
    }
    [[nodiscard]] std::shared_ptr<Mark> mark() override {
        return std::make_shared<LateMark>(work_);
    }

  private:
    std::shared_ptr<LateWork> work_ = std::make_shared<LateWork>();
};

// ---- in a thread --------------------------------------------------------------------------------

// The thread sanitizer takes every release and acquire for an order that the program may rely on. So there is one from the
// host to the work it adds, and one from the work before a mark to who waits for that mark, and no other: no mutex, no condition
// variable, and no count of references that both sides let go. Sleeping is the kernel's futex, which orders nothing.
void sleep_while(std::atomic<uint32_t>& word, uint32_t value) noexcept {
    static_assert(sizeof word == sizeof(uint32_t));
    (void)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake_all(std::atomic<uint32_t>& word) noexcept {
    (void)syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// Lives as long as the process, since nobody counts who still looks at it.
struct Flag {
    [[nodiscard]] bool is_reached() noexcept {
        return reached.load(std::memory_order_acquire) != 0;
    }
    void wait() noexcept {
        while (!is_reached()) {
            sleep_while(reached, 0);
        }
    }
    void reach() noexcept {
        reached.store(1, std::memory_order_release);
        wake_all(reached);
    }
    std::atomic<uint32_t> reached = 0;
};
Flag& new_flag() {
    static auto* const all =
        new std::deque<Flag>; // reachable until the end: threads end in any order
    return all->emplace_back();
}

class FlagMark final : public Mark {
  public:
    explicit FlagMark(Flag& flag) : flag_(flag) {}
    [[nodiscard]] bool is_reached() noexcept override { return flag_.is_reached(); }
    void wait() override { flag_.wait(); }
    [[nodiscard]] Work waiting() const override {
        return [flag = &flag_] { flag->wait(); };
    }

  private:
    Flag& flag_;
};

class ThreadQueue final : public WorkQueue {
  public:
    ThreadQueue() : thread_([this] { run(); }) {}
    ~ThreadQueue() override {
        add(nullptr);
        thread_.join();
        delete first_;
    }
    ThreadQueue(const ThreadQueue&) = delete;
    ThreadQueue& operator=(const ThreadQueue&) = delete;

    // Who adds holds the lock of the runtime.
    void add(Work work) override {
        mark_ = nullptr;
        auto* const item = new Item{std::move(work), nullptr};
        last_->next.store(item, std::memory_order_release);
        last_ = item;
        added_.fetch_add(1, std::memory_order_release);
        wake_all(added_);
    }
    // The same one until work is added: a stream that is asked again and again comes to an end.
    [[nodiscard]] std::shared_ptr<Mark> mark() override {
        if (mark_ == nullptr) {
            Flag& flag = new_flag();
            add([&flag] { flag.reach(); });
            mark_ = std::make_shared<FlagMark>(flag);
        }
        return mark_;
    }

  private:
    struct Item {
        Work work;
        std::atomic<Item*> next;
    };

    void run() {
        while (true) {
            const uint32_t added = added_.load(std::memory_order_acquire);
            Item* const item = first_->next.load(std::memory_order_acquire);
            if (item == nullptr) {
                sleep_while(added_, added);
                continue;
            }
            delete first_;
            first_ = item;
            if (item->work == nullptr) {
                return;
            }
            item->work();
            item->work = nullptr;
        }
    }

    Item* first_ = new Item{nullptr, nullptr}; // done; the work begins behind it
    Item* last_ = first_;
    std::shared_ptr<Mark> mark_;
    std::atomic<uint32_t> added_ = 0; // only to sleep on
    std::thread thread_;
};

} // namespace

bool has_threads() noexcept {
    static const bool value = std::getenv("MP_SIMULATED_THREADS") != nullptr;
    return value;
}

std::shared_ptr<WorkQueue> make_work_queue() {
    if (has_threads()) {
        return std::make_shared<ThreadQueue>();
    }
    return std::make_shared<LateQueue>();
}

} // namespace mp::simulated
