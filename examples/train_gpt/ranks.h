/* SPDX-License-Identifier: Apache-2.0
 * Ranks that share a step: threads of this process, or processes under mpirun. The passes of a step are numbered through
 * all of them: of A passes, rank r of N takes those from r A / N up to (r + 1) A / N. */
#ifndef TRAIN_GPT_RANKS_H
#define TRAIN_GPT_RANKS_H

#include "options.h"
#include "support.h"

typedef struct {
    mp_comm* comm; /* NULL: nothing is shared, and this is the only one */
    int32_t rank, count;
    int32_t neighbours; /* ranks on this machine, this one too */
} Ranks;

/* What a rank does. */
typedef bool (*RankBody)(const Ranks* ranks, void* payload);

/* At the program's start: with --mpi finds the others. EXIT_OK, or another exit code after printing why. */
int ranks_start(const Options* options);
void ranks_finish(void);
/* Whether this process is the one that prints and writes files. */
bool ranks_is_first_process(void);

/* Calls body once for each rank of this process, all at the same time, rank 0 on this thread; false if any was. */
bool ranks_run(const Options* options, RankBody body, void* payload);

/* Which of `total` things are this rank's. */
int64_t ranks_first(const Ranks* ranks, int64_t total);
int64_t ranks_end(const Ranks* ranks, int64_t total);
/* Each rank has filled in its own of the values; after it all have all. */
bool ranks_share(const Ranks* ranks, double* values, int64_t total);
/* Whether any rank says so. */
bool ranks_any(const Ranks* ranks, bool mine, bool* any);

#endif
