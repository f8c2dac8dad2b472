// SPDX-License-Identifier: Apache-2.0
#include "comm_work.hpp"

#include <map>

#include "comm/capture.hpp"
#include "objects.hpp"

namespace mp::capi {

namespace {

std::shared_ptr<OpenSum> open_sum_of(const Device& device) {
    static std::mutex mutex;
    static std::map<const Device*, std::weak_ptr<OpenSum>> all;
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<OpenSum>& known = all[&device];
    std::shared_ptr<OpenSum> open = known.lock();
    if (open == nullptr) {
        open = std::make_shared<OpenSum>();
        known = open;
    }
    return open;
}

// Does a step of the request's work; drops it when it is done or has failed. In a capture it stays as it is.
template <typename Step> bool finish(CommRequestObject& object, const Step& step) {
    comm::refuse_capture(object.work->stream());
    try {
        if (!step(*object.work)) {
            return false;
        }
    } catch (const Error& error) {
        object.status = error.status();
    }
    object.work.reset();
    return true;
}

bool is_open(const CommRequestObject& object) {
    return object.comm->open_sum->request.lock().get() == &object;
}

// Under its lock.
void begin_rest(CommRequestObject& object) {
    if (object.work != nullptr) {
        (void)finish(object, [](CommWork& work) {
            work.begin_rest();
            return false;
        });
    }
    object.comm->open_sum->request.reset();
}

} // namespace

CommObject::CommObject(std::unique_ptr<comm::Communicator> owned, std::shared_ptr<Context> owner)
    : context(std::move(owner)), communicator(std::move(owned)),
      open_sum(context != nullptr && communicator->caps().device_memory
                   ? open_sum_of(context->stream().device())
                   : std::make_shared<OpenSum>()) {}

comm::Communicator& ready(CommObject& object) {
    // In a function of the caller's transport, which may begin nothing.
    if (object.communicator->holds_lock()) {
        return *object.communicator;
    }
    OpenSum& open = *object.open_sum;
    const std::lock_guard lock(open.mutex);
    if (const std::shared_ptr<CommRequestObject> request = open.request.lock();
        request != nullptr) {
        begin_rest(*request);
    }
    return *object.communicator;
}

void keep_open(const std::shared_ptr<CommRequestObject>& object) {
    if (object->work->begins_more()) {
        const std::lock_guard lock(object->comm->open_sum->mutex);
        object->comm->open_sum->request = object;
    }
}

void wait_for(CommRequestObject& object) {
    if (!object.comm->communicator->holds_lock()) {
        const std::lock_guard lock(object.comm->open_sum->mutex);
        if (is_open(object)) {
            begin_rest(object);
        }
    }
    if (object.work != nullptr) {
        (void)finish(object, [](CommWork& work) {
            work.wait();
            return true;
        });
    }
}

bool is_done(CommRequestObject& object) {
    const auto test = [](CommWork& work) { return work.test(); };
    if (!object.comm->communicator->holds_lock()) {
        const std::lock_guard lock(object.comm->open_sum->mutex);
        if (is_open(object)) {
            const bool is_over = finish(object, test);
            if (is_over || !object.work->begins_more()) {
                object.comm->open_sum->request.reset();
            }
            return is_over;
        }
    }
    return object.work == nullptr || finish(object, test);
}

} // namespace mp::capi
