// SPDX-License-Identifier: Apache-2.0
// event.h
#include "boundary.hpp"
#include "objects.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

// The queue's, or the default one's of the event's context; on the event's device.
Stream& stream_for(mp_queue* queue, const EventObject& event) {
    return stream_of(queue, *event.context);
}

} // namespace

mp_status mp_event_create(mp_context* context, mp_event** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context> owner = object_of(context, "context");
        Event* event = nullptr;
        check(owner->stream().device().create_event(&event));
        *out = make_handle<mp_event>(
            std::make_shared<EventObject>(EventObject{owner, std::unique_ptr<Event>(event), {}}));
    });
}

mp_status mp_event_record(mp_event* event, mp_queue* queue) {
    return boundary([&] {
        const std::shared_ptr<EventObject> object = object_of(event, "event");
        Stream& stream = stream_for(queue, *object);
        if (object->event != nullptr) {
            Followed::List behind = stream.followed().open();
            check(object->event->record(stream.queue()));
            object->behind = std::move(behind);
        }
    });
}

mp_status mp_queue_wait_event(mp_queue* queue, mp_event* event) {
    return boundary([&] {
        const EventObject& object = *object_of(event, "event");
        Stream& stream = stream_for(queue, object);
        if (object.event != nullptr) {
            stream.followed().add(object.behind);
            check(object.event->wait_in(stream.queue()));
        }
    });
}

mp_status mp_event_test(mp_event* event) {
    return boundary([&]() -> mp_status {
        const EventObject& object = *object_of(event, "event");
        for (const std::shared_ptr<Awaited>& each : object.behind) {
            if (!each->is_over()) {
                return MP_STATUS_NOT_READY;
            }
            check(each->wait());
        }
        bool reached = true;
        if (object.event != nullptr) {
            check(object.event->test(&reached));
        }
        return reached ? MP_STATUS_OK : MP_STATUS_NOT_READY;
    });
}

mp_status mp_event_sync(mp_event* event) {
    return boundary([&] {
        const EventObject& object = *object_of(event, "event");
        if (object.event != nullptr) {
            for (const std::shared_ptr<Awaited>& each : object.behind) {
                check(each->wait());
            }
            check(object.event->sync());
        }
    });
}

void mp_event_destroy(mp_event* event) { destroy_handle(event); }
