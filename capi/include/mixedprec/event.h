/* SPDX-License-Identifier: Apache-2.0
 * mp_event: a point in a queue's work, for ordering queues without waiting for them.
 *
 *   mp_event_record(event, first);         after all that is on the queue `first` now
 *   mp_queue_wait_event(second, event);    what is put on the queue `second` from now on begins after it
 *
 * Where queues do their work in the calling thread (the host) every event has been reached, and nothing waits. */
#ifndef MIXEDPREC_EVENT_H
#define MIXEDPREC_EVENT_H

#include "status.h"

MP_BEGIN_DECLS

/** Makes an event of the context's device.
 * @param[in]  context  the context
 * @param[out] out      the new event
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_OUT_OF_MEMORY; vendor codes
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_event_create(mp_context* context, mp_event** out) MP_MUST_CHECK;

/** The event is now after the queue's work so far. Recorded again it is another point; who waits already waits for the old one.
 * Enqueues.
 * @param[in] event  the event
 * @param[in] queue  of the same device; NULL: the default queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (device); vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_event_record(mp_event* event, mp_queue* queue);

/** What is put on the queue from now on begins after the event. Does not wait itself; an event that was never recorded holds
 * nothing up. Enqueues.
 * @param[in] queue  the queue that is to wait; NULL: the default queue
 * @param[in] event  of the same device
 * @returns as mp_event_record
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_queue_wait_event(mp_queue* queue, mp_event* event);

/** Whether the event has been reached. Does not block.
 * @param[in] event  the event; one that was never recorded has been reached
 * @returns MP_STATUS_OK when it has; MP_STATUS_NOT_READY when not; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; vendor
 *          codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_event_test(mp_event* event);

/** Waits until the event has been reached, and reports what went wrong in the work before it. Other ranks that it is behind have
 * their deadline, as in mp_queue_sync. Blocks.
 * @param[in] event  the event
 * @returns as mp_queue_sync; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_event_sync(mp_event* event);

/** Gives the caller's reference back. Who waits for the event goes on waiting.
 * @param[in] event  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_event_destroy(mp_event* event);

MP_END_DECLS

#endif /* MIXEDPREC_EVENT_H */
