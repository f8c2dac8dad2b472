/* SPDX-License-Identifier: Apache-2.0
 * Making ranks, and what they tell each other besides gradients and weights. */
#include "ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mp_comm* mpi_comm = NULL;

static bool describe_ranks(Ranks* ranks, mp_comm* comm) {
    *ranks = (Ranks){.comm = comm};
    int32_t mine = 0, node = 0;
    TRY(mp_comm_rank(comm, &ranks->rank));
    TRY(mp_comm_size(comm, &ranks->count));
    TRY(mp_comm_node(comm, ranks->rank, &mine));
    for (int32_t i = 0; i < ranks->count; i++) {
        TRY(mp_comm_node(comm, i, &node));
        ranks->neighbours += node == mine ? 1 : 0;
    }
    support_rank = ranks->count > 1 ? ranks->rank : -1;
    return true;
}

int ranks_start(const Options* o) {
    if (!o->mpi) {
        return EXIT_OK;
    }
    Ranks ranks;
    if (!succeeded(mp_comm_create_mpi(NULL, NULL, &mpi_comm), "mp_comm_create_mpi") ||
        !describe_ranks(&ranks, mpi_comm)) {
        return EXIT_FAILED;
    }
    return options_check_ranks(o, ranks.count);
}

void ranks_finish(void) {
    mp_comm_destroy(mpi_comm);
    mpi_comm = NULL;
}

bool ranks_is_first_process(void) {
    int32_t rank = 0;
    return mpi_comm == NULL || mp_comm_rank(mpi_comm, &rank) < 0 || rank == 0;
}

typedef struct {
    mp_comm* comm;
    RankBody body;
    void* payload;
    bool good;
} RankThread;

/* Whoever gives up lets go of its communicator, which the others learn at once. */
static void* run_rank(void* data) {
    RankThread* thread = data;
    Ranks ranks;
    thread->good = describe_ranks(&ranks, thread->comm) && thread->body(&ranks, thread->payload);
    mp_comm_destroy(thread->comm);
    support_rank = -1;
    return NULL;
}

static bool run_threads(const Options* o, RankThread* threads, pthread_t* handles) {
    const int32_t count = (int32_t)o->ranks;
    int32_t started = 1;
    for (; started < count; started++) {
        if (pthread_create(&handles[started], NULL, run_rank, &threads[started]) != 0) {
            fprintf(stderr, "train_gpt: cannot start a thread for rank %d\n", (int)started);
            break;
        }
    }
    for (int32_t i = started; i < count; i++) { /* the others then learn that these are lost */
        mp_comm_destroy(threads[i].comm);
    }
    run_rank(&threads[0]);
    bool good = threads[0].good && started == count;
    for (int32_t i = 1; i < started; i++) {
        pthread_join(handles[i], NULL);
        good = threads[i].good && good;
    }
    return good;
}

static bool run_all_threads(const Options* o, RankBody body, void* payload) {
    const size_t count = (size_t)o->ranks;
    mp_comm** comms = calloc(count, sizeof(mp_comm*));
    RankThread* threads = calloc(count, sizeof *threads);
    pthread_t* handles = calloc(count, sizeof *handles);
    bool good = false;
    if (comms == NULL || threads == NULL || handles == NULL) {
        fputs("train_gpt: out of memory for the list of ranks\n", stderr);
    } else if (succeeded(mp_comm_create_threads(NULL, (int32_t)o->ranks, comms),
                         "mp_comm_create_threads")) {
        for (size_t i = 0; i < count; i++) {
            threads[i] = (RankThread){comms[i], body, payload, false};
        }
        good = run_threads(o, threads, handles);
    }
    free(comms);
    free(threads);
    free(handles);
    return good;
}

bool ranks_run(const Options* o, RankBody body, void* payload) {
    Ranks ranks = {.count = 1, .neighbours = 1};
    if (!o->shared) {
        return body(&ranks, payload);
    }
    if (!o->mpi) {
        return run_all_threads(o, body, payload);
    }
    return describe_ranks(&ranks, mpi_comm) && body(&ranks, payload);
}

int64_t ranks_first(const Ranks* ranks, int64_t total) {
    return ranks->rank * total / ranks->count;
}

int64_t ranks_end(const Ranks* ranks, int64_t total) {
    return (ranks->rank + 1) * total / ranks->count;
}

bool ranks_share(const Ranks* ranks, double* values, int64_t total) {
    if (ranks->comm == NULL) {
        return true;
    }
    const size_t count = (size_t)ranks->count;
    int64_t* bytes = calloc(2 * count, sizeof *bytes);
    if (bytes == NULL) {
        fputs("train_gpt: out of memory for the sizes of messages\n", stderr);
        return false;
    }
    int64_t* offsets = bytes + count;
    for (size_t i = 0; i < count; i++) {
        const Ranks other = {.rank = (int32_t)i, .count = ranks->count};
        offsets[i] = ranks_first(&other, total) * (int64_t)sizeof(double);
        bytes[i] = ranks_end(&other, total) * (int64_t)sizeof(double) - offsets[i];
    }
    mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
    exchange.send = values + ranks_first(ranks, total);
    exchange.send_bytes = &bytes[ranks->rank];
    exchange.receive = values;
    exchange.receive_bytes = bytes;
    exchange.receive_offsets = offsets;
    exchange.site = "losses";
    const mp_status status = mp_comm_all_gather(ranks->comm, NULL, &exchange, NULL);
    free(bytes);
    TRY_STATUS(status, "mp_comm_all_gather");
    return true;
}

bool ranks_any(const Ranks* ranks, bool mine, bool* any) {
    uint32_t flag = mine ? 1 : 0;
    if (ranks->comm != NULL) {
        TRY(mp_comm_max_u32(ranks->comm, &flag, 1, NULL));
    }
    *any = flag != 0;
    return true;
}
