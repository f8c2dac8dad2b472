// SPDX-License-Identifier: Apache-2.0
// Events on the host, whose queues do their work at once: always reached. On a device: tests/cuda/library.cpp.
#include "support.hpp"

using namespace mp_test;

TEST(Event, IsAlwaysReachedOnTheHost) {
    const Context context = make_context();
    const Queue queue = make_queue(context);
    mp_event* made = nullptr;
    MP_OK(mp_event_create(context, &made));
    const Event event(made);
    MP_OK(mp_event_test(event)); // never recorded
    MP_OK(mp_event_sync(event));
    MP_OK(mp_queue_wait_event(queue, event));
    MP_OK(mp_event_record(event, queue));
    MP_OK(mp_event_record(event, nullptr));
    MP_OK(mp_event_test(event));
    MP_OK(mp_queue_wait_event(queue, event));
    MP_OK(mp_event_sync(event));
    MP_OK(mp_queue_wait_event(nullptr, event));
    MP_FAILS(mp_queue_wait_event(nullptr, nullptr), MP_STATUS_NULL_ARGUMENT, "event");
}

TEST(Event, KeepsItsDeviceOpen) {
    mp_event* made = nullptr;
    {
        const Context context = make_context();
        MP_OK(mp_event_create(context, &made));
    }
    const Event event(made);
    MP_OK(mp_event_record(event, nullptr));
    MP_OK(mp_event_sync(event));
}
