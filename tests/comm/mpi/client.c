/* SPDX-License-Identifier: Apache-2.0
 * A stranger's program: two calls, and it is a rank. It links no MPI.
 *
 * usage: client RESULT_FOLDER */
#include <stdio.h>
#include <stdlib.h>

#include "mixedprec.h"

static int failed(mp_status status) {
    if (status != MP_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", mp_status_string(status), mp_last_error_message());
    }
    return status != MP_STATUS_OK;
}

int main(int count, char** arguments) {
    mp_comm* comm = NULL;
    int32_t rank = -1;
    int32_t size = -1;
    uint32_t highest = 0;
    char text[300];
    if (count != 2 || failed(mp_comm_create_mpi(NULL, NULL, &comm)) ||
        failed(mp_comm_get_rank(comm, &rank)) || failed(mp_comm_get_size(comm, &size))) {
        return 1;
    }
    highest = (uint32_t)rank;
    if (failed(mp_comm_max_u32(comm, &highest, 1, NULL)) || highest != (uint32_t)(size - 1) ||
        failed(mp_comm_describe(comm, text, sizeof text, NULL))) {
        return 1;
    }
    mp_comm_destroy(comm);
    if (failed(mp_library_shutdown())) {
        return 1;
    }
    char path[1000];
    (void)snprintf(path, sizeof path, "%s/rank%d", arguments[1], (int)rank);
    FILE* file = fopen(path, "w");
    if (file == NULL) {
        return 1;
    }
    fputs("ok", file);
    fclose(file);
    puts(text);
    return 0;
}
