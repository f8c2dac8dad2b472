// SPDX-License-Identifier: Apache-2.0
#include "context/given_back.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "process/float_environment.hpp"

namespace mp {
namespace {

void run(const Deleter& deleter) noexcept {
    const process::CallerFloats floats;
    deleter.call(deleter.payload);
}

// What failed there cannot use the memory any more.
void wait_for(const Stream& stream) noexcept { stream.finish(); }

} // namespace

bool GivenBack::is_reached(Point& point) noexcept {
    if (!point.is_recorded) {
        const std::shared_ptr<Stream> stream = point.stream.lock();
        if (stream == nullptr) {
            return true; // its end waited for its work, if it had any
        }
        uint64_t capture = 0;
        const Status asked = stream->queue().capture(&capture);
        point.is_recorded = asked.ok() && capture == 0 && point.event->record(stream->queue()).ok();
        if (!point.is_recorded) {
            return false;
        }
    }
    bool is_reached = false;
    return !point.event->test(&is_reached).ok() || is_reached;
}

bool GivenBack::is_due(Entry& entry) noexcept {
    std::erase_if(entry.points, is_reached);
    return entry.points.empty();
}

void GivenBack::add(const Deleter& deleter,
                    const std::vector<std::shared_ptr<Stream>>& streams) noexcept {
    try {
        Entry entry{deleter, {}};
        for (const std::shared_ptr<Stream>& stream : streams) {
            Event* event = nullptr;
            check(stream->device().create_event(&event));
            if (event != nullptr) { // else its work is done when a call returns
                entry.points.push_back({stream, std::unique_ptr<Event>(event), false});
            }
        }
        if (!is_due(entry)) {
            const std::lock_guard lock(mutex_);
            waiting_.push_back(std::move(entry));
            return;
        }
    } catch (const std::exception&) { // no memory for it
        for (const std::shared_ptr<Stream>& stream : streams) {
            wait_for(*stream);
        }
    }
    run(deleter);
}

void GivenBack::run_due() noexcept {
    std::vector<Entry> due;
    {
        const std::lock_guard lock(mutex_);
        const auto first = std::partition(waiting_.begin(), waiting_.end(),
                                          [](Entry& entry) { return !is_due(entry); });
        try {
            due.assign(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
        } catch (const std::exception&) {
            return; // another time
        }
        waiting_.erase(first, waiting_.end());
    }
    for (const Entry& entry : due) {
        run(entry.deleter);
    }
}

void GivenBack::finish() noexcept {
    std::vector<Entry> rest;
    {
        const std::lock_guard lock(mutex_);
        rest.swap(waiting_);
    }
    for (const Entry& entry : rest) {
        for (const Point& point : entry.points) {
            const std::shared_ptr<Stream> stream = point.stream.lock();
            if (stream != nullptr) {
                (void)stream->followed().await(); // which the event may be behind
            }
            if (point.is_recorded) {
                (void)point.event->sync();
            } else if (stream != nullptr) {
                wait_for(*stream);
            }
        }
        run(entry.deleter);
    }
}

} // namespace mp
