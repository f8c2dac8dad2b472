/* SPDX-License-Identifier: Apache-2.0
 * A transport of the caller's: the table of functions that mp_comm_create_callbacks (comm.h) makes a communicator of, and what
 * the library hands to them. */
#ifndef MIXEDPREC_COMM_CALLBACKS_H
#define MIXEDPREC_COMM_CALLBACKS_H

#include "status.h"

/* What an operation of mp_comm_callbacks is. */
#define MP_COMM_ALL_TO_ALL 0 /* every rank gives every rank its own bytes */
#define MP_COMM_ALL_GATHER 1 /* every rank gets every rank's bytes */
#define MP_COMM_BROADCAST 2  /* every rank gets the root's bytes */
#define MP_COMM_BARRIER 3    /* no bytes: done when every rank has begun it */
#define MP_COMM_MAX_U32 4    /* values become their maxima over the ranks, as uint32_t */
#define MP_COMM_SUM_F32 5    /* values become their sums over the ranks, as float */

/* mp_comm_callbacks.flags */
#define MP_COMM_HAS_SUM_F32 1u       /* begin takes MP_COMM_SUM_F32 */
#define MP_COMM_HAS_DEVICE_MEMORY 2u /* begin takes pointers to device memory */
/* The functions may be called by a thread of the library's, one call at a time for each table, while the program's threads
 * do what they like. A sharded optimizer then moves its gradients on while the caller computes (sharding.h). */
#define MP_COMM_TAKES_ANY_THREAD 4u

/** One operation as mp_comm_callbacks.begin gets it. All it points to, the arrays too, stays until release. */
typedef struct mp_comm_operation {
    uint32_t struct_size;           /* sizeof(mp_comm_operation) of the library */
    int32_t kind;                   /* MP_COMM_* */
    uint64_t sequence;              /* 0, 1, ... the same on every rank */
    const void* send;               /* all_to_all, all_gather: what this rank gives */
    const int64_t* send_bytes;      /* all_to_all: size of them; all_gather: one */
    const int64_t* send_offsets;    /* all_to_all: size of them, in bytes from send */
    void* receive;                  /* broadcast: the data; MAX and SUM: the values, in place */
    const int64_t* receive_bytes;   /* all_to_all, all_gather: size of them; broadcast: one */
    const int64_t* receive_offsets; /* all_to_all, all_gather: size of them, from receive */
    int64_t count;                  /* MAX and SUM: values */
    int32_t root;                   /* broadcast */
    int32_t reserved;               /* 0 */
    /* With MP_COMM_HAS_DEVICE_MEMORY: the address of the native stream whose work comes first; or NULL */
    const void* native;
} mp_comm_operation;

#define MP_COMM_OPERATION_INIT                                                                     \
    { sizeof(mp_comm_operation), 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL }

/** Some ranks that become a communicator of their own. */
typedef struct mp_comm_group {
    uint32_t struct_size;   /* sizeof(mp_comm_group) of the library */
    int32_t color;          /* below 0: this rank is in no group */
    int32_t key;            /* as given to mp_comm_split: the new ranks are in its order */
    int32_t count;          /* members */
    int32_t rank;           /* this rank's new number */
    int32_t context;        /* a number that no other group of these ranks has or had */
    const int32_t* members; /* their present ranks, in the order of the new ones */
} mp_comm_group;

#define MP_COMM_GROUP_INIT                                                                         \
    { sizeof(mp_comm_group), 0, 0, 0, 0, 0, NULL }

/** Starts an operation and gives a request, which may be NULL. The operation stays until release. */
typedef mp_status (*mp_comm_begin_fn)(const mp_comm_operation* operation, void** request,
                                      void* payload);

/** Moves a request on; *done becomes 1 when all is received and what was sent may be reused. */
typedef mp_status (*mp_comm_poll_fn)(void* request, int32_t* done, void* payload);

/** Ends a request, done or not; from then on its operation's memory is not touched. Also in the thread that destroys a
 * request or the communicator. */
typedef void (*mp_comm_release_fn)(void* request, void* payload);

/** This rank gives up, for a reason in words; others should learn it. From any thread. */
typedef void (*mp_comm_abort_fn)(mp_status status, const char* reason, void* payload);

/** Sleeps until something may have changed, at most so long. Release may be called meanwhile, by another thread. */
typedef void (*mp_comm_pause_fn)(int64_t nanoseconds, void* payload);

/** Called once, when nothing else will be, in the thread that gives the last reference back. */
typedef void (*mp_comm_end_fn)(void* payload);

struct mp_comm_callbacks;

/** Fills a table for a group of ranks. Called on every rank; where color is below 0, out is not read after. */
typedef mp_status (*mp_comm_split_fn)(const mp_comm_group* group, struct mp_comm_callbacks* out,
                                      void* payload);

/** A transport of the caller's. The functions return MP_STATUS_OK or a failure, which ends the communicator; they must
 * not wait for other ranks, nor call mp_comm_* of this communicator, which is MP_STATUS_BAD_STATE. A finalizer that runs in one
 * may destroy its requests: they end when the function is over. They are called on the thread that uses the communicator, and
 * with MP_COMM_TAKES_ANY_THREAD also on the thread that a sharded optimizer has: poll and release only. A thread that destroys a
 * request waits for the function under way: it must not hold a lock that this one needs, such as an interpreter's. */
typedef struct mp_comm_callbacks {
    uint32_t struct_size;   /* sizeof(mp_comm_callbacks) */
    uint32_t flags;         /* MP_COMM_HAS_*, MP_COMM_TAKES_* */
    int32_t rank;           /* this rank, from 0 */
    int32_t size;           /* number of ranks */
    const int32_t* nodes;   /* size of them, copied: equal numbers share a machine; NULL: all do */
    const char* name;       /* for messages, copied; NULL: "callbacks" */
    mp_comm_begin_fn begin; /* required */
    mp_comm_poll_fn poll;   /* required */
    mp_comm_release_fn release; /* required */
    mp_comm_abort_fn abort;     /* NULL: nothing is told to the others */
    mp_comm_pause_fn pause;     /* NULL: the library sleeps */
    mp_comm_split_fn split;     /* NULL: mp_comm_split says MP_STATUS_UNSUPPORTED */
    mp_comm_end_fn destroy;     /* NULL: nothing to end */
    void* payload;              /* for each function */
} mp_comm_callbacks;

#define MP_COMM_CALLBACKS_INIT                                                                     \
    {                                                                                              \
        sizeof(mp_comm_callbacks), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,  \
            NULL                                                                                   \
    }

#endif /* MIXEDPREC_COMM_CALLBACKS_H */
