/* SPDX-License-Identifier: Apache-2.0
 * docs/communication.md: a first program. Something goes wrong on rank 1, and every rank hears of it.
 * snippet run: mpirun -n 2 */
#include "frame.h"

static uint32_t is_rank_1(mp_comm* comm) {
    int32_t rank = 0;
    must(mp_comm_get_rank(comm, &rank) == 0, "a rank has a number");
    return rank == 1;
}
#define something_went_wrong is_rank_1(comm)

int main(void) {
    /* snippet: first */
    must(agreement == 1, "rank 0 knows what went wrong on rank 1");
    return 0;
}
